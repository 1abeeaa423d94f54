"""Speeds, dwell times and vehicles in coverage."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from analysis.coverage_statistics import in_coverage, with_chords
from analysis.formatting import clean, count, number, percent, plural, quantity
from analysis.loading import RunData
from analysis.plots.time_axis import time_axis
from analysis.style import (
    BLACK,
    BLUE,
    CYCLE,
    FULL_IN,
    HALF_IN,
    ORANGE,
    VERMILION,
    Panel,
    axes,
    histogram,
    legend,
    to_svg,
)
from analysis.truncated_gaussian import BOOTSTRAP_SIZE, BOOTSTRAPS, SpeedFit, fit_truncated_gaussian
from vnetsim.random_streams import Streams

NO_TRAFFIC = "no vehicle entered coverage"
_MAX_POINTS = 1500
_MAX_CURVES = 6


def _declared_bounds_kmh(run: RunData) -> tuple[float, float] | None:
    """Return the truncation the traffic was made with, when it was made by the truncated-Gaussian model."""
    if run.manifest["traffic"].get("kind") != "gaussian":
        return None
    settings = run.experiment.get("gaussian", {})
    low, high = settings.get("v_min_kmh"), settings.get("v_max_kmh")
    return (float(low), float(high)) if low is not None and high is not None and low < high else None


def _fit_words(fit: SpeedFit | None, declared: bool) -> str:
    if fit is None:
        return "Too few different speeds to fit a distribution."
    bounds = f"{number(fit.low)}\u2013{number(fit.high)} km/h ({'declared' if declared else 'observed'})"
    if not fit.is_gaussian:
        return (
            f"No truncated Gaussian fits: within {bounds} the speeds spread wider than any of them, "
            "as they do where some vehicles queue and others pass."
        )
    least = 1 / (BOOTSTRAPS + 1)
    p = f"p < {number(2 * least, 1)}" if fit.p_value <= 1.5 * least else f"p = {number(fit.p_value, 2)}"
    if fit.p_value >= 0.05:
        verdict = "the fit is not rejected"
    elif fit.ks < 0.05:
        verdict = "a small but significant deviation"
    else:
        verdict = "the fit is poor: these speeds do not follow a truncated Gaussian"
    size = "" if fit.n <= BOOTSTRAP_SIZE else f" of {BOOTSTRAP_SIZE} speeds each"
    return (
        f"Truncated Gaussian by maximum likelihood: mean {number(fit.mean)} km/h, sd {number(fit.sd)} km/h before "
        f"truncation to {bounds}. Kolmogorov\u2013Smirnov distance {number(fit.ks, 2)}, {p} "
        f"(parametric bootstrap, {BOOTSTRAPS} samples{size}, each fitted again): {verdict}."
    )


def speed_panel(run: RunData) -> Panel:
    """Draw the histogram of entry speeds with the fitted truncated Gaussian."""
    title = "Speed at entry"
    crossing = run.windows.filter(run.windows["entry_cause"] == "crossing")
    speeds = crossing["entry_speed_mps"].drop_nulls().to_numpy() * 3.6
    speeds = speeds[np.isfinite(speeds)]
    left_out = run.windows.height - len(speeds)
    if len(speeds) == 0:
        why = NO_TRAFFIC if run.windows.is_empty() else "no vehicle entered by crossing the rim"
        return Panel(name="speeds", title=title, caption=f"Not drawn: {why}.")
    declared = _declared_bounds_kmh(run)
    rng = Streams(seed=int(run.manifest["seed"])).generator("analysis", "speed-fit")
    fit = fit_truncated_gaussian(speeds, rng, declared)
    figure = Figure((HALF_IN, 2.9))
    ax = axes(figure, top=0.34)
    low, high = (float(speeds.min()), float(speeds.max())) if declared is None else declared
    if high - low < 1e-6:
        low, high = low - 1, high + 1
    bins = int(np.clip(np.sqrt(len(speeds)), 8, 36))
    histogram(ax, speeds, np.linspace(low, high, bins + 1), "windows")
    if fit is not None and fit.is_gaussian:
        grid = np.linspace(fit.low, fit.high, 200)
        expected = fit.density(grid) * len(speeds) * (high - low) / bins
        ax.plot(grid, expected, color=VERMILION, label="fitted truncated Gaussian")
    ax.set(xlabel="speed at entry (km/h)", ylabel="windows")
    legend(ax)
    rest = f" {plural(left_out, 'window')} that began inside the disc not counted." if left_out else ""
    caption = f"n = {count(len(speeds))}, median {quantity(float(np.median(speeds)), 'km/h')}."
    return Panel(
        name="speeds",
        title=title,
        caption=f"{caption}{rest} {_fit_words(fit, declared is not None)}",
        svg=to_svg(figure, "speeds"),
    )


def dwell_panel(run: RunData) -> Panel:
    """Draw dwell times beside the time that the chord takes at entry speed."""
    title = "Dwell time against chord over entry speed"
    crossed = with_chords(run.windows)
    if crossed.is_empty():
        why = NO_TRAFFIC if run.windows.is_empty() else "no vehicle crossed the disc from rim to rim"
        return Panel(name="dwell", title=title, caption=f"Not drawn: {why}.", wide=True)
    dwell, ideal = crossed["dwell_s"].to_numpy(), crossed["chord_time_s"].to_numpy()
    figure = Figure((FULL_IN, 2.9))
    left = axes(figure, right=FULL_IN / 2 + 0.1, top=0.34)
    right = axes(figure, left=FULL_IN / 2 + 0.62, top=0.34)
    top = float(np.percentile(np.concatenate([dwell, ideal]), 99.0)) * 1.02
    bins = np.linspace(0, top, 33)
    histogram(left, dwell, bins, "dwell time")
    ideal_counts = np.histogram(ideal, bins)[0]
    left.stairs(ideal_counts, bins, color=VERMILION, linewidth=1.6, label="chord / entry speed")
    left.set_ylim(0, max(left.get_ylim()[1], 1.06 * ideal_counts.max()))
    left.set(xlabel="time (s)", ylabel="windows", xlim=(0, top))
    legend(left)
    low, high = min(dwell.min(), ideal.min()) * 0.9, max(dwell.max(), ideal.max()) * 1.1
    right.plot([low, high], [low, high], color=BLACK, linewidth=1, linestyle=(0, (4, 3)), label="equal")
    right.plot(
        ideal, dwell, "o", markersize=3, markeredgewidth=0, color=BLUE, alpha=0.45, rasterized=len(dwell) > _MAX_POINTS
    )
    right.set(xlabel="chord / entry speed (s)", ylabel="dwell time (s)", xlim=(low, high), ylim=(low, high))
    if high / low > 12:
        right.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
        ticks = [m * 10.0**k for k in range(-4, 9) for m in (1, 2, 5) if low <= m * 10.0**k <= high]
        for axis in (right.xaxis, right.yaxis):
            axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
            axis.set_ticks([], minor=True)
    legend(right)
    ratio = dwell / ideal
    outside = int((np.maximum(dwell, ideal) > top).sum())
    beyond = f" {plural(outside, 'window')} beyond {number(top, 2)} s in the scatter only." if outside else ""
    caption = (
        f"n = {count(len(dwell))} windows crossed from rim to rim. "
        f"Median dwell {quantity(float(np.median(dwell)), 's')}, "
        f"chord over entry speed {quantity(float(np.median(ideal)), 's')}; the median vehicle stays "
        f"{number(float(np.median(ratio)), 3)} times as long as at constant speed on a straight line, and "
        f"{percent(float((ratio > 1.5).mean()), 0)} stay more than 1.5 times as long.{beyond}"
    )
    return Panel(name="dwell", title=title, caption=caption, svg=to_svg(figure, "dwell"), wide=True)


def occupancy_panel(run: RunData) -> Panel:
    """Draw how many vehicles each RSU covers over time."""
    title = "Vehicles in coverage"
    windows = run.windows
    if windows.is_empty():
        return Panel(name="occupancy", title=title, caption=f"Not drawn: {NO_TRAFFIC}.", wide=True)
    begin = float(min(run.manifest["traffic"].get("begin_s") or 0.0, windows["enter_s"].min()))  # type: ignore[type-var, arg-type]
    end = float(max(float(run.manifest.get("time_s") or 0.0), windows["exit_s"].max()))  # type: ignore[type-var, arg-type]
    axis = time_axis(end - begin)
    by_rsu = dict(windows["rsu_id"].value_counts(sort=True).iter_rows())
    chosen = [rsu.id for rsu in run.rsus if rsu.id in by_rsu]
    if len(chosen) > _MAX_CURVES:
        chosen = sorted(chosen, key=lambda name: -by_rsu[name])[:_MAX_CURVES]
    figure = Figure((FULL_IN, 2.4))
    ax = axes(figure, top=0.34 if len(chosen) > 1 else 0.12)
    words = []
    for colour, rsu_id in zip(CYCLE, chosen, strict=False):
        own = windows.filter(windows["rsu_id"] == rsu_id)
        curve = in_coverage(own["enter_s"].to_numpy(), own["exit_s"].to_numpy())
        time = np.concatenate([[begin], curve.time_s, [end]]) / axis.seconds
        value = np.concatenate([[0], curve.value, [0]])
        ax.step(time, value, where="post", color=colour, linewidth=1.1, label=clean(rsu_id, 24))
        if len(chosen) == 1:
            ax.fill_between(time, value, step="post", color=colour, alpha=0.18, linewidth=0)
        mean = number(curve.mean(begin, end), 3)
        words.append(f"{clean(rsu_id, 24)}: at most {count(curve.peak)}, {mean} on average")
    ax.set(xlabel=axis.label, ylabel="vehicles", xlim=(begin / axis.seconds, end / axis.seconds))
    ax.set_ylim(bottom=0)
    if len(chosen) > 1:
        legend(ax, 6)
    silent = [clean(rsu.id, 24) for rsu in run.rsus if rsu.id not in by_rsu]
    caption = "; ".join(words) + "."
    if len(by_rsu) > len(chosen):
        caption += f" The {len(chosen)} RSUs with most windows of {count(len(by_rsu))}."
    if silent:
        names = ", ".join(silent[:5]) + (" and others" if len(silent) > 5 else "")
        caption += f" Without any vehicle: {names}."
    return Panel(name="occupancy", title=title, caption=caption, svg=to_svg(figure, "occupancy"), wide=True)


def blur_panel(run: RunData) -> Panel:
    """Draw the blur levels, and how level and thumbnail kernel follow from speed."""
    title = "Blur level, and blur against speed"
    windows = run.windows.filter(run.windows["entry_speed_mps"].is_finite())
    if windows.is_empty():
        return Panel(name="blur", title=title, caption=f"Not drawn: {NO_TRAFFIC}.", wide=True)
    level = windows["level_px"].to_numpy()
    speed = windows["entry_speed_mps"].to_numpy()
    px, camera = run.image_px, run.camera
    figure = Figure((FULL_IN, 2.9))
    left = axes(figure, right=FULL_IN / 2 + 0.1, top=0.34)
    bins = int(np.clip(np.sqrt(len(level)), 8, 36))
    low, high = float(level.min()), float(level.max())
    histogram(left, level, np.linspace(low, high if high > low else low + 1, bins + 1), "")
    left.set(xlabel="blur level on the sensor (px)", ylabel="windows")

    right = axes(figure, left=FULL_IN / 2 + 0.62, right=0.62, top=0.34)
    fastest = max(float(speed.max()) * 1.08, 10.0)
    right.plot([0, fastest * 3.6], [0, camera.level_px(fastest)], color=BLUE, label="level, sensor")
    kernel = right.twinx()
    kernel.plot([0, fastest * 3.6], [0, camera.kernel_px(fastest, px)], color=ORANGE, linestyle=(0, (5, 2)))
    right.plot([], [], color=ORANGE, linestyle=(0, (5, 2)), label=f"kernel, {px} px image")
    quartiles = np.percentile(speed, [25, 50, 75])
    right.plot(quartiles * 3.6, [camera.level_px(v) for v in quartiles], "o", color=BLACK, markersize=4)
    right.plot([], [], "o", color=BLACK, markersize=4, label="quartiles")
    right.set(xlabel="speed (km/h)", ylabel="level (px)", xlim=(0, fastest * 3.6), ylim=(0, None))
    # the two lines would coincide on proportional scales: leave room above the dashed one
    kernel.set(ylabel=f"kernel (px of {px})", ylim=(0, camera.kernel_px(fastest, px) * 1.5))
    kernel.spines["right"].set_visible(True)
    kernel.grid(visible=False)
    legend(right, 3)
    one_px = camera.scene_width_m / (px * camera.exposure_s)
    threshold = float(run.experiment.get("blur", {}).get("threshold_kmh", 0.0))
    caption = (
        f"n = {count(len(level))}. Median level {quantity(float(np.median(level)), 'px')} on the sensor "
        f"({number(low)} to {quantity(high, 'px')}); at the median speed the kernel in a {px} px image "
        f"is {quantity(camera.kernel_px(float(quartiles[1]), px), 'px')} long. A kernel of up to 1 px, "
        f"below {quantity(one_px * 3.6, 'km/h')}, leaves an image unchanged "
        f"({percent(float((speed <= one_px).mean()), 0)} of the windows)."
    )
    if run.learning and threshold > 0:
        caption += f" By the settings only vehicles above {quantity(threshold, 'km/h')} blur their images."
    return Panel(name="blur", title=title, caption=caption, svg=to_svg(figure, "blur"), wide=True)
