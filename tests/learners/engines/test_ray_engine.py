"""Workers of a Ray cluster train every learner to the bits of one machine, also when one of them is killed."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch

from learners.cdl import Cdl, CdlSettings
from learners.engines.batched import SideBySideEngine
from learners.engines.programs import Engine, Program, SequentialEngine, Trained, TrainingJob
from learners.engines.ray_engine import RayEngine
from learners.fedco import FedCo, FedCoSettings
from learners.fedefm import FedEFM, FedEFMSettings
from learners.flsimco import FLSimCo
from vnetsim.errors import InputError
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


@needs_ray
@pytest.mark.slow
def test_devices_that_the_cluster_does_not_have(cluster: dict[str, Any]) -> None:
    assert cluster["ray"]["gpus"] == 0
    with pytest.raises(InputError, match="the cluster has no GPU"):
        RayEngine("auto", torch.device("cuda"), SequentialEngine())
    with pytest.raises(InputError, match="every worker has a device for itself; say cuda"):
        RayEngine("auto", torch.device("cuda:1"), SequentialEngine())
