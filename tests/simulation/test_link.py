from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vnetsim.coverage import Track
from vnetsim.experiment import LinkSettings
from vnetsim.link import (
    ConstantLink,
    Tr37885Link,
    noise_dbm,
    open_link,
    path_loss_db,
    position_m,
    rate_bps,
    shannon_bps,
)
from vnetsim.random_streams import Streams
from vnetsim.rsu import Rsu

RSU = Rsu(id="r", x_m=0.0, y_m=0.0, range_m=250.0)
UNCAPPED = LinkSettings(max_spectral_efficiency=100.0)


def track(vehicle_id: str = "v", points: tuple[tuple[float, float, float], ...] = ((0.0, -100.0, 0.0),)) -> Track:
    t, x, y = (list(values) for values in zip(*points, strict=True))
    return Track(
        vehicle_id=vehicle_id,
        vehicle_type="car",
        rsu_id="r",
        entry_cause="crossing",
        entry_edge="",
        time_s=t,
        x_m=x,
        y_m=y,
        speed_mps=[10.0] * len(t),
    )


def test_path_loss_by_hand() -> None:
    # 10 m at 1 GHz: 38.77 + 16.7; 100 m at 10 GHz: 38.77 + 33.4 + 18.2
    assert path_loss_db(10.0, 1e9) == pytest.approx(55.47, abs=1e-12)
    assert path_loss_db(100.0, 10e9) == pytest.approx(90.37, abs=1e-12)
    # 100 m at 5.9 GHz: log10 5.9 = 0.7708520116421442
    assert path_loss_db(100.0, 5.9e9) == pytest.approx(38.77 + 33.4 + 18.2 * 0.7708520116421442, abs=1e-9)


def test_path_loss_has_a_floor_at_one_metre() -> None:
    assert path_loss_db(0.0, 1e9) == path_loss_db(1.0, 1e9) == pytest.approx(38.77)


def test_noise_by_hand() -> None:
    assert noise_dbm(10e6, 9.0) == pytest.approx(-95.0, abs=1e-12)
    assert noise_dbm(1.0, 0.0) == -174.0


def test_shannon_by_hand() -> None:
    # SNR 3 (linear) gives 2 bit/s/Hz
    assert shannon_bps(10 * math.log10(3), 1e6, 1.0, 100.0) == pytest.approx(2e6, rel=1e-12)
    assert shannon_bps(10 * math.log10(3), 1e6, 0.5, 100.0) == pytest.approx(1e6, rel=1e-12)
    assert shannon_bps(10 * math.log10(3), 1e6, 1.0, 1.5) == 1.5e6


def test_very_weak_signals_keep_their_digits() -> None:
    # log2(1 + x) ~ x / ln 2, where 1 + x would round to 1
    assert shannon_bps(-200.0, 1e6, 1.0, 5.0) == pytest.approx(1e6 * 1e-20 / math.log(2), rel=1e-12)


def test_rate_uses_the_distance_in_space() -> None:
    settings = replace(UNCAPPED, rsu_height_m=41.6, vehicle_height_m=1.6)
    # 30 m on the ground and 40 m in height: 50 m
    snr_db = 23.0 - path_loss_db(50.0, 5.9e9) - noise_dbm(10e6, 9.0)
    assert rate_bps(settings, 30.0, 23.0) == pytest.approx(10e6 * 0.6 * math.log2(1 + 10 ** (snr_db / 10)), rel=1e-12)


def test_the_cap_holds_near_the_rsu() -> None:
    assert rate_bps(LinkSettings(), 5.0, 23.0) == 5.0 * 10e6


@given(near=st.floats(0, 2000), further=st.floats(0.1, 2000), shadowing=st.floats(-10, 10))
def test_rate_falls_with_distance_and_with_shadowing(near: float, further: float, shadowing: float) -> None:
    far = rate_bps(UNCAPPED, near + further, 23.0, shadowing)
    assert 0 < far < rate_bps(UNCAPPED, near, 23.0, shadowing)
    assert far > rate_bps(UNCAPPED, near + further, 23.0, shadowing + 0.1)


def test_each_direction_has_its_own_power() -> None:
    settings = replace(UNCAPPED, rsu_power_dbm=30.0, vehicle_power_dbm=20.0)
    link = Tr37885Link(settings=settings, track=track(), rsu=RSU, shadowing_db=0.0)
    assert link.downlink_bps(0.0) == rate_bps(settings, 100.0, 30.0)
    assert link.uplink_bps(0.0) == rate_bps(settings, 100.0, 20.0)
    assert link.downlink_bps(0.0) > link.uplink_bps(0.0)


def test_rate_follows_the_position() -> None:
    moving = track(points=((0.0, -100.0, 0.0), (10.0, 0.0, 0.0)))
    link = Tr37885Link(settings=UNCAPPED, track=moving, rsu=RSU, shadowing_db=2.0)
    assert link.uplink_bps(5.0) == rate_bps(UNCAPPED, 50.0, 23.0, 2.0)


def test_position_is_linear_between_points_and_stays_at_the_ends() -> None:
    path = track(points=((1.0, 0.0, 0.0), (2.0, 10.0, 0.0), (4.0, 10.0, 8.0)))
    assert position_m(path, 1.0) == (0.0, 0.0)
    assert position_m(path, 1.25) == (2.5, 0.0)
    assert position_m(path, 2.0) == (10.0, 0.0)
    assert position_m(path, 3.0) == (10.0, 4.0)
    assert position_m(path, 0.0) == (0.0, 0.0)
    assert position_m(path, 9.0) == (10.0, 8.0)


def test_position_survives_a_path_with_two_points_at_one_time() -> None:
    path = track(points=((0.0, 0.0, 0.0), (1.0, 1.0, 0.0), (1.0, 5.0, 0.0), (2.0, 6.0, 0.0)))
    assert position_m(path, 1.0) == (5.0, 0.0)
    assert position_m(path, 0.5) == (0.5, 0.0)


def test_constant_model() -> None:
    link = open_link(LinkSettings(model="constant", rate_bps=7e6), track(), RSU, 0, Streams(seed=0))
    assert isinstance(link, ConstantLink)
    assert link.downlink_bps(0.0) == link.uplink_bps(99.0) == 7e6
    assert link.update_s is None


def shadowing_db(vehicle_id: str, visit: int, seed: int = 0, settings: LinkSettings | None = None) -> float:
    link = open_link(settings or LinkSettings(), track(vehicle_id), RSU, visit, Streams(seed=seed))
    assert isinstance(link, Tr37885Link)
    return link.shadowing_db


def test_shadowing_is_drawn_per_window_from_its_own_stream() -> None:
    assert shadowing_db("a", 0) == shadowing_db("a", 0)
    assert len({shadowing_db("a", 0), shadowing_db("a", 1), shadowing_db("b", 0), shadowing_db("a", 0, seed=1)}) == 4


def test_shadowing_has_the_deviation_set() -> None:
    draws = np.array([shadowing_db(f"v{i}", 0) for i in range(2000)])
    # standard errors: 3/sqrt(2000) = 0.067 for the mean, 3/sqrt(4000) = 0.047 for the deviation
    assert abs(draws.mean()) < 0.3
    assert abs(draws.std() - 3.0) < 0.2
    assert shadowing_db("a", 0, settings=LinkSettings(shadowing_db=0.0)) == 0.0
    assert shadowing_db("a", 0, settings=LinkSettings(shadowing_db=6.0)) == pytest.approx(2 * shadowing_db("a", 0))
