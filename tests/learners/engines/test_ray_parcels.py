"""What the engine of a Ray cluster sends, and what it makes of answers, deaths and beginnings: on a cluster in memory.

``test_ray_engine`` trains on a real one, which takes a minute.
"""

from __future__ import annotations

import importlib.util
import logging
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from learners.engines import ray_engine
from learners.engines.batched import SideBySideEngine
from learners.engines.programs import LocalTraining, Program, SequentialEngine, Tensors, Trained, TrainingJob
from learners.engines.ray_engine import AHEAD, RayEngine
from learners.engines.ray_worker import Worker, versions
from vnetsim.errors import InputError, RunError
from vnetsim.experiment.arithmetic import Arithmetic
from vnetsim.process import RETRIES

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed (pip install 'vnetsim[ray]')"
)
CPU = torch.device("cpu")


class RayError(Exception):
    """A worker died."""


class RayTaskError(RayError):
    """What a worker was at raised an error."""

    def __init__(self, cause: Exception | None) -> None:
        super().__init__("in a worker")
        self.cause = cause


class Reference:
    """A value of the object store, made when it is asked for."""

    def __init__(self, make: Callable[[], Any], actor: Actor | None = None) -> None:
        self.make, self.actor, self.gets = make, actor, 0


class Actor:
    """A worker in this process."""

    def __init__(self, cluster: Cluster, settings: Any) -> None:
        self.cluster, self.settings, self.number = cluster, settings, len(cluster.actors)
        self.dead, self.ahead, self.parcels = False, 0, []
        self.worker = Worker(settings) if settings.device == "cpu" else None
        cluster.actors.append(self)
        self.versions = SimpleNamespace(remote=lambda: Reference(lambda: cluster.begins(self)))
        self.train = SimpleNamespace(remote=self._train)

    def _train(self, parcel: Any, programs: Any, shared: Any) -> Reference:
        self.ahead += 1
        assert self.ahead <= AHEAD
        self.parcels.append(parcel)
        self.cluster.sent.append((parcel, programs, shared))

        def answer() -> Any:
            self.ahead -= 1
            self.dead = self.dead or self.cluster.dies(self)
            if self.dead:
                raise RayError("the actor\ndied")
            assert self.worker is not None
            try:
                return self.worker.train(parcel, programs, shared)
            except RayError:
                raise
            except Exception as error:
                raise RayTaskError(error if self.cluster.tells_causes else None) from error

        return Reference(answer, self)


@dataclass(eq=False)
class Cluster:
    """The module ``ray``, as far as the engine needs it."""

    resources: dict[str, float] = field(default_factory=lambda: {"CPU": 3.0})
    begins: Callable[[Actor], str] = lambda _: versions()
    dies: Callable[[Actor], bool] = lambda _: False
    ready: Callable[[Reference], bool] = lambda _: True
    tells_causes: bool = True
    actors: list[Actor] = field(default_factory=list)
    options: list[dict[str, Any]] = field(default_factory=list)
    sent: list[Any] = field(default_factory=list)
    stored: list[Reference] = field(default_factory=list)
    waits_s: list[float] = field(default_factory=list)
    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    @property
    def cloudpickle(self) -> Any:
        from ray import cloudpickle  # noqa: PLC0415

        return cloudpickle

    def cluster_resources(self) -> dict[str, float]:
        return self.resources

    def put(self, value: Any) -> Reference:
        self.stored.append(Reference(lambda: value))
        return self.stored[-1]

    def get(self, reference: Reference) -> Any:
        reference.gets += 1
        return reference.make()

    def wait(self, references: Sequence[Reference], *, num_returns: int, timeout: float) -> tuple[Any, Any]:
        """Return those that are ready, begun with another one each time: a cluster answers in no order."""
        assert 1 <= num_returns <= len(references)
        self.waits_s.append(timeout)
        turn = len(self.waits_s) % len(references)
        ready = [one for one in (*references[turn:], *references[:turn]) if self.ready(one)][:num_returns]
        return ready, [one for one in references if one not in ready]

    def remote(self, kind: type) -> Any:
        assert kind is Worker

        def options(**told: Any) -> Any:
            self.options.append(told)
            return SimpleNamespace(remote=lambda settings: Actor(self, settings))

        return SimpleNamespace(options=options)


@pytest.fixture(autouse=True)
def _arithmetic() -> Iterator[None]:
    """A worker sets it for its process, which is this one here."""
    with Arithmetic().applied():
        yield


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    from ray import cloudpickle  # noqa: PLC0415

    made = Cluster()
    monkeypatch.setattr(Cluster, "cloudpickle", cloudpickle)
    monkeypatch.setitem(sys.modules, "ray", made)  # type: ignore[arg-type]
    return made


class Line(torch.nn.Module):
    """One parameter, and a constant."""

    def __init__(self, constant: float) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([2.0]))
        self.constant = constant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * x + self.constant


class Descent:
    """Gradient descent that counts its steps."""

    def __init__(self, parameters: Tensors, rate: Any, state: Tensors) -> None:
        self._parameters, self._rate = parameters, rate
        self._steps = state["steps"].clone()

    def step(self) -> None:
        with torch.no_grad():
            for parameter in self._parameters.values():
                assert parameter.grad is not None
                parameter.sub_(self._rate * parameter.grad)
                parameter.grad = None
        self._steps += 1

    def state(self) -> dict[str, torch.Tensor]:
        return {"steps": self._steps}


def draw(training: LocalTraining, generator: torch.Generator) -> Tensors:
    if training.silo == 99:
        raise ValueError("the learner is at fault")
    return {"x": torch.rand(4, generator=generator) + training.silo}


def loss(network: torch.nn.Module, batch: Tensors, given: Tensors) -> tuple[torch.Tensor, Tensors]:
    value = (network(batch["x"]) - given["target"]).square().mean()
    return value, {"loss": value}


def program(constant: float) -> Program:
    return Program(
        network=Line(constant), steps=2, count=lambda _: 4, draw=draw, prepare=lambda drawn: drawn, loss=loss,
        optimizer=Descent,  # type: ignore[arg-type]
    )  # fmt: skip


PROGRAMS = program(0.0), program(5.0)


def jobs(count: int = 40, *, at_fault: int | None = None) -> list[TrainingJob]:
    """Return jobs of two programs by turns, with one base for all, an optimizer for some, and targets of their own."""
    base, begun = {"weight": torch.tensor([1.5])}, {"steps": torch.tensor(3)}
    return [
        TrainingJob(
            program=PROGRAMS[i % 2],
            training=LocalTraining(
                silo=99 if i == at_fault else i, kernel_px=0.0, blurred_fraction=1.0, learning_rate=0.001, seed=i
            ),
            base=base,
            given={"target": torch.tensor(float(i))},
            optimizer=begun if i % 3 else {"steps": torch.tensor(i)},
        )
        for i in range(count)
    ]


def same(ours: Sequence[Trained], theirs: Sequence[Trained]) -> bool:
    return len(ours) == len(theirs) and all(
        a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
        for one, other in zip(ours, theirs, strict=True)
        for a, b in ((one.state, other.state), (one.optimizer, other.optimizer), (one.figures, other.figures))
    )


def engine(name: str = "auto", device: torch.device = CPU) -> RayEngine:
    return RayEngine(name, device, SequentialEngine())


def test_jobs_are_trained_as_in_one_process_round_after_round(cluster: Cluster) -> None:
    made, expected = engine(), SequentialEngine().train(jobs())
    assert made.at_once == 3 * AHEAD
    assert made.train([]) == []
    for _ in range(2):
        assert same(made.train(jobs()), expected)
    assert len(cluster.actors) == 3
    assert all(actor.parcels for actor in cluster.actors)
    assert cluster.options == [{"num_cpus": 1, "num_gpus": 0, "max_restarts": 0}] * 3
    places = [training.silo for parcel, _, _ in cluster.sent for training in parcel.trainings]
    assert sorted(places) == sorted(2 * list(range(40)))


def test_what_is_shared_travels_once(cluster: Cluster) -> None:
    """Base and begun optimizer once a round, each program once in all, and no worker fetches a program twice."""
    made = engine()
    made.train(jobs())
    once = len(cluster.stored)
    made.train(jobs())
    assert len(cluster.stored) == once + 2
    for parcel, programs, shared in cluster.sent:
        assert programs.keys() == set(parcel.programs) <= {0, 1}
        assert {part for parts in parcel.parts for part in parts if isinstance(part, int)} == shared.keys()
        for training, (base, given, optimizer) in zip(parcel.trainings, parcel.parts, strict=True):
            assert isinstance(base, int)
            assert not isinstance(given, int)
            assert isinstance(optimizer, int) == (training.silo % 3 > 0)
    references = {id(one): one for _, programs, _ in cluster.sent for one in programs.values()}
    assert len(references) == 2
    assert all(one.gets == len(cluster.actors) for one in references.values())


@pytest.mark.parametrize(("name", "kind"), [("auto", SideBySideEngine), ("sequential", SequentialEngine)])
def test_workers_compute_as_this_process_does(name: str, kind: type, cluster: Cluster) -> None:
    engine(name)
    for actor in cluster.actors:
        settings = actor.settings
        assert (settings.engine, settings.device) == (name, "cpu")
        assert settings.threads == torch.get_num_threads()
        assert settings.arithmetic == Arithmetic.present()
        assert actor.worker is not None
        assert type(actor.worker._engine) is kind
        assert getattr(actor.worker._engine, "_workers", 1) == 1
        assert actor.worker.versions() == versions()


def test_threads_and_arithmetic_are_set_where_a_worker_begins(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    monkeypatch.setattr("learners.engines.ray_worker.prepare_process", lambda: told.append("prepared"))
    monkeypatch.setattr(torch, "set_num_threads", told.append)
    monkeypatch.setattr(Arithmetic, "set", lambda self: told.append(("set", self)))
    engine()
    assert told == ["prepared", torch.get_num_threads(), ("set", Arithmetic.present())] * len(cluster.actors)


def test_every_worker_has_a_gpu_where_the_learner_has_one(cluster: Cluster) -> None:
    cluster.resources = {"CPU": 16.0, "GPU": 2.0}
    made = engine(device=torch.device("cuda"))
    assert made.at_once == 2 * AHEAD
    assert cluster.options == [{"num_cpus": 1, "num_gpus": 1, "max_restarts": 0}] * 2
    assert [actor.settings.device for actor in cluster.actors] == ["cuda", "cuda"]
    with pytest.raises(InputError, match=r"^--device cuda:1: with --engine ray every worker has a device for itself"):
        engine(device=torch.device("cuda:1"))
    for resources, device, kind in (({"CPU": 2.0}, "cuda", "GPU"), ({"GPU": 2.0}, "cpu", "CPU")):
        cluster.resources = resources
        with pytest.raises(InputError, match=rf"^--engine ray: the cluster has no {kind}, and the learner is to be"):
            engine(device=torch.device(device))


def test_what_a_dead_worker_had_is_trained_by_others(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.dies = lambda actor: actor.number == 1
    made = engine()
    with caplog.at_level(logging.WARNING):
        trained = made.train(jobs())
    assert same(trained, SequentialEngine().train(jobs()))
    assert [record.getMessage() for record in caplog.records] == [
        "vnetsim: a worker of the Ray cluster died; what it trained is trained again by another."
    ]
    assert len(cluster.actors) == 4
    assert len(cluster.options) == 4
    assert {worker.actor for worker in made._workers} == {one for one in cluster.actors if one.number != 1}
    sent = len(cluster.actors[1].parcels)
    assert same(made.train(jobs()), trained), "the others go on"
    assert len(cluster.actors[1].parcels) == sent


def test_what_kills_every_worker_ends_the_run(cluster: Cluster) -> None:
    cluster.dies = lambda actor: 7 in {one.silo for one in actor.parcels[-1].trainings}
    cluster.resources = {"CPU": 1.0}
    made = engine()
    message = rf"^--engine ray: {RETRIES + 1} workers died while they trained the same vehicles \(silos .*\): the actor"
    with pytest.raises(RunError, match=message) as caught:
        made.train(jobs(20))
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value.__cause__, RayError)
    assert len(cluster.actors) == RETRIES + 2


@pytest.mark.parametrize(("tells", "kind"), [(True, ValueError), (False, RayTaskError)])
def test_an_error_of_a_training_is_that_of_one_process(tells: bool, kind: type[Exception], cluster: Cluster) -> None:
    cluster.tells_causes = tells
    made = engine()
    with pytest.raises(kind, match="the learner is at fault" if tells else "in a worker"):
        made.train(jobs(at_fault=20))
    for actor in cluster.actors:
        actor.ahead = 0
    assert same(made.train(jobs()), SequentialEngine().train(jobs())), "what was broken off is not this round's"


def test_workers_that_begin_later_are_given_jobs(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_engine, "LARGEST_PARCEL", 3)
    late = False
    first: list[Reference] = []

    def ready(reference: Reference) -> bool:
        nonlocal late
        if reference.actor is not None:
            late = True  # the first parcel is answered before the others begin
            return True
        first[:] = first or [reference]
        return late or reference in first

    cluster.ready = ready
    made = engine()
    assert same(made.train(jobs()), SequentialEngine().train(jobs()))
    assert all(actor.parcels for actor in cluster.actors)
    assert not made._beginning
    assert {0, ray_engine.LOOK_S} == set(cluster.waits_s)


def test_workers_that_do_not_begin(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_engine, "BEGIN_S", 0.05)
    cluster.ready = lambda _: False
    with pytest.raises(RunError, match=r"no worker of the Ray cluster has begun: is it busy with other work\?$"):
        engine().train(jobs())

    def dies(_: Actor) -> str:
        raise RayError(f"no room\nfor {'it' * 300}")

    cluster.ready, cluster.begins = (lambda _: True), dies
    with pytest.raises(RunError, match="has begun: no room for it") as caught:
        engine().train(jobs())
    assert len(str(caught.value)) < 400

    cluster.begins = lambda _: "vnetsim 0 with torch 0"
    message = f"a worker has vnetsim 0 with torch 0, this process {versions()}; install the same on all machines."
    with pytest.raises(RunError) as caught:
        engine().train(jobs())
    assert str(caught.value) == f"--engine ray: {message}"


def test_one_that_dies_before_it_begins_is_done_without(cluster: Cluster) -> None:
    def begins(actor: Actor) -> str:
        if actor.number == 1:
            raise RayError("no room")
        return versions()

    cluster.begins = begins
    made = engine()
    assert same(made.train(jobs()), SequentialEngine().train(jobs()))
    assert [bool(actor.parcels) for actor in cluster.actors] == [True, False, True]


def test_calls_are_made_here_and_the_engine_travels_as_one_that_needs_nothing(cluster: Cluster) -> None:
    made = engine()
    constants = made.map(PROGRAMS[1], [lambda network: network.constant, lambda network: -network.constant])
    assert constants == [5.0, -5.0]
    assert not cluster.sent
    assert type(pickle.loads(pickle.dumps(made))) is SequentialEngine
