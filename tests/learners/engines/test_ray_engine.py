"""Workers of a Ray cluster train every learner to the bits of one machine, also when one of them is killed."""

from __future__ import annotations

import importlib.util
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import learners.engines.ray_engine
from learners.cdl import Cdl, CdlSettings
from learners.engines.batched import SideBySideEngine
from learners.engines.programs import Engine, LocalTraining, Program, SequentialEngine, Tensors, Trained, TrainingJob
from learners.engines.ray_engine import RayEngine, _parcels, _Shared
from learners.engines.shipping import Hold, Received, packed, unpacked
from learners.fedco import FedCo, FedCoSettings
from learners.fedefm import FedEFM, FedEFMSettings
from learners.flsimco import FLSimCo
from vnetsim.errors import InputError, RunError
from vnetsim.learning import LearnerContext, Participant, Peer
from vnetsim.runs.ray_cluster import connected

CPU = torch.device("cpu")
WORKERS = 4
needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed (pip install 'vnetsim[ray]')"
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[dict[str, Any]]:
    """Four workers on this machine, with a small object store."""
    from ray import cloudpickle  # noqa: PLC0415

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # no worker can import a test
    told = {"num_cpus": WORKERS, "include_dashboard": False, "object_store_memory": 100_000_000}
    with connected(told) as record:
        yield record


@pytest.fixture(scope="module")
def workers(cluster: dict[str, Any]) -> RayEngine:
    """An engine on the four workers; one for all tests, since each worker loads torch."""
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
    "flsimco": (FLSimCo, FLSimCo.Settings(batch=4, steps=2, knn_k=5, bank=40)),
    "fedco": (FedCo, FedCoSettings(batch=4, steps=2, knn_k=5, bank=40)),
    "cdl": (Cdl, CdlSettings(batch=4, steps=2, dropout=0.3, optimizer_state="kept")),
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

    def loss(network: torch.nn.Module, batch: Tensors, given: Tensors) -> tuple[torch.Tensor, Tensors]:
        value = (network(batch["images"]) - given["target"]).square().mean()
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
@pytest.mark.parametrize("killed", [0, 7])
def test_a_worker_killed_in_mid_round_has_its_jobs_trained_elsewhere(
    killed: int, workers: RayEngine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trigger, here = tmp_path / "kill", os.getpid()
    trigger.touch()

    def happens(silo: int) -> None:
        if silo == killed and os.getpid() != here and trigger.exists():
            trigger.unlink()
            os.kill(os.getpid(), signal.SIGKILL)

    jobs = jobs_that(happens)
    with caplog.at_level(logging.WARNING):
        there = workers.train(jobs)
    assert not trigger.exists(), "nobody was killed"
    assert [record.getMessage() for record in caplog.records] == [
        "vnetsim: a worker of the Ray cluster died; what it trained is trained again by another."
    ]
    assert all(map(same, there, SequentialEngine().train(jobs)))
    assert len(workers._workers) + len(workers._beginning) == WORKERS, "another one takes its place"


@needs_ray
@pytest.mark.slow
def test_a_visit_that_kills_every_worker_ends_the_run(workers: RayEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learners.engines.ray_engine, "RETRIES", 0)
    here = os.getpid()

    def happens(silo: int) -> None:
        if silo == 3 and os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(RunError, match=r"1 workers died while they trained the same vehicles \(silos [^)]*3"):
        workers.train(jobs_that(happens))


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
def test_devices_that_the_cluster_does_not_have(cluster: dict[str, Any]) -> None:
    assert cluster["ray"]["gpus"] == 0
    with pytest.raises(InputError, match="the cluster has no GPU"):
        RayEngine("auto", torch.device("cuda"), SequentialEngine())
    with pytest.raises(InputError, match="every worker has a device for itself; say cuda"):
        RayEngine("auto", torch.device("cuda:1"), SequentialEngine())


def test_tensors_come_out_as_they_went_in() -> None:
    generator = torch.Generator().manual_seed(0)
    tensors = {
        "plain": torch.rand(3, 4, generator=generator),
        "channels last": torch.rand(2, 3, 4, 5, generator=generator).to(memory_format=torch.channels_last),
        "transposed": torch.rand(3, 4, generator=generator).T,
        "half": torch.rand(5, generator=generator).to(torch.bfloat16),
        "number": torch.tensor(7),
        "truth": torch.tensor([True, False]),
        "none": torch.empty(0, 3),
        "part": torch.arange(10)[3:6],
    }
    found = unpacked(packed(tensors))
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor), name
    assert found["channels last"].stride() == tensors["channels last"].stride()
    found["plain"].zero_()
    assert tensors["plain"].any(), "results are copies"


@needs_ray
def test_memory_that_programs_share_travels_once() -> None:
    store: list[Any] = []

    def put(value: Any) -> int:
        store.append(value)
        return len(store) - 1

    images = torch.randint(0, 255, (50, 3, 8, 8), dtype=torch.uint8)

    def program(scale: float) -> Program:
        return Program(
            network=Slope(), steps=1, count=lambda _: 2, draw=lambda *_: {"images": images[:2] * scale},
            prepare=lambda drawn: drawn, loss=lambda *_: (torch.tensor(scale), {}),
            optimizer=lambda *_: None,  # type: ignore[arg-type, return-value]
        )  # fmt: skip

    from ray import cloudpickle  # noqa: PLC0415

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    hold = Hold(put)
    shipped = [hold.shipped(program(scale)) for scale in (0.5, 2.0)]
    assert sum(row.nbytes == images.nbytes for row in store) == 1
    assert all(len(one.code) < images.nbytes for one in shipped)
    received = Received(lambda reference: store[reference])
    for one, scale in zip(shipped, (0.5, 2.0), strict=True):
        found = received.program(one)
        assert torch.equal(found.draw(None, None)["images"], images[:2] * scale)  # type: ignore[arg-type]
        assert found.network.weight.item() == 2.0
        found.network.weight.data.zero_()  # its own memory, unlike the images
    assert not any(row.nbytes == 4 and not row.any() for row in store)


@needs_ray
def test_what_cannot_be_sent_is_told() -> None:
    lock = threading.Lock()
    broken = Program(
        network=Slope(), steps=1, count=lambda _: 2, draw=lambda *_: {"x": torch.tensor(lock.locked())},
        prepare=lambda drawn: drawn, loss=lambda *_: (torch.tensor(0.0), {}),
        optimizer=lambda *_: None,  # type: ignore[arg-type, return-value]
    )  # fmt: skip
    with pytest.raises(RunError, match=r"--engine ray: the learner's local training cannot be sent .*lock"):
        Hold(lambda value: value).shipped(broken)


def test_what_jobs_have_in_common_is_put_once() -> None:
    store: list[Any] = []
    jobs = jobs_that(lambda _: None, count=3)
    shared = _Shared(jobs, lambda value: store.append(value) or len(store) - 1)
    assert len(store) == 1
    assert {shared.part(job.base) for job in jobs} == {0}  # type: ignore[arg-type]
    assert unpacked(store[0])["weight"].item() == 1.5
    given = shared.part(jobs[2].given)
    assert not isinstance(given, int)
    assert unpacked(given)["target"].item() == 5.0


@pytest.mark.parametrize(("count", "workers"), [(1, 4), (5, 2), (50, 2), (5000, 3)])
def test_parcels_hold_every_job_once(count: int, workers: int) -> None:
    parcels = _parcels(jobs_that(lambda _: None, count=count), workers)
    assert [place for parcel in parcels for place in parcel] == list(range(count))
    assert len(parcels) >= min(count, workers)
    assert max(map(len, parcels)) <= 32


@pytest.mark.parametrize(("most", "size"), [(32, 8), (31, 7), (15, 3), (4, 1), (1, 1)])
def test_parcels_of_large_models_are_small(most: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model here takes 4 bytes."""
    monkeypatch.setattr(learners.engines.ray_engine, "PARCEL_BYTES", most)
    assert max(map(len, _parcels(jobs_that(lambda _: None, count=50), 1))) == size
