"""Learners on tiny sets; see ``device_checks.tiny_data``."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from device_checks import learner_class as learner_class_of
from device_checks.tiny_data import tiny_images, tiny_roads
from device_checks.training_work import context as small_context
from learner_checks import one_thread, peers_of

from learners.data.sets import ImageSet, SteeringSet
from learners.fedefm import FedEFM, FedEFMSettings
from vnetsim.experiment import BlurSettings, ExchangeSettings
from vnetsim.experiment.camera import Camera
from vnetsim.learning import AGGREGATOR, LearnerContext, ModelKey, Participant
from vnetsim.random_streams import Streams

ROUNDS = 4


@pytest.fixture(autouse=True)
def as_engines_do() -> Iterator[None]:
    """What a test computes by itself is then the same to the bit."""
    with one_thread():
        yield


@pytest.fixture
def images() -> ImageSet:
    return tiny_images()


@pytest.fixture
def tiny(monkeypatch, images) -> ImageSet:
    """Make the learners load the tiny set."""
    monkeypatch.setattr("learners.tasks.task.load_images", lambda *_, **__: images)
    return images


@pytest.fixture
def roads() -> SteeringSet:
    return tiny_roads()


@pytest.fixture
def on_tiny_roads(monkeypatch, roads) -> SteeringSet:
    """Make the steering learners load the tiny roads, silo i with the i-th part of them."""

    def parts(frames: SteeringSet, *, silos: int, **_: object) -> list[np.ndarray]:
        return np.array_split(np.arange(len(frames.train)), silos)

    monkeypatch.setattr("learners.tasks.steering.load_steering", lambda *_, **__: roads)
    monkeypatch.setattr("learners.tasks.steering.partition_steering", parts)
    return roads


@pytest.fixture
def context() -> LearnerContext:
    return make_context()


def make_context(**changes: Any) -> LearnerContext:
    return small_context(
        "cpu", **({"silos": 6, "rounds": ROUNDS, "streams": Streams(seed=1).child("learner")} | changes)
    )


@pytest.fixture
def new_context() -> Callable[..., LearnerContext]:
    return make_context


@pytest.fixture
def participant() -> Callable[..., Participant]:
    def make(
        round_: int,
        number: int,
        *,
        base_round: int | None = None,
        speed_mps: float = 25.0,
        peers: Sequence[Participant] = (),
        work_share: float = 1.0,
    ) -> Participant:
        version = round_ if base_round is None else base_round
        return Participant(
            round=round_,
            base=ModelKey(AGGREGATOR, version),
            passed=min(version / ROUNDS, 1),
            vehicle_id=f"vehicle {number}",
            rsu_id="RSU",
            silo=number % 6,
            speed_mps=speed_mps,
            level_px=Camera().level_px(speed_mps),
            peers=peers_of(*peers),
            work_share=work_share,
        )

    return make


@pytest.fixture
def new_fedefm(monkeypatch, images) -> Callable[..., FedEFM]:
    """Return a maker of FedEFM on the tiny set, quick; ``context`` changes its own."""
    monkeypatch.setattr("learners.tasks.task.load_images", lambda *_, **__: images)

    def make(context: dict[str, object] | None = None, **settings: Any) -> FedEFM:
        quick = {"batch": 8, "steps": 2, "overseas_steps": 1}
        return FedEFM.create(make_context(**(context or {})), FedEFMSettings(**quick | settings))

    return make


@pytest.fixture
def group(participant) -> Callable[..., list[Participant]]:
    """Return a maker of ``count`` participants of a round, each the peer of all others."""

    def make(round_: int, count: int = 3, *, first: int = 0) -> list[Participant]:
        alone = [participant(round_, first + i, speed_mps=20.0 + i) for i in range(count)]
        met = [replace(peer, neighbours=count - 1) for peer in peers_of(*alone)]
        return [
            replace(one, peers=tuple(met[j] for j in range(count) if j != i), neighbours=count - 1)
            for i, one in enumerate(alone)
        ]

    return make


@pytest.fixture
def without_bounds(monkeypatch) -> None:
    """Settings beyond their bounds, such as a learning rate at which any network diverges."""
    monkeypatch.setattr("vnetsim.errors.bounds.Within.check", lambda *_: None)


@pytest.fixture
def new_steering(on_tiny_roads) -> Callable[..., Any]:  # noqa: ARG001  replaces the frames
    """Return a maker of steering learners on the tiny roads, quick and without blur."""

    def make(cls: Any, topology: str = "contact", context: dict[str, Any] | None = None, **settings: Any) -> Any:
        given: dict[str, Any] = {"blur": BlurSettings(fraction=0.0), **(context or {})}
        quick = {"batch": 8, "steps": 2, "lr": 1e-3}
        where = make_context(exchange=ExchangeSettings(topology=topology), **given)
        return cls.create(where, cls.Settings(**(quick | settings)))

    return make


@pytest.fixture(params=["cdl", "dsgd", "fedavg-steering"])
def learner_class(request) -> Any:
    """Each of the steering learners."""
    return learner_class_of(request.param)
