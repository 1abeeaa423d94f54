"""On-board computing: which computer a vehicle has, and how long it trains."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right

from vnetsim.experiment import ComputeSettings
from vnetsim.experiment.traffic import COMPUTERS, Computer
from vnetsim.random_streams import Streams


def vehicle_computer(settings: ComputeSettings, vehicle_id: str, streams: Streams) -> Computer:
    """Return a vehicle's computer, its speed drawn from a log-normal distribution: always the same for one id.

    Args:
        settings: presets with their shares, median and spread.
        vehicle_id: the vehicle; names the random streams.
        streams: the experiment's random streams.
    """
    presets = list(settings.shares)
    preset = presets[0]
    if len(presets) > 1:
        ends = list(itertools.accumulate(settings.shares.values()))
        drawn = float(streams.generator("fleet", vehicle_id).random())
        preset = presets[min(bisect_right(ends, drawn), len(presets) - 1)]  # shares may sum to a little less than 1
    flops = settings.median_of(preset)
    if settings.spread > 0:
        flops *= math.exp(settings.spread * float(streams.generator("compute", vehicle_id).standard_normal()))
    return COMPUTERS[preset]._replace(flops=flops)


def training_s(work_flop: float, flops: float) -> float:
    """Return how long ``work_flop`` operations take at ``flops`` operations a second (s)."""
    return work_flop / flops
