"""Every setting of the truncated-Gaussian model changes what it says, by the amount it says, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, fields, replace
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from vnetsim.coverage.windows import Left, Window
from vnetsim.experiment import Experiment, TrafficSettings
from vnetsim.traffic import open_traffic
from vnetsim.traffic.gaussian import GaussianSource

ENTRY, SPEED, BEARING, LENGTH = "entry", "speed", "bearing", "length of path"
Seen = dict[str, np.ndarray[Any, Any]]
MODEL, ONCE = GaussianSource(), TrafficSettings(repeat=False, end_s=400.0)


def quantiles(speeds_kmh: np.ndarray[Any, Any], settings: GaussianSource) -> np.ndarray[Any, Any]:
    """Return which share of the truncated Gaussian lies below each speed."""
    normal = NormalDist(settings.mean_kmh, settings.sd_kmh)
    low, high = normal.cdf(settings.v_min_kmh), normal.cdf(settings.v_max_kmh)
    return (np.vectorize(normal.cdf)(speeds_kmh) - low) / (high - low)


def seen(settings: GaussianSource, timed: TrafficSettings = ONCE, count: int = 60) -> Seen:
    """Return what the windows of the first vehicles show; those that the end cuts are left out."""
    experiment = Experiment(scenario="gaussian", seed=2, source=asdict(settings), traffic=timed)
    events = open_traffic(experiment).events()
    windows: list[Window] = [event.window for event in events if isinstance(event, Left)]
    whole = [w for w in windows if w.exit_cause == "crossing"]
    assert timed.end_s is not None
    assert all(w.enter_s < timed.end_s >= w.exit_s for w in windows)
    first = sorted(whole, key=lambda w: w.enter_s)[:count]
    ends = np.array([[w.path_x_m[[0, -1]], w.path_y_m[[0, -1]]] for w in first])  # vehicle, axis, end
    along = ends[:, :, 1] - ends[:, :, 0]
    length = np.hypot(*along.T)
    heading = along / length[:, None]
    return {
        ENTRY: np.array([w.enter_s for w in first]),
        SPEED: np.array([3.6 * w.entry_speed_mps for w in first]),
        BEARING: np.degrees(np.arctan2(-heading[:, 0], -heading[:, 1])).round(6) % 360,
        LENGTH: length,
    }


GAUSSIAN: list[tuple[str, Any, set[str], Callable[[Seen, Seen], Any]]] = [
    ("v_min_kmh", 90.0, {SPEED}, lambda _, b: b[SPEED].min() >= 90),
    ("v_max_kmh", 120.0, {SPEED}, lambda _, b: b[SPEED].max() <= 120),
    ("mean_kmh", 70.0, {SPEED}, lambda a, b: b[SPEED].mean() < a[SPEED].mean() - 10),
    ("sd_kmh", 5.0, {SPEED}, lambda a, b: b[SPEED].std() < a[SPEED].std() / 3),
    ("arrivals_per_s", 1.0, {ENTRY}, lambda a, b: b[ENTRY] == pytest.approx(a[ENTRY] / 2)),
    ("end_s", 90.0, set(), lambda a, b: 0 < len(b[ENTRY]) < len(a[ENTRY])),
    ("range_m", 800.0, {LENGTH}, lambda _, b: b[LENGTH] == pytest.approx(1600.0)),
]


@pytest.mark.parametrize(("name", "value", "changes", "amounts_to"), GAUSSIAN, ids=[row[0] for row in GAUSSIAN])
def test_what_the_gaussian_model_does(
    name: str, value: Any, changes: set[str], amounts_to: Callable[[Seen, Seen], Any]
) -> None:
    """One setting leaves the draws of all others as they were, and each vehicle its place among the speeds."""
    of_model = hasattr(MODEL, name)
    settings = replace(MODEL, **{name: value}) if of_model else MODEL
    before, after = seen(MODEL), seen(settings, ONCE if of_model else replace(ONCE, **{name: value}))
    both = min(len(before[ENTRY]), len(after[ENTRY]), 25)
    first = {what: (before[what][:both], after[what][:both]) for what in before}
    assert both >= 10
    assert {what for what, (a, b) in first.items() if a != pytest.approx(b, rel=1e-9, abs=1e-6)} == changes
    assert quantiles(first[SPEED][1], settings) == pytest.approx(quantiles(first[SPEED][0], MODEL), abs=1e-6)
    if name == "end_s":
        assert amounts_to(before, after)
    else:
        a, b = ({what: pair[i] for what, pair in first.items()} for i in (0, 1))
        assert amounts_to(a, b)


def test_every_setting_is_looked_at() -> None:
    assert {one.name for one in fields(GaussianSource)} == {name for name, *_ in GAUSSIAN} - {"end_s", "range_m"}
