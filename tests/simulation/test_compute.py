from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from vnetsim.errors import InputError
from vnetsim.experiment import ComputeSettings
from vnetsim.random_streams import Streams
from vnetsim.simulation.compute import vehicle_computer

FLEET = {"agx-xavier": 0.3, "jetson-nano": 0.7}


def flops(settings: ComputeSettings, vehicle_id: str, seed: int = 0) -> float:
    return vehicle_computer(settings, vehicle_id, Streams(seed=seed)).flops


@pytest.mark.parametrize(
    ("preset", "peak_flops", "watts"),
    [
        ("jetson-nano", 128 * 2 * 0.9216e9, 10),
        ("xavier-nx", 384 * 2 * 1.1e9, 15),
        ("agx-xavier", 512 * 2 * 1.377e9, 30),
        ("agx-orin", 2048 * 2 * 1.3e9, 60),
    ],
)
def test_presets_are_35_per_cent_of_cores_times_two_times_clock(preset, peak_flops, watts):
    found = vehicle_computer(ComputeSettings(preset=preset, spread=0.0), "a", Streams(seed=0))
    assert found.flops == pytest.approx(0.35 * peak_flops, rel=0.04)  # rounded to one or two digits
    assert found.watts == watts


def test_a_control_unit_claims_no_watts():
    drawn = float(Streams(seed=7).generator("compute", "a").standard_normal())
    assert vehicle_computer(ComputeSettings(preset="ecu"), "a", Streams(seed=7)) == (1e9 * np.exp(0.5 * drawn), None)


def test_a_speed_given_by_hand_goes_before_the_presets():
    found = vehicle_computer(ComputeSettings(preset="agx-orin", median_flops=7e11, spread=0.0), "a", Streams(seed=0))
    assert found == (7e11, 60)


def test_a_fleet_is_drawn_once_a_vehicle_by_its_shares_whatever_their_order():
    settings = ComputeSettings(fleet=FLEET)
    other_way = ComputeSettings(fleet=dict(reversed(FLEET.items())))
    found = [vehicle_computer(settings, f"v{i}", Streams(seed=0)) for i in range(2000)]
    assert found == [vehicle_computer(other_way, f"v{i}", Streams(seed=0)) for i in range(2000)]
    fast = np.array([computer.watts == 30 for computer in found])
    assert fast.mean() == pytest.approx(0.3, abs=0.04)  # standard error 0.01
    drawn = [Streams(seed=0).generator("fleet", f"v{i}").random() for i in range(2000)]
    assert fast.tolist() == [one < 0.3 for one in drawn], "a stream of its own"
    # the spread is drawn as it is without a fleet
    alone = {name: [flops(ComputeSettings(preset=name), f"v{i}") for i in range(50)] for name in FLEET}  # type: ignore[arg-type]
    names = np.where(fast[:50], "agx-xavier", "jetson-nano")
    assert [one.flops for one in found[:50]] == [alone[name][i] for i, name in enumerate(names)]


def test_the_last_preset_is_there_for_what_shares_that_sum_to_a_little_less_than_1_leave():
    settings = ComputeSettings(fleet={"agx-orin": 0.3, "jetson-nano": 0.7 - 1e-7}, spread=0.0)
    streams: Any = SimpleNamespace(generator=lambda *_: SimpleNamespace(random=lambda: 1 - 1e-8))
    assert vehicle_computer(settings, "a", streams).watts == 10


def test_a_type_has_a_computer_of_its_own_beside_a_fleet():
    settings, streams = ComputeSettings(fleet=FLEET, by_type={"truck": "agx-orin"}, spread=0.0), Streams(seed=0)
    trucks = {vehicle_computer(settings, f"v{i}", streams, "truck") for i in range(20)}
    assert trucks == {(1.9e12, 60)}
    others = [vehicle_computer(settings, f"v{i}", streams, "car") for i in range(20)]
    assert others == [vehicle_computer(ComputeSettings(fleet=FLEET, spread=0.0), f"v{i}", streams) for i in range(20)]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"fleet": {"agx": 1.0}}, "compute.fleet: unknown preset 'agx'"),
        ({"fleet": {"ecu": 0.5}}, "compute.fleet: the shares of its presets must sum to 1, got 0.5."),
        ({"fleet": {"ecu": -1.0, "agx-orin": 2.0}}, "compute.fleet.ecu: expected a share"),
        ({"fleet": {"ecu": float("nan")}}, "compute.fleet.ecu: expected a share"),
        ({"by_type": {"truck": "agx"}}, "compute.by_type: unknown preset 'agx'"),
        (
            {"by_type": {"truck": "ecu"}, "median_flops": 1e12},
            "compute.median_flops: one speed for all, beside compute.by",
        ),
        ({"fleet": FLEET, "median_flops": 1e12}, "compute.median_flops: one speed for all, beside compute.fleet"),
    ],
    ids=str,
)
def test_a_wrong_fleet_is_refused_in_one_line(given, says):
    with pytest.raises(InputError) as refused:
        ComputeSettings(**given)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)
