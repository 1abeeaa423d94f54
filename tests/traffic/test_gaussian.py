"""The truncated-Gaussian model against its distribution and closed forms."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict
from itertools import islice

import numpy as np
import pytest
from scipy import stats

from vnetsim.coverage.windows import CoverageEvent, Left, Window
from vnetsim.errors import InputError
from vnetsim.experiment import Experiment, TrafficSettings
from vnetsim.traffic import open_traffic
from vnetsim.traffic.gaussian import GaussianSource, truncated_normal_quantiles


def events(end_s: float, **settings: float) -> list[CoverageEvent]:
    once = TrafficSettings(repeat=False, end_s=end_s)
    experiment = Experiment(scenario="gaussian", seed=3, source=asdict(GaussianSource(**settings)), traffic=once)
    return list(open_traffic(experiment).events())


def windows(end_s: float, **settings: float) -> list[Window]:
    return [event.window for event in events(end_s, **settings) if isinstance(event, Left)]


def test_dwell_is_chord_over_speed(checked):
    played = events(2000.0)
    checked(played)
    found = [e.window for e in played if isinstance(e, Left)]
    assert len(found) > 800
    whole = [w for w in found if w.exit_cause == "crossing"]
    for window in whole:
        ends = np.array([[window.path_x_m[k], window.path_y_m[k]] for k in (0, -1)])
        np.testing.assert_allclose(np.hypot(*ends.T), 500.0, rtol=1e-12)
        chord_m = math.dist(*ends)
        assert window.exit_s - window.enter_s == pytest.approx(chord_m / window.entry_speed_mps, rel=1e-9)
        assert window.path_length_m == pytest.approx(chord_m, rel=1e-9)
        assert window.mean_speed_mps == pytest.approx(window.entry_speed_mps, rel=1e-9)
        assert window.path_time_s.size >= 3
    assert {round(w.path_length_m, 6) for w in whole} == {1000.0}
    assert all(w.exit_s == 2000.0 for w in found if w.exit_cause == "end")


def test_speeds_follow_the_truncated_gaussian():
    found = windows(20_000.0, v_min_kmh=50, v_max_kmh=60, mean_kmh=55, sd_kmh=2.5, arrivals_per_s=0.5)
    speeds_kmh = 3.6 * np.array([w.entry_speed_mps for w in found])
    assert speeds_kmh.min() >= 50
    assert speeds_kmh.max() <= 60
    # truncnorm(55, 2.5, +-2 sd) has standard deviation 2.1991
    assert speeds_kmh.std() == pytest.approx(2.1991, rel=0.03)
    density = lambda v: np.exp(-((v - 55) ** 2) / (2 * 2.5**2))  # noqa: E731
    grid = np.linspace(50, 60, 4001)
    cumulative = np.concatenate([[0], np.cumsum((density(grid[1:]) + density(grid[:-1])) / 2)])
    test = stats.kstest(speeds_kmh, lambda v: np.interp(v, grid, cumulative / cumulative[-1]))
    assert test.pvalue > 1e-3


@pytest.mark.parametrize(
    ("low", "high"), [(-1.8, 1.8), (-0.5, 6.0), (0.0, 3.6), (0.8, 4.4), (-5.6, -0.1), (-7.0, 0.0), (250.0, 900.0)]
)
def test_quantiles_are_those_of_scipy_to_the_bit(low, high):
    uniform = np.random.default_rng(1).random((600, 256))
    ours = np.concatenate([truncated_normal_quantiles(block, low, high) for block in uniform])
    np.testing.assert_array_equal(ours, stats.truncnorm.ppf(uniform.ravel(), low, high), strict=True)


def test_arrivals_are_poisson_and_directions_equally_likely():
    found = windows(20_000.0, arrivals_per_s=0.4)
    gaps = np.diff(sorted(w.enter_s for w in found))
    assert stats.kstest(gaps, "expon", args=(0, 1 / 0.4)).pvalue > 1e-3
    counts = Counter(w.entry_edge for w in found)
    assert set(counts) == {"north", "east", "south", "west"}
    assert stats.chisquare(list(counts.values())).pvalue > 1e-3


def test_the_kth_direction_comes_from_its_bearing():
    for window in windows(100.0):
        k = ("north", "east", "south", "west").index(window.entry_edge)
        bearing = math.degrees(math.atan2(window.path_x_m[0], window.path_y_m[0])) % 360
        assert bearing == pytest.approx(90.0 * k, abs=1e-6)
        if window.exit_cause == "end":
            continue
        # straight through the centre, and out on the other side
        assert (window.path_x_m[-1], window.path_y_m[-1]) == pytest.approx(
            (-window.path_x_m[0], -window.path_y_m[0]), abs=1e-6
        )


def test_repeat_goes_on_without_an_end():
    traffic = open_traffic(Experiment(scenario="gaussian", seed=3, traffic=TrafficSettings(end_s=10.0)))
    assert traffic.info.end_s is None
    assert traffic.rsus[0].range_m == 500.0
    assert list(islice(traffic.events(), 400))[-1].time_s > 200
    assert traffic.time_s > 200
    traffic.close()


def test_settings_that_make_no_distribution_are_refused():
    with pytest.raises(InputError, match=r"source\.v_min_kmh must be below source\.v_max_kmh, got 70 and 60"):
        GaussianSource(v_min_kmh=70, v_max_kmh=60)
    for sd_kmh in (0.0, float("nan")):
        with pytest.raises(InputError, match=r"source\.sd_kmh must be between"):
            open_traffic(Experiment(scenario="gaussian", source={"sd_kmh": sd_kmh}))
    with pytest.raises(InputError, match=r"source: unknown key 'v_min_mph'\. Did you mean 'v_min_kmh'\?"):
        open_traffic(Experiment(scenario="gaussian", source={"v_min_mph": 60}))
