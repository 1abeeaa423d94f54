"""How often a run evaluates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from vnetsim.learning import Aggregation, Series, Update
from vnetsim.runs.checkpoint import Checkpoint
from vnetsim.runs.round_handler import Training
from vnetsim.simulation.log import RoundSummary
from vnetsim.storage.folder import Folder


class Counting:
    """A learner that tells how often it was evaluated, and whether for the last time."""

    name = "counting"

    def __init__(self) -> None:
        self.asked: list[bool] = []
        self.weight = torch.zeros(1)

    def series(self) -> Sequence[Series]:
        return [Series(name="count", label="Count", unit="", caption="Evaluations.")]

    def aggregate(self, updates: Sequence[Update]) -> Aggregation:
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
def test_evaluations_are_as_often_as_asked(every: int, evaluated: list[int], known: bool, tmp_path: Path) -> None:
    """The untrained model and the last one always, also where the traffic ends before another round closes."""
    learner: Any = Counting()
    training = Training(learner, Checkpoint(Folder(tmp_path)), evaluate_every=every, begin_s=0.0, costs={})
    for round_ in range(7):
        final = known and round_ == 6
        summary = RoundSummary(
            round=round_, open_s=round_, close_s=round_ + 1, closed_by="deadline", invited=0, final=final
        )
        training.close_round(summary, [])
    training.measure_last()
    assert [row[:2] for row in training.metric_rows] == [(round_, round_) for round_ in evaluated]
    assert learner.asked[-1], "what is measured of the last model alone"
    assert not any(learner.asked[:-1])


def test_a_checkpoint_is_of_the_end_of_a_round_whenever_it_is_written(tmp_path: Path) -> None:
    """Ctrl-C comes while the next round is trained, by a learner that changes its model in place."""
    learner: Any = Counting()
    training = Training(learner, Checkpoint(Folder(tmp_path)), evaluate_every=1, begin_s=0.0, costs={})
    training.close_round(RoundSummary(round=0, open_s=0, close_s=1, closed_by="deadline", invited=0, final=False), [])
    learner.weight += 1
    training.save()
    progress, state = Checkpoint(Folder(tmp_path)).load()
    assert (len(progress.rounds), state["model.weight"].item()) == (1, 0)
