"""On-board computing: how long a vehicle trains."""

from __future__ import annotations

import math

from vnetsim.experiment import ComputeSettings
from vnetsim.random_streams import Streams


def vehicle_flops(settings: ComputeSettings, vehicle_id: str, streams: Streams) -> float:
    """Return the sustained speed of a vehicle's computer (FLOP/s): log-normal, always the same for one id.

    Args:
        settings: median and spread.
        vehicle_id: the vehicle; names the random stream.
        streams: the experiment's random streams.
    """
    if settings.spread == 0:
        return settings.median_flops
    deviate = float(streams.generator("compute", vehicle_id).standard_normal())
    return settings.median_flops * math.exp(settings.spread * deviate)


def training_s(work_flop: float, flops: float) -> float:
    """Return how long ``work_flop`` operations take at ``flops`` operations a second (s)."""
    return work_flop / flops
