"""Cells, conditions and comparisons made up for the tests of a comparison's page."""

import dataclasses
from collections.abc import Sequence

import polars as pl

from analysis.comparison.data import CellData, ComparisonData, ConditionData, Metric, RecordedTraffic
from analysis.comparison.pairs import Columns, ComparedPair, compare_together
from vnetsim.storage.records import CellEntry, ComparisonRecord

ACCURACY = Metric(name="accuracy", label="Accuracy", unit="%", caption="On images that no vehicle holds.")
LOSS = Metric(name="loss", label="Loss", unit="", caption="")
TRAFFIC = RecordedTraffic(scenario="gaussian", seed="0", rsus="centre (0, 0), 250 m", sha256="abc")


def cell(
    arm: str, seed: int, values: Sequence[float], *, metric: str = "accuracy", condition: str = "", **more: object
) -> CellData:
    """A cell that measured ``values`` after 0, 1, ... rounds of 10 s; each round moves 1 kB in 3 s of training."""
    rows = [(round_, 10.0 * round_, metric, value) for round_, value in enumerate(values)]
    entry = CellEntry(
        folder=f"cells/{arm}-seed{seed}", arm=arm, condition=condition, learner=arm, seed=seed, traffic="traffic/a"
    )
    ends = [time_s for _, time_s, _, _ in rows[1:]]
    given: dict[str, object] = {
        "entry": entry, "traffic": TRAFFIC, "ended_by": "rounds", "rounds": len(values) - 1,
        "wanted_rounds": len(values) - 1, "simulated_s": 100.0,
        "metrics": pl.DataFrame(rows, schema=["round", "time_s", "name", "value"], orient="row"),
        "outcomes": {"committed": 3, "deadline": 1},
        "spent": pl.DataFrame({"end_s": ends, "bytes": [1e3] * len(ends), "train_s": [3.0] * len(ends)}),
        "windows": pl.DataFrame(), "series": {metric: ACCURACY}, "settings": {"rounds": 3},
    }  # fmt: skip
    return CellData(**{**given, **more})  # type: ignore[arg-type]


def condition(cells: Sequence[CellData], arms: Sequence[str] = (), *metrics: Metric, **more: object) -> ConditionData:
    """A condition of these cells, in which the accuracy is compared."""
    arms = tuple(arms or dict.fromkeys(one.entry.arm for one in cells))
    made = ConditionData(
        name="",
        arms=arms,
        looks={arm: place for place, arm in enumerate(arms)},
        seeds=tuple(dict.fromkeys(one.entry.seed for one in cells)),
        cells=tuple(cells),
        metrics=metrics or (ACCURACY,),
    )
    return dataclasses.replace(made, **more)  # type: ignore[arg-type]


def comparison(*conditions: ConditionData, against: str = "") -> ComparisonData:
    """A comparison under these conditions."""
    return ComparisonData(
        record=ComparisonRecord(vnetsim="0.1.0", traffic=[], against=against),
        arms=tuple(dict.fromkeys(arm for one in conditions for arm in one.arms)),
        seeds=tuple(dict.fromkeys(seed for one in conditions for seed in one.seeds)),
        conditions=tuple(dataclasses.replace(one, against=against) if against else one for one in conditions),
        traffics=(),
    )


def compare_pairs(data: ConditionData, metric: Metric) -> list[ComparedPair]:
    """All pairs of arms of a condition in a metric, as one family."""
    return compare_together([Columns(data.present, data.finals(metric), data.against)], "sign-flip")[0]
