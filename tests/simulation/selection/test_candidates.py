"""What an RSU knows of a candidate: predicted windows against geometry and the record, times and figures."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vnetsim.errors import InputError
from vnetsim.experiment.traffic import Computer
from vnetsim.simulation.selection.state import SelectionState


def rim_s(x: float, y: float, u: float, v: float, radius: float) -> float:
    """Return when (x, y) + t (u, v) is ``radius`` from the origin, by the roots of the quadratic."""
    roots = np.roots([u * u + v * v, 2 * (x * u + y * v), x * x + y * y - radius**2])
    return float(max(roots.real))


@given(radius=st.floats(0, 240), bearing=st.floats(0, 6.28), heading=st.floats(0, 6.28), speed=st.floats(0.5, 60))
def test_straight_is_where_the_line_meets_the_rim(make, radius, bearing, heading, speed):
    x, y = radius * math.cos(bearing), radius * math.sin(bearing)
    u, v = speed * math.cos(heading), speed * math.sin(heading)
    rsu = make.rsu
    now = rsu.x_m + x, rsu.y_m + y
    window = make.window([(0.0, now[0] - u, now[1] - v, speed), (1.0, *now, speed)])
    candidate = make.candidate(window, 1.0)
    assert candidate.velocity_mps == pytest.approx((u, v), abs=1e-9)
    assert candidate.remaining_s("straight") == pytest.approx(rim_s(x, y, u, v, rsu.range_m), rel=1e-6)
    assert candidate.remaining_s() == candidate.remaining_s("straight")


def test_straight_at_the_rim_in_the_middle_and_for_one_that_stands(make):
    x, y, radius = make.rsu.x_m, make.rsu.y_m, make.rsu.range_m
    entering = make.window([(0.0, x - radius, y, 25.0)])
    assert make.candidate(entering, 0.0).remaining_s() == pytest.approx(2 * radius / 25)
    crossing = make.window([(0.0, x - radius, y, 25.0), (10.0, x, y, 25.0)])
    assert make.candidate(crossing, 10.0).remaining_s() == pytest.approx(radius / 25)
    leaving = make.window([(0.0, x, y, 25.0), (10.0, x + radius, y, 25.0)])
    assert make.candidate(leaving, 10.0).remaining_s() == 0.0
    standing = make.window([(0.0, x, y + 9, 0.0), (10.0, x, y + 9, 0.0)])
    assert make.candidate(standing, 10.0).remaining_s() == math.inf


def test_straight_between_points_is_from_the_last_one(make):
    x, y, radius = make.rsu.x_m, make.rsu.y_m, make.rsu.range_m
    points = [(0.0, x - radius, y, 25.0), (5.0, x - 150, y, 20.0), (10.0, x - 150, y + 50, 12.5), (99.0, x, y, 1.0)]
    window = make.window(points)
    asked = {now_s: make.candidate(window, now_s).remaining_s() for now_s in (0.0, 5.0, 7.5, 9.99, 10.0, 12.0, 7.5)}
    assert asked[5.0] == pytest.approx((150 + radius) / 20)
    # the turn is not known before its end is reached, nor is any of the way to it
    assert asked[7.5] == pytest.approx(asked[5.0] - 2.5)
    assert asked[9.99] == pytest.approx(asked[5.0] - 4.99)
    assert asked[10.0] == pytest.approx((math.sqrt(radius**2 - 150**2) - 50) / 12.5)
    assert asked[12.0] == pytest.approx(asked[10.0] - 2)


def test_oracle_is_the_recorded_exit_and_refused_where_it_is_not_known(make):
    x, y, radius = make.rsu.x_m, make.rsu.y_m, make.rsu.range_m
    window = make.window([(2.0, x - radius, y, 20.0), (5.0, x, y, 0.0), (77.5, x, y + radius, 5.0)])
    assert make.candidate(window, 5.0).remaining_s("oracle") == 72.5
    assert make.candidate(window, 80.0).remaining_s("oracle") == 0.0
    live = make.candidate(window, 5.0, whole_paths=False)
    with pytest.raises(InputError, match=r"knows the exit \(oracle\) needs traffic whose paths are known"):
        live.remaining_s("oracle")
    assert live.remaining_s("straight") == math.inf


def test_history_is_the_mean_of_the_same_approach_less_what_is_over(make, scene):
    x, y, radius = make.rsu.x_m, make.rsu.y_m, make.rsu.range_m
    dwells: dict[tuple[str, int], tuple[int, float]] = {}
    windows = {approach: make.window([(100.0, x - radius, y, 25.0)], approach=approach) for approach in (0, 1)}
    candidate = make.candidate(windows[0], 104.0, dwells=dwells)
    state = candidate._state
    assert candidate.remaining_s("history") == candidate.remaining_s("straight"), "before the first"
    for approach, length_s in ((0, 30.0), (0, 50.0), (1, 4.0)):
        state.add_window(windows[approach].vehicle, scene.window("other", 10.0, 10.0 + length_s))
    assert candidate.remaining_s("history") == 40.0 - 4.0
    assert make.candidate(windows[1], 103.0, dwells=dwells).remaining_s("history") == 1.0
    assert make.candidate(windows[1], 109.0, dwells=dwells).remaining_s("history") == 0.0
    state.add_window(windows[0].vehicle, scene.window("cut", 10.0, 11.0, exit_cause="end"))
    assert candidate.remaining_s("history") == 36.0, "a window that the end of the traffic cut off tells nothing"


@pytest.mark.parametrize(("update_s", "asked"), [(None, 1), (0.1, 3)])
def test_rates_that_never_change_are_looked_up_once_in_a_window(make, update_s, asked):
    rates_bps = iter((8e6, 4e6, 2e6))
    link = SimpleNamespace(update_s=update_s, downlink_bps=lambda _: next(rates_bps), uplink_bps=lambda _: 4e6)
    window = make.window([(0.0, 0.0, 0.0, 25.0)])
    times_s = [make.candidate(window, 0.0, link=lambda _: link).download_s for _ in range(3)]
    assert times_s == [1.0, 2.0, 4.0] if asked == 3 else [1.0] * 3


def test_times_and_what_earlier_rounds_told(make):
    x, y, radius = make.rsu.x_m, make.rsu.y_m, make.rsu.range_m
    window = make.window([(0.0, x - radius, y, 25.0)])
    fresh = make.candidate(window, 0.0)
    assert (fresh.download_s, fresh.train_s, fresh.upload_s, fresh.duration_s) == (1.0, 3.0, 4.0, 8.0)
    assert fresh.transfers == 2
    assert (fresh.loss, fresh.loss_round, fresh.commits, fresh.last_round, fresh.images) == (None, None, 0, -1, 120)
    known = make.candidate(window, 0.0, losses={7: (0.25, 3)}, commits={"v": 2}, images={})
    assert (fresh.loss_and_round, known.loss_and_round) == (None, (0.25, 3))
    assert (known.loss, known.loss_round, known.commits, known.images) == (0.25, 3, 2, None)
    assert known.level_px > 0
    with pytest.raises(AttributeError):
        known.loss = 1.0


def test_the_clouds_last_model_came_with_the_first_of_so_many_rounds():
    topology = SimpleNamespace(kind="hierarchical", edge_rounds=3)
    world: Any = SimpleNamespace(experiment=SimpleNamespace(topology=topology))
    known = SelectionState(world=world, whole_paths=True)
    assert [known.cloud_round(number) for number in range(7)] == [0, 0, 0, 3, 3, 3, 6]


def test_a_candidate_shows_what_its_participation_would_take(make):
    window = make.window([(0.0, -100.0, 0.0, 10.0), (1.0, -90.0, 0.0, 10.0)])
    assert make.candidate(window, 0.0).energy_j is None
    window.vehicle.computer = Computer(1e9, None)
    assert make.candidate(window, 0.0).energy_j is None
    window.vehicle.computer = Computer(1e9, 30.0)
    # 1 MB at 8 Mbit/s, 3 s, 2 MB at 4 Mbit/s
    assert make.candidate(window, 0.0).energy_j == pytest.approx(1 * 1.0 + 30 * 3.0 + 2 * 4.0)
