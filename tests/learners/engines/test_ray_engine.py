"""Workers of a Ray cluster train every learner to the bits of one machine, also when one of them is killed."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from learners.cdl import Cdl, CdlSettings
from learners.engines import ray_engine
from learners.engines.batched import SideBySideEngine
from learners.engines.programs import Engine, LocalTraining, Program, SequentialEngine, Tensors, Trained, TrainingJob
from learners.engines.ray_engine import RayEngine
from learners.fedco import FedCo, FedCoSettings
from learners.fedefm import FedEFM, FedEFMSettings
from learners.flsimco import FLSimCo
from vnetsim.errors import InputError, RunError
from vnetsim.learning import LearnerContext, Participant, Peer
from vnetsim.runs.ray_cluster import connected

CPU = torch.device("cpu")
WORKERS = 2
needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed (pip install 'vnetsim[ray]')"
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[dict[str, Any]]:
    """Two workers on this machine, with a small object store."""
    from ray import cloudpickle  # noqa: PLC0415

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # no worker can import a test
    options = {"num_cpus": WORKERS, "include_dashboard": False, "object_store_memory": 100_000_000}
    with connected(options) as record:
        yield record


@pytest.fixture(scope="module")
def workers(cluster: dict[str, Any]) -> RayEngine:
    """An engine on the two workers; one for all tests, since each worker loads torch."""
    assert cluster["ray"]["cpus"] == WORKERS
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    engine = RayEngine("auto", CPU, SideBySideEngine(workers=2))
    torch.set_num_threads(threads)
    return engine


def same(ours: Trained, theirs: Trained) -> bool:
    parts = [(ours.state, theirs.state), (ours.optimizer, theirs.optimizer), (ours.figures, theirs.figures)]
    return all(
        a.keys() == b.keys() and all(torch.equal(a[n], b[n]) and a[n].stride() == b[n].stride() for n in a)
        for a, b in parts
    )


class Both:
    """Trains on the workers and in this process, and compares bit for bit."""

    def __init__(self, workers: Engine) -> None:
        self.jobs = 0
        self._workers = workers
        self._here = SideBySideEngine(workers=2)

    def train(self, jobs: Sequence[TrainingJob]) -> list[Trained]:
        here, there = self._here.train(jobs), self._workers.train(jobs)
        assert len(here) == len(there) == len(jobs)
        assert all(map(same, there, here))
        self.jobs += len(jobs)
        return there

    def map(self, program: Program, calls: Sequence[Callable[..., Any]]) -> list[Any]:
        return self._workers.map(program, calls)


LEARNERS = {
    "flsimco": (FLSimCo, FLSimCo.Settings(batch=4, steps=2, bank=40)),
    "fedco": (FedCo, FedCoSettings(batch=4, steps=2, bank=40)),
    "cdl": (Cdl, CdlSettings(batch=4, steps=2, dropout=0.3, optimizer="adam-kept")),
    "fedefm": (FedEFM, FedEFMSettings(batch=4, steps=2, overseas_steps=1, local_test=12)),
}


@needs_ray
@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNERS)
def test_same_bits_as_on_one_machine(
    name: str, workers: RayEngine, context: LearnerContext, request: pytest.FixtureRequest,
    participant: Callable[..., Participant],
) -> None:  # fmt: skip
    kind, settings = LEARNERS[name]
    request.getfixturevalue("on_tiny_roads" if kind.task == "steering" else "tiny")
    learner: Any = kind.create(context, settings)
    learner._task.engine = both = Both(workers)
    for round_ in range(2):
        joined = [participant(round_, i, speed_mps=15.0 + 8 * i) for i in range(5)]
        met = [participant(round_, i, speed_mps=15.0 + 8 * i, peers=[joined[(i + 1) % 5]]) for i in range(5)]
        assert isinstance(met[0].peers[0], Peer)
        learner.aggregate(learner.train(met))
    assert both.jobs >= 10


class Slope(torch.nn.Module):
    """One parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([2.0]))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.weight * images


class Descent:
    """Plain gradient descent, with a count of its steps as state."""

    def __init__(self, parameters: Tensors, rate: Any, state: Tensors) -> None:
        self._parameters, self._rate = parameters, rate
        self._steps = state.get("steps", torch.tensor(0)).clone()

    def step(self) -> None:
        with torch.no_grad():
            for parameter in self._parameters.values():
                assert parameter.grad is not None
                parameter.sub_(self._rate * parameter.grad)
                parameter.grad = None
        self._steps += 1

    def state(self) -> dict[str, torch.Tensor]:
        return {"steps": self._steps}


def jobs_that(happens: Callable[[int], None], count: int = 12) -> list[TrainingJob]:
    """Return jobs that call ``happens`` with their silo before each step."""

    def draw(training: LocalTraining, generator: torch.Generator) -> Tensors:
        happens(training.silo)
        return {"images": torch.rand(4, generator=generator) + training.silo}

    def loss(network: torch.nn.Module, batch: Tensors, _: Tensors) -> tuple[torch.Tensor, Tensors]:
        value = (network(batch["images"]) - batch["target"]).square().mean()
        return value, {"loss": value}

    program = Program(
        network=Slope(), steps=2, count=lambda _: 4, draw=draw, prepare=lambda drawn: drawn, loss=loss,
        optimizer=Descent,  # type: ignore[arg-type]
    )  # fmt: skip
    base, target = {"weight": torch.tensor([1.5])}, torch.tensor(3.0)
    return [
        TrainingJob(
            program=program,
            training=LocalTraining(silo=i, kernel_px=0.0, blurred_fraction=1.0, learning_rate=0.01, seed=i),
            base=base,
            given={"target": target + i},
            optimizer={"steps": torch.tensor(i)},
        )
        for i in range(count)
    ]


@needs_ray
@pytest.mark.slow
def test_a_worker_killed_in_mid_round_is_started_anew(workers: RayEngine, tmp_path: Path) -> None:
    trigger, here = tmp_path / "kill", os.getpid()
    trigger.touch()

    def happens(silo: int) -> None:
        if silo == 7 and os.getpid() != here and trigger.exists():
            trigger.unlink()
            os.kill(os.getpid(), signal.SIGKILL)

    jobs = jobs_that(happens)
    there = workers.train(jobs)
    assert not trigger.exists(), "nobody was killed"
    assert all(map(same, there, SequentialEngine().train(jobs)))


@needs_ray
@pytest.mark.slow
def test_errors_of_a_visit_are_those_of_one_machine(workers: RayEngine) -> None:
    here = os.getpid()

    def at_fault(silo: int) -> None:
        if silo == 2 and os.getpid() != here:
            raise RuntimeError("the learner is at fault")

    def no_memory(silo: int) -> None:
        if silo == 2 and os.getpid() != here:
            raise torch.OutOfMemoryError("out of memory")

    with pytest.raises(RuntimeError, match=r"^the learner is at fault$"):
        workers.train(jobs_that(at_fault))
    with pytest.raises(RunError, match=r"^out of memory: the training of a single vehicle \(silo 2\)"):
        workers.train(jobs_that(no_memory))
    jobs = jobs_that(lambda _: None)  # what was broken off is not taken for this round's
    assert all(map(same, workers.train(jobs), SequentialEngine().train(jobs)))
    assert workers.train([]) == []


@needs_ray
@pytest.mark.slow
def test_what_cannot_be_sent_and_workers_of_another_version(
    workers: RayEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = threading.Lock()
    with pytest.raises(RunError, match=r"--engine ray: the learner's local training cannot be sent .*lock"):
        workers.train(jobs_that(lambda _: lock.release()))
    monkeypatch.setattr(workers, "_workers", [])
    monkeypatch.setattr(ray_engine, "versions", lambda: "vnetsim 0.0.1")
    with pytest.raises(RunError, match=r"a worker has vnetsim .*, this process vnetsim 0\.0\.1; install the same"):
        workers.train(jobs_that(lambda _: None))


@needs_ray
@pytest.mark.slow
def test_devices_that_the_cluster_does_not_have(cluster: dict[str, Any]) -> None:
    assert cluster["ray"]["gpus"] == 0
    with pytest.raises(InputError, match="the cluster has no GPU"):
        RayEngine("auto", torch.device("cuda"), SequentialEngine())
    with pytest.raises(InputError, match="every worker has a device for itself; say cuda"):
        RayEngine("auto", torch.device("cuda:1"), SequentialEngine())
