"""Measures by arm and condition: cost and waste of uploads, spread of commits, time to a target."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from analysis.comparison.bias import spread_over_directions, spread_over_speeds
from analysis.comparison.data import CellData, ConditionData, Metric
from analysis.comparison.tables import spread
from analysis.comparison.verdicts import Family, pairs_in, verdict_against
from analysis.formatting import NONE, Table, clean, count, duration, number, quantity, shortened, si
from analysis.loading import RunData
from analysis.report.possible import long_enough, needed, vehicles
from analysis.statistics.participation import LEAST_ROUNDS
from analysis.statistics.windows import dwell
from vnetsim.storage.tables import COMPARISON_MEASURES, COMPARISON_TARGETS, frame


def _metric(name: str, label: str, unit: str, better: int, caption: str = "") -> Metric:
    """Return a metric with one value per run; ``better`` is 1 if higher is better, -1 if lower is, 0 for neither."""
    return Metric(name=name, label=label, unit=unit, caption=caption, known=better)


MEASURES = (
    _metric("commits", "Commits", "", 1),
    _metric("commits_per_h", "Commits per hour", "1/h", 1),
    _metric("bytes_per_commit", "Data per commit", "B", -1),
    _metric("wasted_train_s", "Wasted training time", "s", -1),
    _metric("wasted_train_share", "Wasted share of training time", "%", -1),
    _metric("wasted_bytes", "Wasted data", "B", -1),
    _metric("wasted_bytes_share", "Wasted share of data", "%", -1),
    _metric("gini", "Gini over silos", "", 0),
    _metric("contested_share", "Contested invitations", "%", 0),
    _metric("fluctuation", "Fluctuation of the loss", "", -1),
)
"""Measures from ``run_measures``, in the order of the page. Gini and contention are neither good nor bad."""

EQUAL_COMMITS = "equal_commits"
FLUCTUATION = MEASURES[-1]
COMPARED = tuple(one for one in MEASURES if one.name in {"commits_per_h", "bytes_per_commit", "wasted_train_share"})
TIMING_METRICS = (
    _metric("commits", "Commits", "", 0, "Participations that committed."),
    _metric("committed_vehicles", "Vehicles that committed", "%", 0, "Share of the vehicles; at least once."),
    _metric(
        "committed_invited", "Invitations that committed", "%", 0, "Share of the invitations that ended in a commit."
    ),
    _metric("covered", "Vehicles covered", "", 0, "Vehicles with a coverage window."),
    _metric(
        "long_enough", "Vehicles covered long enough", "%", 0,
        "Share of the vehicles with a window longer than a participation takes in the median of that run; one that "
        "the end cut off counts as longer (Kaplan\u2013Meier).",
    ),
    _metric("dwell_s", "Median dwell", "s", 0, "Windows that the end cut off count as longer (Kaplan\u2013Meier)."),
    _metric(
        "needed_s", "Time of a participation", "s", 0,
        "Median from invitation to the end of the upload; those that were cut count as longer "
        "(Kaplan\u2013Meier). No value where more than half of them were cut.",
    ),
    _metric("moved_bytes", "Data moved", "B", 0, "Over radio links and between vehicles, whatever became of it."),
)  # fmt: skip
"""Metrics of runs without training, the one that leads the page first. None has a preferred direction."""

_TRIPS = (
    _metric(
        "trips_arrived", "Vehicles arrived", "", 0,
        "By SUMO's tripinfo, in the whole recorded traffic; means of trips are over these. The same for all arms.",
    ),
    _metric("trip_duration_s", "Mean trip duration", "s", 0),
    _metric("trip_waiting_s", "Mean waiting time", "s", 0),
    _metric("trip_time_loss_s", "Mean time loss", "s", 0),
    _metric("trip_depart_delay_s", "Mean departure delay", "s", 0),
)  # fmt: skip
_EDGE_SPEED = "edge_speed_kmh."
_OF_EDGES = "By SUMO's edgeData, over the time that vehicles spent on edges; the same for all arms."


def traffic_metrics(outcomes: Mapping[str, float]) -> list[Metric]:
    """Return a metric, without preferred direction, for each outcome of trips or edges in a traffic's ``outcomes``."""
    speeds = [
        _metric(name, f"Mean speed, {clean(name.removeprefix(_EDGE_SPEED), 40)}", "km/h", 0, _OF_EDGES)
        for name in outcomes
        if name.startswith(_EDGE_SPEED)
    ]
    return [*(one for one in _TRIPS if one.name in outcomes), *speeds]


def timing_figures(run: RunData) -> dict[str, float | None]:
    """Return the values of ``TIMING_METRICS`` by name, as recorded; None, NaN or infinite if unknown."""
    takes = needed(run)
    needed_s = math.nan if takes is None else takes.median_s
    one_each = vehicles(run)
    invited = run.invited.height
    commits = run.invited.filter(outcome="committed").height
    return {
        "covered": one_each.height,
        "long_enough": None if takes is None else long_enough(one_each, needed_s),
        "committed_vehicles": one_each.select(pl.col("committed").mean().cast(pl.Float64)).item(),
        "commits": commits,
        "committed_invited": commits / invited if invited else None,
        "dwell_s": dwell(run.windows).median_s,
        "needed_s": needed_s,
        "moved_bytes": float(run.spent["bytes"].sum()),
    }


def with_equal_commits(data: ConditionData) -> ConditionData:
    """Return the condition with a second metric: its main metric at equal numbers of committed updates.

    At each seed it is taken at N updates, linear between two evaluations; N is the smallest number of any arm at that
    seed. If several evaluations are averaged, so are their numbers of updates. The condition is returned unchanged
    without a main metric, if a run did not end by traffic or time, or if all arms have equally many updates.
    """
    main = data.main
    if main is None or any(cell.ended_by not in ("traffic", "time") for cell in data.cells):
        return data
    cells, differ = [], False
    for seed in data.seeds:
        curves = [(cell, _curve_over_commits(cell, main)) for cell in data.cells if cell.entry.seed == seed]
        ends = {float(curve["commits"][-1]) for _, curve in curves if curve.height}
        differ |= len(ends) > 1
        for cell, curve in curves:
            value = {EQUAL_COMMITS: float(np.interp(min(ends), *curve))} if curve.height else {}
            cells.append(dataclasses.replace(cell, figures={**cell.figures, **value}))
    if not differ:
        return data
    label = f"{main.label} at equal committed updates"
    caption = "At the number of committed updates that the arm with the fewest has at that seed."
    metric = Metric(name=EQUAL_COMMITS, label=label, unit=main.unit, caption=caption, known=main.better)
    others = [one for one in data.metrics if one is not main]
    return dataclasses.replace(data, cells=tuple(cells), metrics=(main, metric, *others))


def _curve_over_commits(cell: CellData, metric: Metric) -> pl.DataFrame:
    """Return ``commits`` and ``value``, rolling means over ``metric.last`` evaluations, by round; no rows if fewer."""
    rows = cell.metrics.filter(pl.col("name") == metric.name, (pl.col("round") > 0) | (metric.last == 1))
    return rows.select(pl.col("commits", "value").rolling_mean(metric.last)).drop_nulls()


def compared_measures(data: ConditionData) -> tuple[Metric, ...]:
    """Return ``COMPARED``, and ``FLUCTUATION`` if it is known and all cells minimise the same loss."""
    losses = {cell.series.get("loss", cell.entry.learner) for cell in data.cells}
    fluctuates = len(losses) == 1 and np.isfinite(data.finals(FLUCTUATION)).any()
    return (*COMPARED, FLUCTUATION) if fluctuates else COMPARED


def measure_table(data: ConditionData, families: Sequence[Family], noun: str) -> Table | None:
    """Return the table of measures by arm, with verdicts; None if no run has any. ``noun`` is the word for an arm."""
    rates = np.isfinite(data.finals(COMPARED[0])).any(axis=0).all()  # every arm has a rate
    shown = [(metric, data.finals(metric)) for metric in MEASURES if not (rates and metric.name == "commits")]
    shown = [(metric, values) for metric, values in shown if np.isfinite(values).any()]
    if not shown:
        return None
    first = data.against or data.arms[0]
    rows = []
    for place, arm in enumerate(data.present):
        cells = []
        for metric, values in shown:
            words = verdict_against(pairs_in(families, data.name, metric), first, arm, len(data.seeds))
            text = spread(values[:, place] * metric.factor)
            cells.append(f"{text}, {words}" if words in {"higher", "lower"} else text)
        rows.append((shortened(arm), *cells))
    verdicts = f" Higher, lower: resolved against {shortened(first)}, as tested below." if len(data.present) > 1 else ""
    return Table(
        title="Commits, and what was spent for nothing",
        head=(noun, *(metric.titled for metric, _ in shown)),
        rows=rows,
        note="Mean \u00b1 standard deviation over seeds. Commits are those of an hour of simulated time, or where that "
        "would be extrapolated from less than ten minutes, those of the run; data, all bytes over the air of all "
        "participations. Wasted: training time on board, and data, of participations that did not commit, those still "
        "under way at the end among them. Gini coefficient of the commits over all silos: "
        "0 if all have the same number; few commits are uneven by chance. Contested: invitations that left somebody "
        "waiting who could have been invited instead; for the others there was nothing to choose. Fluctuation: "
        "standard deviation of the training loss from round to round, its trend removed; of runs with "
        f"{LEAST_ROUNDS} rounds or more, and compared where the loss is the same function.{verdicts}",
    )


def measure_rows(data: ConditionData) -> pl.DataFrame:
    """Return rows of ``comparison_measures``: each cell's measures, and shares of updates by speed and direction."""
    rows: list[tuple[object, ...]] = []
    spreads = {}
    if any(cell.windows.height for cell in data.cells):
        spreads["commit_share_speed"] = spread_over_speeds(data), "km/h"
        spreads["commit_share_direction"] = spread_over_directions(data), ""
    for cell in data.cells:
        head = (cell.entry.arm, data.name, cell.entry.learner, cell.entry.seed)
        rows += [(*head, one.name, one.unit, "", "", cell.final(one), cell.name) for one in MEASURES]
        for name, (found, bin_unit) in spreads.items():
            updates = found.of(cell.windows)["updates"]
            values = updates.tolist() if updates.any() else [None] * len(updates)
            rows += [
                (*head, name, "%", label, bin_unit, value, cell.name)
                for label, value in zip(found.labels, values, strict=True)
            ]
    return frame(COMPARISON_MEASURES, rows)


@dataclass(frozen=True, kw_only=True, eq=False)
class Target:
    """A target: the mean final ``value`` of ``arm``, as recorded; ``reached`` has a row per cell, null if never."""

    metric: Metric
    value: float
    arm: str
    reached: pl.DataFrame


def first_reached(cell: CellData, metric: Metric, target: float) -> tuple[float | None, ...]:
    """Return rounds, simulated time (s), bytes and training time (s) until a cell met the target; four None if never.

    Resources are those of participations and exchanges that had ended by then.
    """
    values = cell.measured(metric.name)
    good = values.filter(pl.col("value") * metric.better >= target * metric.better)
    if good.is_empty():
        return (None,) * 4
    round_, time_s, _ = good.row(0)
    used = cell.spent.filter(pl.col("end_s") <= time_s).select(pl.col("bytes", "train_s").sum()).row(0)
    return (round_, time_s, *map(float, used))


def target_of(data: ConditionData) -> Target | None:
    """Return the target, the worst arm's mean final value of the main metric; None without a main metric."""
    metric = data.main
    if metric is None:
        return None
    means = np.nanmean(data.finals(metric), axis=0)
    worst = int(np.argmin(means * metric.better))
    target = float(means[worst])
    rows = [
        (arm, data.name, cell.entry.learner, cell.entry.seed, metric.name, metric.unit, target,
         *first_reached(cell, metric, target), cell.name)
        for arm in data.present
        for cell in data.of(arm)
    ]  # fmt: skip
    return Target(metric=metric, value=target, arm=data.present[worst], reached=frame(COMPARISON_TARGETS, rows))


def target_rows(target: Target, noun: str) -> Table:
    """Return the table of time and resources until each ``noun`` reached the target.

    Medians are over the seeds that reached it; dashes if none did.
    """
    metric = target.metric
    rows = []
    for (arm,), found in target.reached.group_by("arm", maintain_order=True):
        known = found.drop_nulls("round")
        head = (shortened(arm), f"{count(known.height)} of {count(found.height)}")
        if known.is_empty():
            rows.append((*head, *[NONE] * 4))
            continue
        rounds, time_s, moved, device_s = known.select(pl.median("round", "simulated_s", "bytes", "device_s")).row(0)
        rows.append((*head, f"{rounds:g}", duration(time_s), si(moved, "B"), number(device_s)))
    value = quantity(target.value * metric.factor, metric.dimension)
    side = "at least" if metric.better > 0 else "at most"
    untrained = ""
    if (target.reached["round"] == 0).any():
        untrained = " Zero rounds: the untrained model met it, and nothing was learned for it."
    return Table(
        title=f"{metric.subject}: first {side} {value}",
        head=(noun, "reached in seeds", "rounds", "simulated time", "data moved", "device-seconds"),
        rows=rows,
        note=f"The target is the mean of the worst {noun} here, {shortened(target.arm)}. Medians over the "
        "seeds that reached it, at the first measurement that did. Data and device-seconds (training time on board, "
        f"summed over vehicles) are those of participations that had ended by then, whatever their outcome.{untrained}",
    )
