from __future__ import annotations

import numpy as np
import pytest

from vnetsim.experiment import ComputeSettings
from vnetsim.random_streams import Streams
from vnetsim.simulation.compute import training_s, vehicle_flops


def test_training_time() -> None:
    assert training_s(3e12, 1.5e12) == 2.0


def test_no_spread_gives_the_median() -> None:
    assert vehicle_flops(ComputeSettings(median_flops=2e12, spread=0.0), "a", Streams(seed=0)) == 2e12


def test_a_vehicle_keeps_its_computer() -> None:
    settings, streams = ComputeSettings(), Streams(seed=3)
    assert vehicle_flops(settings, "a", streams) == vehicle_flops(settings, "a", streams)
    assert vehicle_flops(settings, "a", streams) != vehicle_flops(settings, "b", streams)
    assert vehicle_flops(settings, "a", streams) != vehicle_flops(settings, "a", Streams(seed=4))


def test_speeds_are_log_normal() -> None:
    settings = ComputeSettings(median_flops=1e12, spread=0.5)
    logs = np.log([vehicle_flops(settings, f"v{i}", Streams(seed=0)) for i in range(2000)])
    # standard errors: 0.5/sqrt(2000) = 0.011 for the mean, 0.008 for the deviation
    assert logs.mean() == pytest.approx(np.log(1e12), abs=0.05)
    assert logs.std() == pytest.approx(0.5, abs=0.04)
