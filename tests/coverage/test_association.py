"""Who serves a vehicle, against closed forms and a brute-force simulation of the same rule on dense samples."""

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from coverage_laws import path_of
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from vnetsim.coverage import association
from vnetsim.coverage.association import Association, Serves, nearness
from vnetsim.coverage.rsu import Rsu
from vnetsim.coverage.windows import CoverageEvent, Entered, Left, VehiclePath, crossings, window_of

WEST, EAST = (Rsu(id=name, x_m=x_m, y_m=0.0, range_m=250.0) for name, x_m in (("west", 0.0), ("east", 300.0)))
Samples = Sequence[tuple[float, float, float]]


def events(samples: Samples, rsus: Sequence[Rsu], vehicle_id: str = "v") -> list[CoverageEvent]:
    """Return the coverage events of a vehicle that drives straight from sample to sample (time, x, y)."""
    found: list[CoverageEvent] = []
    for rsu in rsus:
        points: list[tuple[float, float, float]] = []
        for (t0, x0, y0), (t1, x1, y1) in itertools.pairwise(samples):
            enter, leave = crossings(x0 - rsu.x_m, y0 - rsu.y_m, x1 - x0, y1 - y0, rsu.range_m)
            shares = [max(enter, 0.0), min(leave, 1.0)]
            if shares[0] >= shares[1]:
                continue
            here = [
                (t1, x1, y1) if share == 1 else (t0 + share * (t1 - t0), x0 + share * (x1 - x0), y0 + share * (y1 - y0))
                for share in shares
            ]
            if points and points[-1][0] < here[0][0]:
                found += of_points(points, rsu, vehicle_id)
                points = []
            points += here[1:] if points else here
        if points:
            found += of_points(points, rsu, vehicle_id)
    return sorted(found, key=lambda event: (event.time_s, isinstance(event, Entered), event.path.rsu_id))


def of_points(points: Samples, rsu: Rsu, vehicle_id: str) -> list[CoverageEvent]:
    path = path_of(points, vehicle_id=vehicle_id, rsu_id=rsu.id)
    left = Left(time_s=path.time_s[-1], path=path, window=window_of(path, "crossing", ""))
    return [Entered(time_s=path.time_s[0], path=path), left]


def test_first_is_who_was_entered_first_as_long_as_the_vehicle_stays():
    told = events(straight(100), (WEST, EAST))
    followed = [(event.time_s, type(event).__name__, event.path.rsu_id) for event in Association(None).follow(told)]
    [left_s] = [event.time_s for event in told if isinstance(event, Left) and event.path.rsu_id == "west"]
    assert [event for event in followed if event[1] == "Serves"] == [
        (0.0, "Serves", "west"),
        (left_s, "Serves", "east"),
    ]
    assert followed.index((left_s, "Serves", "east")) + 1 == followed.index((left_s, "Left", "west"))
    assert followed[:2] == [(0.0, "Entered", "west"), (0.0, "Serves", "west")]
    assert [event for event in followed if event[1] != "Serves"] == [
        (event.time_s, type(event).__name__, event.path.rsu_id) for event in told
    ]


def test_of_one_instant_vehicles_are_served_in_the_order_of_their_names():
    told = sorted((e for name in "ba" for e in events(straight(60), (WEST, EAST), name)), key=lambda e: e.time_s)
    followed = [event.path for event in Association(None).follow(told) if isinstance(event, Serves)]
    assert [(path.vehicle_id, path.rsu_id) for path in followed] == [(v, r) for r in ("west", "east") for v in "ab"]


def serving(rsus: Sequence[Rsu], told: Sequence[CoverageEvent], **rule: float) -> list[tuple[float, str]]:
    """Return from when on which RSU serves a vehicle in place of that which served it first."""
    followed = Association(nearness(rsus), **rule).follow(iter(told))
    return [(event.time_s, event.path.rsu_id) for event in followed if isinstance(event, Serves)][1:]


def straight(seconds: int, speed_mps: float = 10.0, start: tuple[float, float] = (-200.0, 7.0)) -> Samples:
    return [(float(t), start[0] + speed_mps * t, start[1]) for t in range(seconds)]


def test_the_bisector_is_a_root_within_the_step():
    told = events(straight(80, speed_mps=9.7), (WEST, EAST))
    [(time_s, rsu_id)] = serving((WEST, EAST), told)
    assert rsu_id == "east"
    assert time_s == pytest.approx(350 / 9.7, rel=1e-14), "x = 150 m"
    assert time_s != round(time_s)
    first = events([(0.0, 140.0, 0.0), (10.0, 240.0, 0.0)], (WEST, EAST))
    assert serving((WEST, EAST), first) == [(pytest.approx(1.0), "east")], "of a path's first step too"


def test_hysteresis_and_time_to_trigger_delay_it():
    told = events(straight(80), (WEST, EAST))
    for hysteresis in (1.0, 40.0):
        [(time_s, _)] = serving((WEST, EAST), told, hysteresis=hysteresis)
        x_m = -200 + 10 * time_s
        assert math.hypot(x_m, 7) - math.hypot(x_m - 300, 7) == pytest.approx(hysteresis, abs=1e-9)
    assert serving((WEST, EAST), told, trigger_s=3.5) == [(pytest.approx(38.5, rel=1e-14), "east")]
    [left_s] = [event.time_s for event in told if isinstance(event, Left) and event.path.rsu_id == "west"]
    assert serving((WEST, EAST), told, trigger_s=30.0) == [(left_s, "east")], "who serves no more is left at once"


def test_a_turn_back_within_the_time_to_trigger_changes_nothing():
    there = [(float(t), 20 * (t + 5.0), 0.0) for t in range(-5, 6)]  # at 150 m after 2.5 s
    back = [(float(t), 200.0 - 20 * (t - 5), 0.0) for t in range(6, 40)]
    told = events([*there, *back], (WEST, EAST))
    assert serving((WEST, EAST), told, trigger_s=4.9) == [
        (pytest.approx(7.4), "east"),
        (pytest.approx(12.4), "west"),
    ]
    assert serving((WEST, EAST), told, trigger_s=5.0) == [], "5 s from 2.5 s on, and not longer"


def test_who_is_no_longer_better_when_the_time_to_trigger_is_over_does_not_take_over():
    """On a clock whose turns are whole seconds: better from 3 s on, from 5 s on no longer, and from 8 s on again."""
    told = events([(float(t), 150.0, float(t)) for t in range(12)], (WEST, EAST))

    def quality(path: VehiclePath) -> association.AtPlace:
        return lambda _, y_m: 2.0 * ((y_m >= 3) & ((y_m < 5) | (y_m >= 8))) if path.rsu_id == "east" else 1.0 + 0 * y_m

    def handed_over_s(trigger_s: float) -> list[float]:
        followed = Association(quality, trigger_s=trigger_s).follow(iter(told))
        return [event.time_s for event in followed if isinstance(event, Serves)][1:]

    assert handed_over_s(1.5) == [4.5, 6.5, 9.5]
    assert handed_over_s(2.0) == [10.0]


def test_time_to_trigger_begins_anew_with_who_serves():
    """On a clock whose turns are whole seconds: east is better than west from 3 s on, far than both from 4 s on."""
    far, late = (Rsu(id=name, x_m=150.0, y_m=y_m, range_m=9.5) for name, y_m in (("far", 5.0), ("late", 14.0)))
    told = events([(float(t), 150.0, float(t)) for t in range(12)], (WEST, EAST, far, late))  # late from 4.5 s on
    good = {"west": (1.0, 0.0), "east": (2.0, 3.0), "far": (3.0, 4.0), "late": (0.0, 0.0)}

    def quality(path: VehiclePath) -> association.AtPlace:
        worth, from_m = good[path.rsu_id]
        return lambda _, y_m: worth * (y_m >= from_m)

    followed = Association(quality, trigger_s=2.0).follow(iter(told))
    handed_over = [(event.time_s, event.path.rsu_id) for event in followed if isinstance(event, Serves)]
    assert handed_over == [(0.0, "west"), (5.0, "east"), (math.nextafter(5.0, 9.0) + 2, "far")]


def test_when_its_disc_is_left_the_best_of_the_others_serves():
    west, near, far = (
        Rsu(id=name, x_m=x_m, y_m=y_m, range_m=range_m)
        for name, x_m, y_m, range_m in (("w", 0, 0, 250), ("n", 300, 0, 250), ("f", 300, 200, 400))
    )
    told = events(straight(90, start=(-200.0, 0.0)), (west, far, near))
    assert [name for _, name in serving((west, near, far), told, hysteresis=1e6)] == ["n", "f"], (
        "f was entered before n"
    )


def test_who_is_better_as_its_disc_is_entered_is_so_from_then_on():
    small = Rsu(id="small", x_m=100.0, y_m=0.0, range_m=20.0)
    half_m = math.sqrt(20**2 - 7**2)
    enter_s, leave_s = (300 - half_m) / 10, (300 + half_m) / 10
    handed_over = serving((WEST, small), events(straight(40), (WEST, small)), trigger_s=1.0)
    assert handed_over == [(pytest.approx(enter_s + 1), "small"), (pytest.approx(leave_s), "west")]


def test_of_one_rsu_and_of_equals_nothing_changes():
    assert serving((WEST,), events(straight(60), (WEST,))) == []
    between = [(float(t), 150.0, -240.0 + 10 * t) for t in range(49)]
    assert serving((WEST, EAST), events(between, (WEST, EAST))) == [], "on the bisector"
    arrives = [(0.0, 100.0, 0.0), (5.0, 140.0, 0.0)]
    assert serving((WEST, EAST), events(arrives, (WEST, EAST))) == [], "both end together"


def test_events_are_handed_on_in_order_whatever_is_read_ahead(monkeypatch):
    rsus = [Rsu(id=f"r{i}", x_m=180.0 * i, y_m=30.0 * (i % 2), range_m=250.0) for i in range(8)]
    told: list[CoverageEvent] = []
    for vehicle in range(6):
        told += events([(t + 7 * vehicle, x, y) for t, x, y in straight(150, 11.3)], rsus, f"v{vehicle}")
    told.sort(key=lambda event: (event.time_s, isinstance(event, Entered)))

    def followed() -> list[tuple[float, str, str, str]]:
        kinds = [*Association(nearness(rsus), hysteresis=5.0, trigger_s=2.0).follow(iter(told))]
        assert [event for event in kinds if not isinstance(event, Serves)] == told
        return [(event.time_s, type(event).__name__, event.path.rsu_id, event.path.vehicle_id) for event in kinds]

    once = followed()
    assert once == sorted(once, key=lambda event: event[0])
    assert sum(kind == "Serves" for _, kind, _, _ in once) == 6 * 8
    for seconds in (0.0, 3.0, 1e9):
        monkeypatch.setattr(association, "READ_AHEAD_S", seconds)
        assert followed() == once


def brute_force(
    samples: Samples, rsus: Sequence[Rsu], hysteresis: float, trigger_s: float
) -> Iterator[tuple[float, str]]:
    """Yield who serves, empty for nobody, by the rule's own words at each of many instants."""
    grid = np.arange(samples[0][0], samples[-1][0], 0.01)
    x_m, y_m = (np.interp(grid, [s[0] for s in samples], [s[i] for s in samples]) for i in (1, 2))
    away = {rsu: np.hypot(x_m - rsu.x_m, y_m - rsu.y_m) for rsu in rsus}
    serves: Rsu | None = None
    entered: list[Rsu] = []
    since: dict[Rsu, float] = {}
    for i, now_s in enumerate(grid):
        inside = [rsu for rsu in rsus if away[rsu][i] < rsu.range_m]
        entered = [rsu for rsu in entered if rsu in inside] + [rsu for rsu in inside if rsu not in entered]
        before = serves
        if serves not in inside:
            serves = min(entered, key=lambda rsu: away[rsu][i]) if entered else None
            since = {}
        else:
            better = [r for r in entered if r is not serves and away[serves][i] - away[r][i] > hysteresis]
            since = {rsu: since.get(rsu, now_s) for rsu in better}
            due = [rsu for rsu in better if now_s - since[rsu] >= trigger_s]
            if due:
                serves = min(due, key=since.__getitem__)
                since = {}
        if serves is not before:
            yield now_s, serves.id if serves else ""


@settings(max_examples=25, deadline=None)
@given(
    corners=st.lists(st.tuples(st.integers(-4, 4), st.integers(-4, 4)), min_size=2, max_size=5),
    places=st.lists(st.tuples(st.integers(-40, 40), st.integers(-40, 40)), min_size=1, max_size=5, unique=True),
    hysteresis=st.sampled_from((0.0, 15.0)),
    trigger_s=st.sampled_from((0.0, 4.3)),
)
def test_the_same_as_by_brute_force(corners, places, hysteresis, trigger_s):
    rsus = [Rsu(id=f"r{i}", x_m=10.0 * x + 0.3 * i, y_m=10.0 * y, range_m=251.7) for i, (x, y) in enumerate(places)]
    ends = [(100.3 * x, 100.7 * y) for (x, y), _ in itertools.groupby(corners)]  # nobody stands
    assume(len(ends) > 1)
    samples = [
        (float(10 * leg + step), x0 + step / 10 * (x1 - x0), y0 + step / 10 * (y1 - y0))
        for leg, ((x0, y0), (x1, y1)) in enumerate(itertools.pairwise(ends))
        for step in range(10)
    ]
    told = Association(nearness(rsus), hysteresis=hysteresis, trigger_s=trigger_s).follow(iter(events(samples, rsus)))
    exact = [
        (event.time_s, event.path.rsu_id if isinstance(event, Serves) else "")
        for event in told
        if not isinstance(event, Entered)
    ]
    dense = list(brute_force(samples, rsus, hysteresis, trigger_s))
    assert held(exact) <= near(dense)
    if trigger_s or not hysteresis:  # what begins and ends between two samples is not seen
        assert held(dense) <= near(exact)


def held(changes: Sequence[tuple[float, str]]) -> set[tuple[int, str]]:
    """Return, by tenths of seconds, the changes after which nothing happens for a while."""
    pairs = itertools.pairwise(changes)
    return {(round(10 * at), rsu_id) for (at, rsu_id), (until, _) in pairs if rsu_id and until - at > 0.05}


def near(changes: Sequence[tuple[float, str]]) -> set[tuple[int, str]]:
    return {(round(10 * time_s) + more, rsu_id) for time_s, rsu_id in changes for more in (-1, 0, 1)}
