"""Formulas of TR 37.885 against values worked out by hand, and distributions against what they should be."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import kstest

from vnetsim.radio.capacity import noise_dbm, shannon_bps
from vnetsim.radio.models import Tr37885
from vnetsim.radio.propagation import (
    CAR_M,
    TRUCK_M,
    ShadowingField,
    blockage_db,
    line_of_sight_probability,
    path_loss_db,
)


@pytest.mark.parametrize(
    ("distance_m", "carrier_hz", "environment", "one_street", "loss_db"),
    [
        (10.0, 1e9, "urban", True, 38.77 + 16.7),
        (100.0, 10e9, "urban", True, 38.77 + 33.4 + 18.2),
        (100.0, 5.9e9, "urban", True, 38.77 + 33.4 + 18.2 * 0.7708520116421442),
        (10.0, 1e9, "highway", True, 52.4),
        (100.0, 10e9, "highway", True, 92.4),
        (10.0, 1e9, "urban", False, 66.85),
        (100.0, 10e9, "highway", False, 36.85 + 60 + 18.9),
        (0.0, 1e9, "urban", True, 38.77),
    ],
)
def test_path_loss_by_hand(distance_m, carrier_hz, environment, one_street, loss_db):
    found = path_loss_db(distance_m, carrier_hz, environment, one_street=one_street)
    assert found == pytest.approx(loss_db, abs=1e-12)


@pytest.mark.parametrize(
    ("distance_m", "environment", "probability"),
    [
        (0.0, "urban", 1.0),
        (4.0, "urban", 1.0),
        (100.0, "urban", 1.05 * 0.31981902181630384),  # exp(-1.14)
        (0.0, "highway", 1.0),
        (100.0, "highway", 0.840313),
        (475.0, "highway", 0.5434058125),
        (476.0, "highway", 0.539),
        (1100.0, "highway", 0.0),
    ],
)
def test_probability_of_line_of_sight_by_hand(distance_m, environment, probability):
    assert line_of_sight_probability(distance_m, environment) == pytest.approx(probability, abs=1e-12)


@pytest.mark.parametrize(
    ("antennas_m", "blocker_m", "distance_m", "deviate", "loss_db"),
    [
        ((5.0, 3.0), CAR_M, 100.0, 2.0, 0.0),  # a truck sees over a car
        ((5.0, 1.6), CAR_M, 100.0, 0.0, 5.0),  # an antenna at the height of the roof does not
        ((5.0, 1.6), TRUCK_M, 100.0, 0.5, 7.0),
        ((1.6, 1.6), TRUCK_M, 100.0, 1.0, 13.5),  # both below
        ((1.6, 1.6), TRUCK_M, 100.0, -3.0, 0.0),
        ((5.0, 1.6), CAR_M, 1000.0, 0.0, 9.0),  # 15 log10(1000) - 41 = 4
    ],
)
def test_blockage_by_hand(antennas_m, blocker_m, distance_m, deviate, loss_db):
    assert blockage_db(distance_m, antennas_m, blocker_m, deviate) == pytest.approx(loss_db, abs=1e-12)


def test_shadowing_is_gaussian_and_its_correlation_exponential():
    generator = np.random.default_rng(2)
    fields = [ShadowingField(generator) for _ in range(5000)]
    values = np.array([[field(x, y, 10.0) for x, y in ((0, 0), (3, 4), (10, 0), (0, 10), (0, 30))] for field in fields])
    assert kstest(values[:, 0], "norm").pvalue > 0.01
    assert values.std(axis=0) == pytest.approx(np.ones(5), abs=0.04)
    assert np.corrcoef(values.T)[0, 1:] == pytest.approx(np.exp([-0.5, -1.0, -1.0, -3.0]), abs=0.03)  # every way alike
    assert fields[0](6.0, 8.0, 10.0) == pytest.approx(fields[0](15.0, 20.0, 25.0), abs=1e-12), "places over its scale"


def test_noise_by_hand():
    assert noise_dbm(10e6, 9.0) == pytest.approx(-95.0, abs=1e-12)
    assert noise_dbm(1.0, 0.0) == -174.0


def test_shannon_by_hand():
    # SNR 3 (linear) gives 2 bit/s/Hz
    assert shannon_bps(10 * math.log10(3), 1e6, 1.0, 100.0) == pytest.approx(2e6, rel=1e-12)
    assert shannon_bps(10 * math.log10(3), 1e6, 0.5, 100.0) == pytest.approx(1e6, rel=1e-12)
    assert shannon_bps(10 * math.log10(3), 1e6, 1.0, 1.5) == 1.5e6
    # log2(1 + x) ~ x / ln 2, where 1 + x would round to 1
    assert shannon_bps(-200.0, 1e6, 1.0, 5.0) == pytest.approx(1e6 * 1e-20 / math.log(2), rel=1e-12)


@pytest.mark.parametrize("snr_db", [0.0, 5.0, 10.0, 15.0, 20.0])
def test_the_share_of_the_capacity_leaves_out_what_fast_fading_takes(snr_db):
    """By default 60 % of log2(1 + SNR) are 68 to 72 % of its mean over Rayleigh fading, which is E of it."""
    ergodic = quad(lambda gain: math.log2(1 + 10 ** (snr_db / 10) * gain) * math.exp(-gain), 0, 60, epsrel=1e-10)[0]
    assert 0.675 < shannon_bps(snr_db, 1.0, Tr37885().efficiency, 100.0) / ergodic < 0.725
