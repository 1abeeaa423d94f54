"""Plots of several RSUs: RSUs per vehicle, gaps and overlaps, updates and models by RSU, handovers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.ticker import MaxNLocator, PercentFormatter

from analysis.formatting import NONE, count, number, percent, plural, quantity, sentence_case, shortened
from analysis.loading import WINDOW_KEY, RunData
from analysis.plots.place import map_axes
from analysis.statistics.windows import merged_windows
from analysis.style import (
    BLACK,
    BLUE,
    CYCLE,
    FULL_IN,
    GREY,
    HALF_IN,
    OUTCOMES,
    PALE_BLUE,
    VIRIDIS,
    Drawn,
    axes,
    drawing,
    legend,
    panel,
    stacked_rows,
    time_axis,
)
from vnetsim.learner_facts import CLOUD

_MOST_MET = 12
_MOST_COLOURS = len(CYCLE) - 1
"""Most lines that differ in colour; the last colour of the cycle, black, is the cloud's."""


def successions(windows: pl.DataFrame) -> pl.DataFrame:
    """Return a row per two consecutive windows of a vehicle at two RSUs, in order of vehicle and entry.

    Columns: ``vehicle_id``; ``rsu_id``; ``next_rsu_id``; ``gap_s``, the time (s) without coverage between the windows,
    negative if they overlap.
    """
    mine = pl.col("vehicle_id") == pl.col("vehicle_id").shift(-1)
    return (
        windows.select(*WINDOW_KEY, "exit_s")
        .sort("vehicle_id", "enter_s", maintain_order=True)
        .with_columns(next_rsu_id=pl.col("rsu_id").shift(-1), gap_s=pl.col("enter_s").shift(-1) - pl.col("exit_s"))
        .filter(mine & (pl.col("rsu_id") != pl.col("next_rsu_id")))
        .select("vehicle_id", "rsu_id", "next_rsu_id", "gap_s")
    )


def multiplicity(windows: pl.DataFrame) -> float:
    """Return how many RSUs cover a covered vehicle, mean over vehicles and time; 0 without coverage."""
    held, covered = (float((found["exit_s"] - found["enter_s"]).sum()) for found in (windows, merged_windows(windows)))
    return held / covered if covered else 0.0


@panel("rsus-met", "RSUs that a vehicle meets")
def met_panel(run: RunData) -> Drawn:
    """Draw the share of vehicles by the number of RSUs whose coverage they entered; no figure without windows."""
    if run.windows.is_empty():
        return None, "Not drawn: no coverage window was recorded."
    met = run.windows.group_by("vehicle_id").agg(pl.col("rsu_id").n_unique())["rsu_id"].to_numpy()
    most = min(int(met.max()), _MOST_MET)
    shares = np.bincount(np.minimum(met, most), minlength=most + 1)[1:] / len(met)
    figure, ax = drawing(HALF_IN, 2.4)
    ax.bar(range(1, most + 1), shares, color=PALE_BLUE, width=0.9)
    labels = [str(n) if n < most or int(met.max()) == most else f"{most}+" for n in range(1, most + 1)]
    ax.set_xticks(range(1, most + 1), labels)
    ax.yaxis.set_major_formatter(PercentFormatter(1.0))
    ax.grid(visible=False, axis="x")
    ax.set(xlabel="RSUs met", ylabel="share of vehicles")
    several = float((met > 1).mean())
    return figure, (
        f"{percent(several, 0)} of {plural(len(met), 'vehicle')} met two RSUs or more.\nThe median is "
        f"{number(float(np.median(met)))}. While it is covered, a vehicle is in {number(multiplicity(run.windows))} "
        "discs in the mean over time."
    )


@panel("successions", "From one RSU to the next")
def succession_panel(run: RunData) -> Drawn:
    """Draw the share of ``successions`` up to each gap (s), negative where discs overlap; no figure without any."""
    gaps_s = np.sort(successions(run.windows)["gap_s"].to_numpy())
    if not len(gaps_s):
        return None, "Not drawn: no vehicle came from one RSU to another."
    figure, ax = drawing(HALF_IN, 2.4)
    low, high = (float(np.percentile(gaps_s, at)) for at in (1, 97))
    ax.step(gaps_s, 100 * np.arange(1, len(gaps_s) + 1) / len(gaps_s), where="post", color=BLUE)
    ax.axvline(0.0, color=GREY, linewidth=1)
    ax.set(xlim=(min(low, -1.0), max(high, 1.0)), ylim=(0, 102))
    ax.set(xlabel="gap between the discs (s), below 0 in both", ylabel="successions up to this gap (%)")
    overlap, bridged = float((gaps_s < 0).mean()), float((gaps_s <= 30).mean())
    words = (
        f"{percent(bridged, 0)} of {count(len(gaps_s))} successions leave no gap, or one of 30 s at most.\nIn "
        f"{percent(overlap, 0)} the discs overlap"
    )
    if overlap > 0:
        words += f", by {quantity(-float(np.median(gaps_s[gaps_s < 0])), 's')} in the median"
    if overlap < 1:
        words += f"; other gaps have a median of {quantity(float(np.median(gaps_s[gaps_s >= 0])), 's')}"
    return figure, f"{words}."


@panel("commits", "Updates by RSU", wide=True)
def commits_panel(run: RunData) -> Drawn:
    """Draw on the map how many committed updates were uploaded to each RSU; no figure if nothing committed."""
    committed = run.participations.filter(outcome="committed")
    if committed.is_empty():
        return None, "Not drawn: nobody committed."
    uploaded = committed.select(pl.coalesce("upload_rsu_id", "rsu_id"))["upload_rsu_id"]
    counts = dict(uploaded.value_counts().iter_rows())
    figure, ax = map_axes(run, FULL_IN)
    colour = Normalize(0, max(counts.values()))
    order = sorted(run.rsus, key=lambda rsu: counts.get(rsu.id, 0))
    size = 110 if len(run.rsus) <= 12 else 48
    ax.scatter(
        [rsu.x_m for rsu in order], [rsu.y_m for rsu in order], c=[counts.get(rsu.id, 0) for rsu in order],
        s=size, norm=colour, cmap=VIRIDIS, edgecolors="white", linewidths=0.8, zorder=5,
    )  # fmt: skip
    committed_by_rsu = ScalarMappable(colour, VIRIDIS)
    ticks = MaxNLocator(integer=True)
    bar = figure.colorbar(committed_by_rsu, ax=ax, label="updates committed", fraction=0.03, pad=0.01, ticks=ticks)
    bar.ax.grid(visible=False)
    silent = sum(rsu.id not in counts for rsu in run.rsus)
    best = max(counts, key=lambda name: (counts[name], name))
    words = plural(committed.height, "update")
    if (trainings := committed.n_unique(["vehicle_id", "start_s"])) < committed.height:
        words += (
            f" of {plural(trainings, 'training')} (handover.policy = multi: one counts at each RSU that it reaches)"
        )
    words += f", most of them, {counts[best]}, through RSU {shortened(best, 30)}"
    return figure, f"{words}; {silent} of {len(run.rsus)} RSUs had none." if silent else f"{words}."


@panel("models-apart", "The RSUs' models over time", wide=True)
def apart_panel(run: RunData) -> Drawn:
    """Draw a result (in % if possible) of RSUs' and cloud's models, and their spread; None if no RSU's was measured."""
    series = sorted((one for one in run.manifest.series if one.result), key=lambda one: one.unit != "%")
    rows = run.measured.filter(pl.col("value").is_finite()).sort("time_s", maintain_order=True)
    known = set(rows.filter(pl.col("aggregator").is_in([rsu.id for rsu in run.rsus]))["name"])
    series = [one for one in series if one.name in known]
    if not series:
        return None, "Not drawn: no model of an RSU was measured."
    shown, factor = series[0], 100.0 if series[0].unit == "%" else 1.0
    rows, apart = rows.filter(name=shown.name), rows.filter(name="spread")
    times = time_axis(float(rows["time_s"].max() - rows["time_s"].min()), float(rows["time_s"].min()))  # type: ignore[operator,arg-type]
    figure, ax = drawing(FULL_IN, 4.4, bottom=1.75, top=0.35)
    below = axes(figure, top=2.85)
    below.sharex(ax)
    ax.tick_params(labelbottom=False)
    lines = {name: of for (name,), of in rows.group_by("aggregator", maintain_order=True) if name != CLOUD}
    few = len(lines) <= _MOST_COLOURS
    for place, (name, of) in enumerate(lines.items()):
        look = {"color": CYCLE[place], "label": shortened(str(name), 16)} if few else {"color": PALE_BLUE, "alpha": 0.6}
        ax.plot(times.of(of["time_s"].to_numpy()), factor * of["value"].to_numpy(), linewidth=1.2, **look)
    if not (cloud := rows.filter(aggregator=CLOUD)).is_empty():
        points = times.of(cloud["time_s"].to_numpy()), factor * cloud["value"].to_numpy()
        ax.plot(*points, color=BLACK, linewidth=2, label="cloud")
    label = sentence_case(shown.label or shown.name)
    ax.set_ylabel(f"{label} ({shown.unit})" if shown.unit else label)
    if few or not cloud.is_empty():
        legend(ax, 7)
    below.plot(times.of(apart["time_s"].to_numpy()), 100 * apart["value"].to_numpy(), color=BLUE)
    below.set(xlabel=times.label, ylabel="spread of models (%)", ylim=(0, None))
    last = {str(name): float(of["value"][-1]) for name, of in lines.items()}

    def words(pick: Callable[..., str]) -> str:
        """Return in words the value and RSU that ``pick`` (min or max) takes from the models' last values."""
        name = pick(last, key=last.__getitem__)
        value = percent(last[name]) if shown.unit == "%" else quantity(last[name], shown.unit)
        return f"{value} (RSU {shortened(name, 30)})"

    which = ", each right before it is averaged, and of the cloud's (black)" if len(cloud) else ""
    from_to = [percent(float(apart["value"][place])) for place in (0, -1)] if len(apart) else [NONE, NONE]
    return figure, (
        f"{label} of the models of {plural(len(last), 'RSU')}{which}. At the end from {words(min)} to {words(max)}. "
        f"Below, how far these models are from their mean, relative to its length: {from_to[0]} at first, {from_to[1]} "
        "at the end."
    )


@panel("handovers", "Handovers by what the vehicle did")
def handover_panel(run: RunData) -> Drawn:
    """Draw the number of handovers by stage of the participation and by its outcome; no figure without handovers."""
    found = run.handovers
    if found.is_empty():
        return None, "Not drawn: nobody was handed over while it took part."
    stages = [stage for stage in ("download", "training", "outside", "upload") if stage in set(found["stage"])]
    figure, ax = drawing(HALF_IN, 0.9 + 0.42 * len(stages), left=0.9, top=0.55)
    fates = set(found["fate"])
    layers = (
        (np.array([found.filter(stage=stage, fate=fate).height for stage in stages]), *look)
        for fate, look in OUTCOMES.items()
        if fate in fates
    )
    stacked_rows(ax, stages, layers)
    ax.set_xlabel("handovers")
    legend(ax, columns=3)
    once = found.unique("participation")
    committed = float((once["fate"] == "committed").to_numpy().mean())
    words = (
        f"{plural(found.height, 'change')} of the RSU in {plural(once.height, 'participation')}, of "
        f"which {percent(committed, 0)} committed.\n"
    )
    rest = []
    if len(gaps_s := found["gap_s"].filter(found["gap_s"] > 0).to_numpy()):
        rest.append(f"{count(len(gaps_s))} with a gap, of {quantity(float(np.median(gaps_s)), 's')} in the median.")
    waited_s = float(found["backhaul_s"].fill_null(0.0).sum())
    rest.append(f"New RSUs waited {quantity(waited_s, 's')} for the backhaul in all.")
    return figure, words + " ".join(rest)
