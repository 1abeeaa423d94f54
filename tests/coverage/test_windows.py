import pytest
from coverage_laws import path_of

from vnetsim.coverage.windows import VehiclePath, cut_window


def path(*points: tuple[float, float, float, float]) -> VehiclePath:
    return path_of(points, vehicle_id="a", vehicle_type="bus", entry_cause="departure", entry_edge="in")


def test_the_path_ends_at_its_first_point_after_the_end():
    window = cut_window(path((1, 0, 0, 4), (2, 3, 4, 6), (4, 3, 10, 2), (5, 3, 20, 9)), 3.0)
    assert (window.enter_s, window.exit_s, window.exit_cause) == (1, 4, "end")
    assert (window.entry_cause, window.entry_edge, window.exit_edge) == ("departure", "in", "")
    assert (window.entry_speed_mps, window.max_speed_mps) == (4, 6)
    assert window.path_length_m == pytest.approx(11.0)
    assert window.mean_speed_mps == pytest.approx(11.0 / 3)
    assert window.path_time_s.tolist() == [1, 2, 4]
    assert cut_window(path((1, 0, 0, 4), (2, 3, 4, 6), (4, 3, 10, 2)), 1.0).exit_s == 2


def test_a_path_that_stops_before_the_end_of_the_run_is_held_until_then():
    window = cut_window(path((1, 0, 0, 4), (2, 3, 4, 6)), 3.0)
    assert window.exit_s == 3.0
    assert window.path_x_m.tolist() == [0, 3, 3]
    assert window.path_length_m == pytest.approx(5.0)


def test_a_window_that_opens_as_the_run_ends_is_not_empty():
    window = cut_window(path((5, 1, 2, 7)), 5.0)
    assert window.exit_s > window.enter_s
    assert len(window.path_time_s) == 2
    assert window.mean_speed_mps == 0.0
