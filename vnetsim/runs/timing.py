"""Simulates which vehicles take part, when and with what, without training.

The times of participations depend on traffic, radio, computers, payload and work, never on weights. So all rounds can
be simulated in seconds, and trained later (``docs/how-to/timing.md``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from vnetsim.errors import InputError
from vnetsim.learning import Cost, Learner, Participant
from vnetsim.learning.faults import cost_of
from vnetsim.runs.assembly import Assembly
from vnetsim.runs.tables import MetricRow
from vnetsim.simulation.log import Mixing, RoundResult, RoundSummary

SCHEDULE = "schedule.csv"
COLUMNS = (
    "round", "base_round", "vehicle_id", "rsu_id", "silo", "images", "weight", "start_s", "end_s", "download_s",
    "train_s", "upload_s", "work_share", "speed_mps", "level_px", "aggregator", "base_aggregator",
)  # fmt: skip
"""Columns of the schedule: those of the table ``participations``, and the silo's number of images. Without training,
the weight is that of FedAvg: the silo's share of the round's images."""


def refuse_losses(assembly: Assembly) -> None:
    """Refuse (InputError) a selection policy that needs training losses or updates."""
    selection = assembly.simulation.selection
    if getattr(selection, "uses_losses", False):
        what = "updates" if getattr(selection, "figure", "") else "training losses"
        raise InputError(
            f"selection.name: '{selection.name}' chooses vehicles by their {what}; without training there "
            "are none. Choose another, or train."
        )


def refuse_losses_in_private(assembly: Assembly) -> None:
    """Refuse (InputError) a policy that needs losses or updates with ``learning.dp``: epsilon counts models alone."""
    selection, dp = assembly.simulation.selection, assembly.experiment.learning.get("dp") or {}
    if dp.get("clip") and getattr(selection, "uses_losses", False):
        raise InputError(
            f"learning.dp: '{selection.name}' chooses vehicles by what they trained, which epsilon does not count; "
            "take another selection.name, or leave learning.dp out."
        )


def schedule(participations: pl.DataFrame, rounds: pl.DataFrame, images: Mapping[int, int]) -> pl.DataFrame:
    """Return the committed participations, columns ``COLUMNS``, in the order of rows of ``rounds``, then by number.

    A recorded weight stays. A missing one is the share of its silo in the images of the round's commits; if ``images``
    (number by silo) is empty, it is 1 / their number.
    """
    order = rounds.select("aggregator", "round", closed=pl.int_range(pl.len()))
    committed = (
        participations.filter(outcome="committed")
        .join(order, on=("aggregator", "round"))
        .sort("closed", "participation")
    )
    counts = pl.col("silo").replace_strict(dict(images), default=None, return_dtype=pl.Int64)
    share = counts / counts.sum().over("closed") if images else 1 / pl.len().over("closed")
    return committed.with_columns(images=counts, weight=pl.coalesce("weight", share)).select(COLUMNS)


class Costs:
    """Payload and work of a participation by silo: ``costs`` if there are any, otherwise the learner's own."""

    def __init__(self, learner: Learner, costs: Mapping[int, Cost]) -> None:
        self._learner = learner
        self._costs = dict(costs)

    def cost(self, silo: int) -> Cost:
        """Return payload and work of a participation with the data of ``silo``; the learner is called once per silo."""
        if silo not in self._costs:
            self._costs[silo] = cost_of(self._learner, silo)
        return self._costs[silo]


class Untrained(Costs):
    """A ``RoundHandler`` that trains and measures nothing; ``costs`` by silo, empty for the learner's own."""

    metric_rows: Sequence[MetricRow] = ()
    finished = 0
    replaying = False

    def close_round(self, _: RoundSummary, participants: Sequence[Participant]) -> RoundResult:
        """Return a result without weights and losses."""
        return RoundResult(weights=[None] * len(participants), losses=[None] * len(participants))

    def mix(self, _: Mixing) -> None:
        """Average nothing."""

    def save(self) -> None:
        """Save nothing."""
