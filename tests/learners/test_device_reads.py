"""A round waits for the device a few times, however many vehicles, steps and batches it has."""

from typing import Any

import pytest
from device_checks import other_device as pretended
from device_checks import registered
from device_checks.tiny_rounds import joined, tiny_learner
from learner_checks import mark_all_only

from learners.engines.programs import SequentialEngine
from vnetsim.learning.faults import train_checked

VEHICLES = 4
BESIDES = 5
"""Most waits of a round without evaluation, besides the one at the end of every call of the engine."""
READS_IN_EVALUATION = {"contrastive": 1, "steering": 1, "classification": 1}


class Counting(SequentialEngine):
    """Counts its calls."""

    calls = 0

    def train(self, jobs: Any) -> Any:
        self.calls += 1
        return super().train(jobs)


@pytest.mark.parametrize("name", mark_all_only(sorted(registered()), {"flsimco"}))
def test_a_round_and_an_evaluation_wait_a_few_times(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("learners.tasks.evaluation.PASS", 6)  # several batches
    monkeypatch.setattr("learners.tasks.evaluation.DEVICE_PASS_PIXELS", 6 * 256)
    monkeypatch.setattr("learners.tasks.steering.PASS", 6)
    with pretended.other_device() as device:
        learner = tiny_learner(name, device, steps=1)
        for round_ in range(2):  # from the second on FedEFM's copies teach, and CDL's sub-networks train
            learner._task.engine = engine = Counting()
            pretended.reads.clear()
            learner.aggregate(train_checked(learner, joined(round_, VEHICLES), {}))
            assert pretended.reads.total() <= BESIDES + engine.calls, pretended.reads
        assert pretended.reads, "an engine waits at its end"
        pretended.reads.clear()
        learner.evaluate(final=False)
        models = 1 + len({one.silo for one in joined(0, VEHICLES)}) * bool(learner._silos.trained)
        assert pretended.reads.total() <= models * READS_IN_EVALUATION[type(learner).task], pretended.reads


@pytest.mark.parametrize(
    ("name", "settings"), [("flsimco", {"clip_norm": 0.01}), ("fedefm", {"similarity": "step"})], ids=["clip", "step"]
)
def test_more_vehicles_make_a_round_wait_no_more_often(name: str, settings: dict[str, Any]) -> None:
    """Besides the transport problems of ``similarity = "step"``, which are solved within the steps."""
    found = []
    with pretended.other_device() as device:
        for count in (2, VEHICLES):
            learner = tiny_learner(name, device, steps=1, **settings)
            for round_ in range(2):
                pretended.reads.clear()
                learner.aggregate(train_checked(learner, joined(round_, count), {}))
            found.append(sum(times for place, times in pretended.reads.items() if not place.startswith("transport.py")))
    assert found[0] == found[1] > 0
