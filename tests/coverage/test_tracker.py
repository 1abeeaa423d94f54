"""Windows from samples, against closed forms and an independent dense-sampling oracle."""

import itertools
import math
from collections import Counter
from collections.abc import Container, Sequence
from typing import Any

import numpy as np
import pytest
from coverage_laws import check_events
from hypothesis import example, given, settings
from hypothesis import strategies as st

from vnetsim.coverage.frames import Frames
from vnetsim.coverage.rsu import Rsu
from vnetsim.coverage.tracker import Tracker
from vnetsim.coverage.windows import CoverageEvent, EntryCause, ExitCause, Left, Window

DISC = Rsu(id="r", x_m=3.0, y_m=-2.0, range_m=10.0)


Sample = tuple[str, float, float, float]
"""A vehicle: id, x (m), y (m), speed (m/s)."""


class Reasons:
    """A source that says the same of every vehicle."""

    def __init__(self, appeared: EntryCause = "departure", vanished: ExitCause = "arrival") -> None:
        self._appeared, self._vanished = appeared, vanished
        self._numbers: dict[str, int] = {}
        self._ids: list[str] = []
        self._time_s: list[float] = []
        self.asked: list[tuple[str, str]] = []

    def frames(
        self,
        part: Sequence[tuple[float, list[Sample]]],
        moved: Container[str] = frozenset(),
        resumed: Container[float] = (),
    ) -> Frames:
        """Return instants as the tracker wants them."""
        rows = [(instant, *sample) for instant, (_, samples) in enumerate(part) for sample in samples]
        self._ids, self._time_s = [row[1] for row in rows], [time_s for time_s, _ in part]
        x_m, y_m, speed_mps = (np.array([row[column] for row in rows], dtype=float) for column in (2, 3, 4))
        return Frames(
            time_s=np.array(self._time_s),
            instant=np.array([row[0] for row in rows], dtype=np.int64),
            vehicle=np.array(
                [self._numbers.setdefault(name, len(self._numbers)) for name in self._ids], dtype=np.int64
            ),
            x_m=x_m,
            y_m=y_m,
            speed_mps=speed_mps,
            moved=np.array([name in moved for name in self._ids], dtype=bool),
            resumed=np.array([time_s in resumed for time_s in self._time_s], dtype=bool),
        )

    def vehicle_id(self, row: int) -> str:
        return self._ids[row]

    def vehicle_type(self, row: int) -> str:
        return f"type of {self._ids[row]}"

    def edge(self, row: int) -> str:
        return f"edge of {self._ids[row]}"

    def appeared(self, row: int) -> EntryCause:
        self.asked.append(("appeared", self._ids[row]))
        return self._appeared

    def vanished(self, vehicle: int, instant: int) -> ExitCause:
        self.asked.append((f"vanished at {self._time_s[instant]:g} s", list(self._numbers)[vehicle]))
        return self._vanished


def track(
    frames: list[tuple[float, list[Sample]]],
    *,
    rsus: tuple[Rsu, ...] = (DISC,),
    reasons: Reasons | None = None,
    moved: Container[str] = frozenset(),
    together: int = 3,
    resumed: Container[float] = (),
    **gaps: Any,
) -> list[CoverageEvent]:
    """Return all events; they are of those vehicles and discs, and tell what the source says of them."""
    reasons = reasons or Reasons()
    tracker = Tracker(rsus, **gaps)
    parts = [frames[at : at + together] for at in range(0, len(frames), together)]
    events = [e for part in parts for e in tracker.advance(reasons.frames(part, moved, resumed), reasons)]
    events += tracker.finish(reasons)
    check_events(events)
    seen, discs = {sample[0] for _, near in frames for sample in near}, {rsu.id for rsu in rsus}
    for path in (event.path for event in events):
        assert path.vehicle_id in seen
        assert path.rsu_id in discs
        assert path.vehicle_type == f"type of {path.vehicle_id}"
        assert path.entry_edge == f"edge of {path.vehicle_id}"
    for window in (event.window for event in events if isinstance(event, Left)):
        seen_last = window.exit_cause in {"crossing", "end"}
        # where each has a clock of its own, not all are there to be asked when the traffic ends
        asked = {f"edge of {window.vehicle_id}"} | ({""} if gaps.get("own_clocks") else set())
        assert window.exit_edge in (asked if seen_last else {""})
    return events


def windows(frames: list[tuple[float, list[Sample]]], reasons: Reasons | None = None) -> list[Window]:
    return [event.window for event in track(frames, reasons=reasons) if isinstance(event, Left)]


def path(*points: tuple[float, float, float, float] | None) -> list[tuple[float, list[Sample]]]:
    """Frames of one vehicle at t = 0, 1, 2, ...; points are relative to the disc's centre; None: absent."""
    return [
        (float(t), [] if p is None else [("v", p[0] + DISC.x_m, p[1] + DISC.y_m, p[2])])
        for t, p in enumerate((*q[:2], q[2], 0.0) if q else None for q in points)
    ]


def test_both_crossings_and_their_speeds_are_interpolated():
    (window,) = windows(path((-20, 6, 10, 0), (-4, 6, 14, 0), (4, 6, 18, 0), (20, 6, 22, 0)))
    # at height 6 the circle of radius 10 is crossed at x = -8 and 8
    assert (window.enter_s, window.exit_s) == (pytest.approx(0.75), pytest.approx(2.25))
    assert window.entry_speed_mps == pytest.approx(13.0)
    assert window.path_speed_mps[-1] == pytest.approx(19.0)
    assert window.max_speed_mps == pytest.approx(19.0)
    assert window.path_length_m == pytest.approx(16.0)
    assert window.mean_speed_mps == pytest.approx(16.0 / 1.5)
    assert (window.entry_cause, window.exit_cause) == ("crossing", "crossing")
    assert (window.vehicle_type, window.entry_edge, window.exit_edge) == ("type of v", "edge of v", "edge of v")


def test_enter_and_leave_within_one_step():
    (window,) = windows(path((-20, 6, 40, 0), (20, 6, 40, 0)))
    assert (window.enter_s, window.exit_s) == (pytest.approx(0.3), pytest.approx(0.7))
    assert window.path_time_s.shape == (2,)
    (slow,) = windows(path((-0.25, 9.999, 0.5, 0), (0.25, 9.999, 0.5, 0)))
    assert slow.path_length_m == pytest.approx(2 * math.sqrt(100 - 9.999**2))


@pytest.mark.parametrize("height", [10.0, 10.0 + 1e-12, 11.0])
def test_tangent_and_miss_give_no_window(height):
    assert windows(path((-20, height, 40, 0), (20, height, 40, 0))) == []
    for step_m in (2.2, 4.4, 8.8):  # seen where it is next to the circle
        assert windows(path(*((step_m * step, height, step_m, 0) for step in (-1, 0, 1)))) == []


def test_start_on_the_circle():
    (inwards,) = windows(path((-10, 0, 10, 0), (0, 0, 10, 0), (20, 0, 20, 0)))
    assert (inwards.enter_s, inwards.entry_cause) == (0.0, "crossing")
    assert inwards.exit_s == pytest.approx(1.5)
    assert windows(path((-10, 0, 10, 0), (-20, 0, 10, 0))) == []
    (touching,) = windows(path((-20, 0, 10, 0), (0, 0, 10, 0), (10, 0, 10, 0), (20, 0, 10, 0)))
    assert touching.exit_s == pytest.approx(2.0)


def test_a_vehicle_that_stands_still():
    (window,) = windows(path((1, 1, 0, 0), (1, 1, 0, 0), (1, 1, 0, 0)))
    assert (window.enter_s, window.exit_s, window.entry_cause, window.exit_cause) == (0.0, 2.0, "begin", "end")
    assert window.mean_speed_mps == 0.0
    assert windows(path((10, 0, 0, 0), (10, 0, 0, 0))) == []


def test_departure_and_arrival_inside():
    reasons = Reasons()
    (window,) = windows(path(None, (0, 0, 1, 0), (1, 0, 1, 0), None, None), reasons)
    assert set(reasons.asked) == {("appeared", "v"), ("vanished at 3 s", "v")}
    assert (window.enter_s, window.exit_s) == (1.0, 2.0)
    assert (window.entry_cause, window.exit_cause, window.exit_edge) == ("departure", "arrival", "")


def test_seen_once_is_no_window():
    assert track(path(None, (0, 0, 1, 0), None, None)) == []
    assert track(path((-20, 0, 1, 0), None, (0, 0, 1, 0))) == []


def test_a_gap_is_a_teleport_and_not_a_path():
    reasons = Reasons(appeared="teleport", vanished="teleport")
    first, second = windows(path((-20, 0, 9, 0), (-5, 0, 9, 0), None, (5, 0, 9, 0), (20, 0, 9, 0)), reasons)
    assert (first.exit_s, first.exit_cause) == (1.0, "teleport")
    assert (second.enter_s, second.entry_cause) == (3.0, "teleport")


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        (((-500, 0, 9, 0), (500, 0, 9, 0)), []),
        (((-500, 0, 9, 0), (0, 0, 9, 0), (0, 1, 9, 0)), [("teleport", "end", 1.0, 2.0)]),
        (((0, 0, 9, 0), (0, 1, 9, 0), (500, 0, 9, 0)), [("begin", "teleport", 0.0, 1.0)]),
    ],
)
def test_a_jump_that_no_speed_explains(points, expected):
    found = windows(path(*points))  # type: ignore[arg-type]
    assert [(w.entry_cause, w.exit_cause, w.enter_s, w.exit_s) for w in found] == expected


def test_a_jump_within_a_large_disc_splits_the_window():
    wide = Rsu(id="wide", x_m=0, y_m=0, range_m=1000)
    frames = [(0.0, [("v", -400.0, 0.0, 9.0)]), (1.0, [("v", -391.0, 0.0, 9.0)])]
    frames += [(2.0, [("v", 391.0, 0.0, 9.0)]), (3.0, [("v", 400.0, 0.0, 9.0)])]
    found = [e.window for e in track(frames, rsus=(wide,)) if isinstance(e, Left)]
    assert [(w.enter_s, w.exit_s, w.entry_cause, w.exit_cause) for w in found] == [
        (0.0, 1.0, "begin", "teleport"),
        (2.0, 3.0, "teleport", "end"),
    ]
    assert max(w.path_length_m for w in found) == pytest.approx(9.0)


@pytest.mark.parametrize("step_m", [(60.0, 0.0), (0.0, 60.0), (-60.0, 60.0)])
def test_a_fast_drive_through_a_large_disc_is_one_window(step_m):
    wide = Rsu(id="wide", x_m=0, y_m=0, range_m=1000)
    frames = [(float(t), [("v", t * step_m[0], t * step_m[1], math.hypot(*step_m) - 20)]) for t in range(6)]
    (window,) = (e.window for e in track(frames, rsus=(wide,)) if isinstance(e, Left))
    assert (window.enter_s, window.exit_s) == (0.0, 5.0)
    assert window.path_length_m == pytest.approx(5 * math.hypot(*step_m))


def test_a_vehicle_that_the_source_says_was_moved_did_not_drive():
    """Within the disc, out of it, into it, and past it: no window holds the way."""
    points = [(0, 0), (1, 0), (12, 0), (9, 0), (8, 0), (-12, 0), (12, 0)]
    frames = [(float(t), [("v", x + DISC.x_m, y + DISC.y_m, 40.0)]) for t, (x, y) in enumerate(points)]
    drives = [e.window for e in track(frames) if isinstance(e, Left)]
    assert len(drives) == 3
    assert [e for e in track(frames, moved={"v"}) if isinstance(e, Left)] == []
    tracker, reasons, events = Tracker((DISC,)), Reasons(), []
    for time_s, near in frames:
        moved = {"v"} if time_s in {2.0, 3.0, 5.0, 6.0} else set()
        events += tracker.advance(reasons.frames([(time_s, near)], moved), reasons)
    told = [e.window for e in [*events, *tracker.finish(reasons)] if isinstance(e, Left)]
    assert [(w.enter_s, w.exit_s, w.entry_cause, w.exit_cause, w.exit_edge) for w in told] == [
        (0.0, 1.0, "begin", "teleport", ""),
        (3.0, 4.0, "teleport", "teleport", ""),
    ]


def test_a_crossing_that_rounds_to_the_sample_is_entered_there():
    disc = Rsu(id="r", x_m=0, y_m=0, range_m=10)
    edge_m = math.nextafter(-10, 0)
    frames = [(1000.0 + t, [("v", x, 0.0, 10.0)]) for t, x in enumerate((-20.0, edge_m, 0.0, 5.0))]
    (window,) = (e.window for e in track(frames, rsus=(disc,)) if isinstance(e, Left))
    assert (window.enter_s, window.entry_cause, window.path_x_m[0]) == (1001.0, "crossing", edge_m)
    assert window.path_time_s.tolist() == [1001.0, 1002.0, 1003.0]
    frames = [(1000.0 + t, [("v", x, 0.0, 10.0)]) for t, x in enumerate((5.0, 0.0, edge_m, -20.0))]
    (window,) = (e.window for e in track(frames, rsus=(disc,)) if isinstance(e, Left))
    assert (window.exit_cause, window.path_time_s.tolist()) == ("crossing", [1000.0, 1001.0, 1002.0])


def test_events_of_several_discs_are_ordered():
    rsus = tuple(Rsu(id=name, x_m=x, y_m=0, range_m=10) for name, x in (("b", 0), ("a", 20), ("c", 20)))
    frames = [(float(t), [("v", x, 0.0, 8.0), ("u", x, 0.0, 8.0)]) for t, x in enumerate(range(-20, 60, 8))]
    events = track(frames, rsus=rsus)
    assert len(events) == 12
    # leaving b and entering a and c happen at one instant
    middle = [(type(e).__name__, e.path.rsu_id, e.path.vehicle_id) for e in events if e.time_s == pytest.approx(3.75)]
    assert middle == [
        *(("Left", "b", v) for v in "uv"),
        *(("Entered", r, v) for r in "ac" for v in "uv"),
    ]


def test_discs_all_over_a_town_see_who_passes_them():
    rsus = tuple(Rsu(id=f"{i}, {j}", x_m=70 * i, y_m=90 * j, range_m=10) for i in range(4) for j in range(5))
    frames = [(float(t), [(rsu.id, rsu.x_m - 12 + 8 * t, rsu.y_m, 8.0) for rsu in rsus]) for t in range(4)]
    told = [(e.path.vehicle_id, e.path.rsu_id, e.time_s) for e in track(frames, rsus=rsus)]
    assert told == [(rsu.id, rsu.id, time_s) for time_s in (0.25, 2.75) for rsu in rsus]


# within 52 m, or a vehicle at rest is taken to have jumped
coordinate = st.one_of(st.floats(-18, 18), st.sampled_from([-10.0, 0.0, 6.0, 8.0, 10.0]))
point = st.one_of(st.none(), st.tuples(coordinate, coordinate, st.floats(0, 40), st.just(0.0)))


@settings(max_examples=300, deadline=None)
@given(st.lists(point, min_size=2, max_size=12))
@example([(15.0, 23.79839879405553, 0.0, 0.0), (0.0, -10.0, 0.0, 0.0)])  # ends on the circle, by rounding beyond it
def test_windows_are_the_time_inside(points):
    """Sampled densely, the vehicle is inside the disc exactly during its windows, which are disjoint."""
    found = windows(path(*points))
    for before, after in itertools.pairwise(found):
        assert before.exit_s <= after.enter_s
    for window in found:
        assert window.enter_s < window.exit_s
        assert (np.diff(window.path_time_s) > 0).all()
        radii = np.hypot(window.path_x_m - DISC.x_m, window.path_y_m - DISC.y_m)
        assert (radii <= DISC.range_m * (1 + 1e-9)).all()
    for index, (start, end) in enumerate(itertools.pairwise(points)):
        if start is None or end is None:
            continue
        for share in (np.arange(40) + 0.5) / 40:
            x, y = (start[k] + share * (end[k] - start[k]) for k in (0, 1))
            margin_m = math.hypot(x, y) - DISC.range_m
            if abs(margin_m) > 1e-6:
                inside = any(w.enter_s <= index + share < w.exit_s for w in found)
                assert inside == (margin_m < 0)


def test_fifty_metres_are_allowed_beyond_any_drive():
    """After two seconds a vehicle may be 60 m off at rest, 120 at 20 m/s; further off it jumped: two windows."""
    wide = Rsu(id="wide", x_m=0.0, y_m=0.0, range_m=400.0)
    for speed_mps, moved_m, number in ((0.0, 60.0, 1), (0.0, 60.5, 2), (20.0, 120.0, 1), (20.0, 120.5, 2)):
        places_m = ((0.0, 0.0), (0.0, 1.0), (moved_m, 1.0), (moved_m, 2.0))
        frames = [(2.0 * i, [("v", *place_m, speed_mps if i == 1 else 0.0)]) for i, place_m in enumerate(places_m)]
        assert sum(isinstance(event, Left) for event in track(frames, rsus=(wide,))) == number


def drawn(events: list[CoverageEvent]) -> list[tuple[str, list[float], list[float]]]:
    found = [event.window for event in events if isinstance(event, Left)]
    return [(w.vehicle_id, w.path_time_s.tolist(), w.path_x_m.tolist()) for w in found]


own_rows = st.lists(st.tuples(st.floats(0.1, 9.0), coordinate, coordinate, st.floats(0, 40)), min_size=1, max_size=8)


@settings(max_examples=60, deadline=None)
@given(st.lists(own_rows, min_size=1, max_size=4), st.integers(1, 7))
def test_where_each_has_a_clock_of_its_own_others_change_nothing(vehicles, together):
    """The windows of vehicles together are those of each alone, however the frames are cut."""
    tracks = []
    for index, rows in enumerate(vehicles):
        times_s = np.cumsum([row[0] for row in rows]) + index / 64
        tracks.append([(float(t), [(f"v{index}", *row[1:])]) for t, row in zip(times_s, rows, strict=True)])
    everybody: dict[float, list[Sample]] = {}
    for time_s, near in itertools.chain(*tracks):
        everybody.setdefault(time_s, []).extend(near)
    gaps = {"longest_gap_s": 6.0, "own_clocks": True, "infers_jumps": False}
    whole = drawn(track(sorted(everybody.items()), together=together, **gaps))
    assert sorted(whole) == sorted(row for one in tracks for row in drawn(track(one, **gaps)))


def test_a_gap_of_all_ends_windows_and_begins_them():
    """Who is inside at both ends, who is new behind it, who is gone; and a silence up to the longest is none."""
    inside = {name: (name, DISC.x_m, y_m, 1.0) for name, y_m in (("a", 0.0), ("b", 1.0), ("c", -1.0))}
    present = [(0.0, "ab"), (1.0, "ab"), (4.0, "ab"), (7.5, "ac"), (8.5, "ac"), (9.5, "a"), (10.5, "a")]
    frames = [(time_s, [inside[name] for name in names]) for time_s, names in present]
    for together in (1, 2, 7):
        found = track(frames, reasons=Reasons(), together=together, longest_gap_s=3.0, resumed={7.5})
        windows = [event.window for event in found if isinstance(event, Left)]
        assert sorted((w.vehicle_id, w.enter_s, w.exit_s, w.entry_cause, w.exit_cause) for w in windows) == [
            ("a", 0.0, 4.0, "begin", "gap"),
            ("a", 7.5, 10.5, "gap", "end"),
            ("b", 0.0, 4.0, "begin", "gap"),
            ("c", 7.5, 8.5, "gap", "arrival"),
        ]


def test_where_the_source_knows_of_jumps_a_long_drive_is_one_and_single_instants_are_counted():
    points = path((-500, 0, 9, 0), (500, 0, 9, 0), None, (0, 0, 9, 0), None)
    glimpsed = Counter[str]()
    (window,) = (e.window for e in track(points, infers_jumps=False, glimpsed=glimpsed) if isinstance(e, Left))
    assert (window.entry_cause, window.exit_cause, window.path_length_m) == ("crossing", "crossing", 20.0)
    assert glimpsed == {"r": 1}
