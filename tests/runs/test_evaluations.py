"""How often a run evaluates."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

import pytest
import torch

from vnetsim.learner_facts import CLOUD
from vnetsim.learning import Aggregation, ModelKey, Series, Update
from vnetsim.random_streams import Streams
from vnetsim.runs.checkpoint import Checkpoint
from vnetsim.runs.round_handler import Training
from vnetsim.simulation.log import Mixing, RoundSummary
from vnetsim.storage.folder import Folder


class Counting:
    """A learner that tells how often it was evaluated, and whether for the last time."""

    name = "counting"

    def __init__(self) -> None:
        self.asked: list[bool] = []
        self.weight = torch.zeros(1)

    def series(self) -> Sequence[Series]:
        return [Series(name="count", label="Count", unit="", caption="Evaluations.")]

    def aggregate(self, updates: Sequence[Update], _: str = "") -> Aggregation:
        assert not updates
        return Aggregation(weights=[], metrics={})

    def evaluate(self, *, final: bool) -> Mapping[str, float]:
        self.asked.append(final)
        return {"count": float(len(self.asked))}

    def state_dict(self) -> dict[str, Any]:
        return {"model.weight": self.weight}


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    ("every", "evaluated"), [(1, [0, 1, 2, 3, 4, 5, 6, 7]), (2, [0, 2, 4, 6, 7]), (3, [0, 3, 6, 7]), (9, [0, 7])]
)
def test_evaluations_are_as_often_as_asked(every, evaluated, known, tmp_path):
    """The untrained model and the last one always, also where the traffic ends before another round closes."""
    learner: Any = Counting()
    training = Training(
        learner, Checkpoint(Folder(tmp_path)), evaluate_every=every, begin_s=0.0, costs={}, streams=Streams(seed=0)
    )
    for round_ in range(7):
        final = known and round_ == 6
        summary = RoundSummary(
            round=round_, open_s=round_, close_s=round_ + 1, closed_by="deadline", invited=0, final=final, mixed=False
        )
        training.close_round(summary, [])
    training.measure_last()
    assert [row[:2] for row in training.metric_rows] == [(round_, round_) for round_ in evaluated]
    assert learner.asked[-1], "what is measured of the last model alone"
    assert not any(learner.asked[:-1])


class Several(Counting):
    """With a model for each aggregator, where who was measured counts."""

    def evaluate(self, *, final: bool, aggregator: str = "") -> Mapping[str, float]:
        return {"count": float(final)} if aggregator else super().evaluate(final=final)

    def keep(self, needed: Collection[ModelKey]) -> None:
        """All are kept."""

    def merge(self, sources: Mapping[ModelKey, float], into: ModelKey) -> None:
        """Nothing has values."""

    def spread(self, aggregators: Sequence[str]) -> float:
        return float(len(aggregators))


def test_below_a_cloud_no_model_is_measured_once_it_is_the_clouds(tmp_path):
    """The traffic ends after a round that was not to be evaluated, and the cloud has averaged what it made."""
    names = ("a", "b", CLOUD)
    training = Training(
        cast("Any", Several()),
        Checkpoint(Folder(tmp_path)),
        evaluate_every=2,
        begin_s=0.0,
        costs={},
        aggregators=names,
        streams=Streams(seed=0),
    )
    for name in ("a", "b"):
        summary = RoundSummary(
            round=0, open_s=0, close_s=1, closed_by="quorum", invited=0, final=False, aggregator=name, mixed=True
        )
        training.close_round(summary, [])
    model = ModelKey(CLOUD, 1)
    means = [(model, {ModelKey("a", 1): 1.0}), *((ModelKey(name, 1), {model: 1.0}) for name in ("a", "b"))]
    training.mix(Mixing(aggregator=CLOUD, round=0, time_s=2.0, means=means, final=False))
    training.measure_last()
    assert training.metric_rows[len(names) :] == [(1, 2.0, "count", 1.0, CLOUD)]


def test_a_checkpoint_is_of_the_end_of_a_round_whenever_it_is_written(tmp_path):
    """Ctrl-C comes while the next round is trained, by a learner that changes its model in place."""
    learner: Any = Counting()
    training = Training(
        learner, Checkpoint(Folder(tmp_path)), evaluate_every=1, begin_s=0.0, costs={}, streams=Streams(seed=0)
    )
    training.close_round(
        RoundSummary(round=0, open_s=0, close_s=1, closed_by="deadline", invited=0, final=False, mixed=False), []
    )
    learner.weight += 1
    training.save()
    progress, state = Checkpoint(Folder(tmp_path)).load()
    assert (len(progress.rounds), state["model.weight"].item()) == (1, 0)
