import math
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import simpy
from coverage_laws import path_of
from hypothesis import given
from hypothesis import strategies as st

from vnetsim.coverage.rsu import Rsu
from vnetsim.coverage.windows import VehiclePath, position_m
from vnetsim.radio.capacity import noise_dbm
from vnetsim.radio.channel import Channel, RateUse
from vnetsim.radio.models import ConstantRate, Tr37885
from vnetsim.radio.propagation import path_loss_db
from vnetsim.random_streams import Streams
from vnetsim.simulation.links import Link, Radio

RSU = Rsu(id="r", x_m=0.0, y_m=0.0, range_m=250.0)
HIGHWAY = replace(RSU, environment="highway")
PLAIN = Tr37885(
    state="los", bandwidth_hz=10e6, rsu_antenna_dbi=0.0, vehicle_antenna_dbi=0.0, max_spectral_efficiency=5.0
)
UNCAPPED = replace(PLAIN, max_spectral_efficiency=100.0)
AT = ((0.0, -100.0, 0.0),)
HERE = path_of(AT)


def opened(
    settings: Tr37885, path: VehiclePath | None = None, rsu: Rsu = RSU, earlier_windows: int = 0, seed: int = 0
) -> Link:
    radio = Radio(settings, Streams(seed=seed))
    return radio.link(HERE if path is None else path, rsu, earlier_windows)


def snr_db(link: Link, settings: Tr37885 = UNCAPPED) -> float:
    """Return what the rate of an uplink says of the signal, by the inverse of the capacity."""
    capacity = link.uplink_bps(0.0) / settings.bandwidth_hz / settings.efficiency
    return 10 * math.log10(2**capacity - 1)


def space_m(ground_m: float) -> float:
    """Return the distance of antennas 5 m and 1.6 m high."""
    return math.hypot(ground_m, 3.4)


def rate_bps(model: Tr37885, distance_m: float, power_dbm: float, shadowing_db: float, environment: str) -> float:
    return model.capacity_bps(power_dbm - path_loss_db(distance_m, model.carrier_hz, environment) - shadowing_db, 9.0)


def test_rate_uses_the_distance_in_space():
    link = opened(replace(UNCAPPED, shadowing_db=0.0), path_of(((0.0, 3.0, 4.0),)))
    snr_db = 23.0 - path_loss_db(math.sqrt(9 + 16 + 3.4**2), 5.9e9, "urban") - noise_dbm(10e6, 9.0)
    assert link.uplink_bps(0.0) == pytest.approx(10e6 * 0.6 * math.log2(1 + 10 ** (snr_db / 10)), rel=1e-12)


def test_the_cap_is_what_a_sidelink_carries():
    """Resource elements of a slot: 12 symbols, less reference symbols, control channel and its second stage."""
    for bandwidth_hz, blocks, per_hz in ((10e6, 24, 3.0), (20e6, 50, 3.4)):
        elements = blocks * 12 * 12 - blocks * 12 - 3 * 10 * 12 - 120
        carried_bps = elements * 6 * 948 / 1024 / 0.5e-3
        assert carried_bps == pytest.approx(per_hz * bandwidth_hz, rel=0.006)
        assert Tr37885(bandwidth_hz=bandwidth_hz).cap_bps == per_hz * bandwidth_hz


def test_the_cap_of_millimetre_waves_is_the_highest_rate_of_one_layer():
    """TS 38.306, 4.1.2: 264 blocks of 12 subcarriers, 14 symbols in 1/8 ms, 64QAM at 948/1024, less 18 %."""
    peak_bps = 264 * 12 * 14 * 8000 * 6 * 948 / 1024 * (1 - 0.18)
    studies = Path(__file__).parents[2] / "scenarios" / "studies"
    tables = {
        file.stem: tomllib.loads(file.read_text())["sizes"]["paper"]["settings"]["radio"]
        for file in studies.glob("*.toml")
        if "carrier_hz = 28e9" in file.read_text()
    }
    assert len(tables) >= 5
    for table in tables.values():
        assert Tr37885(**table).cap_bps == pytest.approx(peak_bps, rel=0.011)
        assert table == {**table, **tables["flsimco-fig5"]}, "all have the same"


@given(near=st.floats(1, 2000), further=st.floats(0.1, 2000), shadowing=st.floats(-10, 10))
def test_rate_falls_with_distance_and_with_shadowing(near, further, shadowing):
    far = rate_bps(UNCAPPED, near + further, 23.0, shadowing, "urban")
    assert 0 < far < rate_bps(UNCAPPED, near, 23.0, shadowing, "urban")
    assert far > rate_bps(UNCAPPED, near + further, 23.0, shadowing + 0.1, "urban")


def test_position_is_linear_between_points_and_stays_at_the_ends():
    path = path_of(((1.0, 0.0, 3.0), (2.0, 10.0, 5.0), (4.0, 12.0, 13.0)))
    expected = {1.0: (0, 3), 1.25: (2.5, 3.5), 2.0: (10, 5), 3.0: (11, 9), 0.0: (0, 3), 9.0: (12, 13)}
    assert {time_s: position_m(path, time_s) for time_s in expected} == expected


def test_position_survives_a_path_with_two_points_at_one_time():
    path = path_of(((0.0, 0.0, 0.0), (1.0, 1.0, 0.0), (1.0, 5.0, 0.0), (2.0, 6.0, 0.0)))
    assert position_m(path, 1.0) == (5.0, 0.0)
    assert position_m(path, 0.5) == (0.5, 0.0)


def test_constant_model():
    model = ConstantRate(rate_bps=7e6)
    link = Radio(model, Streams(seed=0)).link(HERE, RSU, 0)
    assert model.sidelink_bps(RSU, (0.0, 0.0), (1.0, 0.0), None) == 7e6
    assert link.downlink_bps(0.0) == link.uplink_bps(99.0) == 7e6
    assert link.update_s is None


def shadowing_db(vehicle_id: str, earlier_windows: int, seed: int = 0, settings: Tr37885 | None = None) -> float:
    """Return what the shadowing of a window takes from its signal."""
    settings = replace(settings or PLAIN, max_spectral_efficiency=100.0)
    shadowed = opened(settings, path_of(AT, vehicle_id=vehicle_id), earlier_windows=earlier_windows, seed=seed)
    return snr_db(opened(replace(settings, shadowing_db=0.0))) - snr_db(shadowed)


def test_shadowing_is_drawn_per_window_from_its_own_stream():
    assert shadowing_db("a", 0) == shadowing_db("a", 0)
    assert len({shadowing_db("a", 0), shadowing_db("a", 1), shadowing_db("b", 0), shadowing_db("a", 0, seed=1)}) == 4


def test_shadowing_has_the_deviation_set():
    draws = np.array([shadowing_db(f"v{i}", 0) for i in range(2000)])
    # standard errors: 3/sqrt(2000) = 0.067 for the mean, 3/sqrt(4000) = 0.047 for the deviation
    assert abs(draws.mean()) < 0.3
    assert abs(draws.std() - 3.0) < 0.2
    assert shadowing_db("a", 0, settings=replace(PLAIN, shadowing_db=0.0)) == 0.0
    doubled = shadowing_db("a", 0, settings=replace(PLAIN, shadowing_db=6.0))
    assert doubled == pytest.approx(2 * shadowing_db("a", 0), rel=1e-9)


@pytest.mark.parametrize(
    ("setting", "of_rsu", "expected"),
    [
        ("scenario", "", "urban"),
        ("scenario", "urban", "urban"),
        ("scenario", "highway", "highway"),
        ("urban", "highway", "urban"),
        ("highway", "", "highway"),
    ],
)
def test_the_environment_is_the_users_then_the_scenarios(setting, of_rsu, expected):
    settings, rsu = replace(UNCAPPED, environment=setting), replace(RSU, environment=of_rsu)
    assert settings.environment_of(rsu) == expected
    link = opened(replace(settings, shadowing_db=0.0), rsu=rsu)
    assert link.uplink_bps(0.0) == rate_bps(settings, space_m(100.0), 23.0, 0.0, expected)


def test_rates_at_the_cap_are_counted():
    radio = Radio(replace(PLAIN, shadowing_db=0.0), Streams(seed=0))
    use, env = radio.rate_use(), simpy.Environment()
    link = radio.link(path_of(((0.0, 10.0, 0.0), (10.0, 1010.0, 0.0))), RSU, 0)
    Channel(env, use).send(1e12, link.downlink_bps, lambda: None, update_s=1.0)
    link.uplink_bps(0.0)  # who asks without a transfer is not counted
    env.run(until=10.5)
    # 25.1 dB give 5 bit/s/Hz at a share of 0.6: up to about 250 m on urban roads
    assert use == RateUse(cap_bps=50e6, looked_up=11, capped=3)


def at_200_m(settings: Tr37885) -> Link:
    return opened(replace(settings, shadowing_db=0.0), path_of(((0.0, 200.0, 0.0),)), rsu=HIGHWAY)


@pytest.mark.parametrize(
    ("change", "difference_db"),
    [
        ({"efficiency": 0.3}, 0.0),
        ({"carrier_hz": 59e9}, -20.0),
        ({"bandwidth_hz": 100e6}, -10.0),
        ({"vehicle_power_dbm": 20.0}, -3.0),
        ({"rsu_power_dbm": 20.0}, 0.0),
        ({"rsu_antenna_dbi": 4.0}, 4.0),
        ({"vehicle_antenna_dbi": 2.0}, 2.0),
        ({"rsu_noise_figure_db": 5.0}, 4.0),
        ({"vehicle_noise_figure_db": 5.0}, 0.0),
        ({"environment": "urban"}, 32.4 - 38.77 + 3.3 * math.log10(math.hypot(200, 3.4)) + 1.8 * math.log10(5.9)),
    ],
    ids=str,
)
def test_settings_of_the_radio_change_the_signal_by_what_they_say(change, difference_db):
    changed = replace(UNCAPPED, **change)
    assert snr_db(at_200_m(changed), changed) - snr_db(at_200_m(UNCAPPED)) == pytest.approx(difference_db, abs=1e-9)


def test_each_receiver_has_its_own_noise_and_between_vehicles_the_rsu_has_no_part():
    still = replace(UNCAPPED, shadowing_db=0.0)
    quiet = opened(replace(still, vehicle_noise_figure_db=5.0))
    louder = opened(replace(still, rsu_power_dbm=27.0))
    assert quiet.downlink_bps(0.0) == pytest.approx(louder.downlink_bps(0.0), rel=1e-12)
    state = still.draw(np.random.default_rng(0), still.begin([RSU], []), (1.6, 1.6))
    places = (0.0, 0.0), (120.0, 0.0), state

    def sidelink(**change: float) -> float:
        return replace(still, **change).sidelink_bps(RSU, *places)  # type: ignore[arg-type]

    assert sidelink(rsu_power_dbm=40.0, rsu_antenna_dbi=9.0, rsu_noise_figure_db=2.0) == sidelink()
    as_strong = sidelink(vehicle_power_dbm=31.0)
    assert sidelink(vehicle_antenna_dbi=4.0) == pytest.approx(as_strong, rel=1e-12)
    assert sidelink(vehicle_antenna_dbi=2.0, vehicle_noise_figure_db=5.0) == pytest.approx(as_strong, rel=1e-12)


def test_the_cap_is_that_set():
    link = opened(replace(PLAIN, max_spectral_efficiency=2.5))
    assert (link.downlink_bps(0.0), link.update_s) == (25e6, 1.0)
