"""Tiny sets, which the learners get instead of real ones: images of three colours, and roads that are a bright line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
import torch

from learners.batched import SideBySideEngine, StackedEngine
from learners.data.image_set import ImageSet, channel_statistics
from learners.data.steering_set import SteeringSet
from learners.training import SequentialEngine
from vnetsim.blur import Camera
from vnetsim.experiment import BlurSettings, DataSettings
from vnetsim.learning import LearnerContext, Participant, Peer
from vnetsim.random_streams import Streams

ENGINES = {"sequential": SequentialEngine, "side-by-side": SideBySideEngine, "stacked": StackedEngine}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Compute as the engines do: what a test computes by itself is then the same to the bit."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def engine_of_all_learners(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train with the engine that ``VNETSIM_TEST_ENGINE`` names, whatever a learner's settings say."""
    name = os.environ.get("VNETSIM_TEST_ENGINE")
    if name:
        monkeypatch.setattr("learners.task.create_engine", lambda *_: ENGINES[name]())


def tiny_images(train: int = 96, test: int = 24) -> ImageSet:
    """Noisy images of 16 x 16 whose brightest channel is their class."""
    generator = torch.Generator().manual_seed(5)
    labels = torch.arange(train + test) % 3
    images = torch.randint(0, 120, (train + test, 3, 16, 16), generator=generator, dtype=torch.uint8)
    images[torch.arange(train + test), labels] += 100
    mean, std = channel_statistics(images[:train])
    return ImageSet(
        name="tiny",
        train=images[:train],
        train_labels=labels[:train],
        test=images[train:],
        test_labels=labels[train:],
        class_names=("red", "green", "blue"),
        mean=mean,
        std=std,
    )


@pytest.fixture
def images() -> ImageSet:
    return tiny_images()


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, images: ImageSet) -> ImageSet:
    """Make the learners load the tiny set."""
    monkeypatch.setattr("learners.task.load_images", lambda _, *, streams: images)  # noqa: ARG005  the signature
    return images


def tiny_roads(train: int = 96, test: int = 24) -> SteeringSet:
    """Noisy frames of 16 x 16 with a bright vertical line at a place that is their steering angle."""
    generator = torch.Generator().manual_seed(6)
    angles = torch.rand(train + test, generator=generator) * 2 - 1
    frames = torch.randint(0, 60, (train + test, 1, 16, 16), generator=generator, dtype=torch.uint8)
    columns = ((angles + 1) * 7.5).round().to(torch.int64)
    frames[torch.arange(train + test), 0, :, columns] += 180
    drives = torch.arange(train) // (train // 6)
    return SteeringSet(
        name="tiny",
        train=frames[:train],
        train_angles=angles[:train],
        train_drives=drives,
        train_blocks=drives,
        test=frames[train:],
        test_angles=angles[train:],
    )


@pytest.fixture
def roads() -> SteeringSet:
    return tiny_roads()


@pytest.fixture
def on_tiny_roads(monkeypatch: pytest.MonkeyPatch, roads: SteeringSet) -> SteeringSet:
    """Make the steering learners load the tiny roads, silo i with the i-th part of them."""

    def parts(frames: SteeringSet, *, silos: int, **_: object) -> list[np.ndarray]:
        return np.array_split(np.arange(len(frames.train)), silos)

    monkeypatch.setattr("learners.steering_task.load_steering", lambda _, *, streams: roads)  # noqa: ARG005  the signature
    monkeypatch.setattr("learners.steering_task.partition_steering", parts)
    return roads


@pytest.fixture
def context() -> LearnerContext:
    return make_context()


def make_context(**changes: object) -> LearnerContext:
    values: dict[str, object] = {
        "streams": Streams(seed=1).child("learner"),
        "device": "cpu",
        "rounds": 4,
        "silos": 6,
        "approaches": 4,
        "max_staleness": 0,
        "data": DataSettings(),
        "blur": BlurSettings(),
        "camera": Camera(),
    }
    return LearnerContext(**(values | changes))  # type: ignore[arg-type]


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
    ) -> Participant:
        return Participant(
            round=round_,
            base_round=round_ if base_round is None else base_round,
            vehicle_id=f"vehicle {number}",
            rsu_id="RSU",
            silo=number % 6,
            speed_mps=speed_mps,
            level_px=Camera().level_px(speed_mps),
            peers=tuple(
                Peer(vehicle_id=p.vehicle_id, silo=p.silo, speed_mps=p.speed_mps, level_px=p.level_px) for p in peers
            ),
        )

    return make
