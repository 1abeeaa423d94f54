import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vnetsim.coverage.rsu import Rsu
from vnetsim.errors import InputError
from vnetsim.experiment import SiloSettings
from vnetsim.simulation.vehicle import SiloBinder, Vehicle, approach_of

RSU = Rsu(id="r", x_m=1000.0, y_m=-500.0, range_m=250.0)


def point(bearing_deg: float, distance_m: float = 250.0) -> tuple[float, float]:
    bearing = math.radians(bearing_deg)
    return RSU.x_m + distance_m * math.sin(bearing), RSU.y_m + distance_m * math.cos(bearing)


def test_a_vehicle_on_the_rsu_counts_as_north():
    assert approach_of(RSU.x_m, RSU.y_m, RSU, 4) == 0


@given(approaches=st.integers(1, 12), bearing=st.floats(0, 360), distance=st.floats(0.1, 1e4))
def test_sector_centres_are_less_than_half_a_sector_away(approaches, bearing, distance):
    approach = approach_of(*point(bearing, distance), RSU, approaches)
    away = abs((bearing - 360 * approach / approaches + 180) % 360 - 180)
    assert away <= 180 / approaches + 1e-6


def test_arrival_deals_round_robin_and_still_tells_the_approach():
    binder = SiloBinder(SiloSettings(count=3, by="arrival", approaches=2), [RSU])
    bindings = [binder.bind(*point(b), RSU) for b in (0, 180, 0, 180, 0)]
    assert bindings == [(0, 0), (1, 1), (2, 0), (0, 1), (1, 0)]


@given(
    count=st.integers(4, 40),
    approaches=st.integers(1, 4),
    bearings=st.lists(st.floats(0, 360), min_size=1, max_size=60),
)
def test_silos_belong_to_their_direction_and_are_dealt_evenly(count, approaches, bearings):
    binder = SiloBinder(SiloSettings(count=count, by="approach", approaches=approaches), [RSU])
    dealt: dict[int, list[int]] = {}
    for bearing in bearings:
        silo, approach = binder.bind(*point(bearing), RSU)
        assert 0 <= silo < count
        assert silo % approaches == approach
        dealt.setdefault(approach, []).append(silo)
    for approach, silos in dealt.items():
        members = len(range(approach, count, approaches))
        uses = [silos.count(silo) for silo in set(silos)]
        assert len(uses) == min(members, len(silos))
        assert max(uses) - min(uses) <= 1


def test_origin_deals_among_the_silos_of_the_first_rsu():
    rsus = [replace(RSU, id=name) for name in "abc"]
    binder = SiloBinder(SiloSettings(count=8, by="origin"), rsus)
    assert [binder.bind(*point(0), rsu)[0] for rsu in (rsus[1], rsus[1], rsus[2], rsus[1], rsus[1])] == [1, 4, 2, 7, 1]
    vehicle = Vehicle(id="v", silo=1, approach=0)
    binder.move(vehicle, rsus[0])
    assert (vehicle.silo, vehicle.earlier) == (1, ())
    with pytest.raises(InputError, match=r"silos\.count must be at least 9 with silos\.by = 'place', .*, got 8"):
        SiloBinder(SiloSettings(count=8, by="place"), rsus * 3)


def test_by_place_a_share_is_replaced_at_each_change():
    rsus = [replace(RSU, id=name) for name in "abc"]
    binder = SiloBinder(SiloSettings(count=6, by="place", replaced_share=0.25), rsus)
    vehicle = Vehicle(id="v", silo=binder.bind(*point(0), rsus[0])[0], approach=0)
    binder.move(vehicle, rsus[0])
    assert (vehicle.silo, vehicle.earlier) == (0, ())
    binder.move(vehicle, rsus[1])
    assert (vehicle.silo, vehicle.earlier) == (1, ((0, 0.75),))
    binder.move(vehicle, rsus[2])
    assert (vehicle.silo, vehicle.earlier) == (2, ((0, 0.75**2), (1, 0.25 * 0.75)))
    least = 1.0
    for rsu in (rsus[0], rsus[1]) * 40:
        binder.move(vehicle, rsu)
        shares = dict(vehicle.earlier)
        least = min(least, *shares.values())
        assert len(shares) == len(vehicle.earlier)
        assert vehicle.silo not in shares
        assert 0 < sum(shares.values()) <= 0.75 + 1e-12
    assert 1e-3 < least < 1.1e-3
    assert set(shares) <= {0, 1, 3, 4}, "what it held of the third place is forgotten"
