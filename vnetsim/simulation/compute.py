"""On-board computing: a vehicle's computer, and the energy of a participation."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

from vnetsim.experiment import ComputeSettings
from vnetsim.experiment.traffic import COMPUTERS, Computer
from vnetsim.random_streams import Streams

TRANSMIT_W, RECEIVE_W = 2.0, 1.0
"""Power of a vehicle's radio unit while it sends, and while it receives or listens (W). Assumed, without a source: an
amplifier needs about 1 W to radiate 0.2 W (23 dBm), the rest of the unit 1 W."""


def energy_j(seconds: Mapping[Any, float], watts: float | None, worked_s: float) -> dict[str, float]:
    """Return the extra energy that a participation needs on board (J), by column of the table ``participations``.

    ``seconds`` are by stage, ``watts`` the computer's power while it trains (W), ``worked_s`` how long it computed for
    others in the exchange (s), during which it may also send. Empty if ``watts`` is None, which means not known.
    """
    if watts is None:
        return {}
    return {
        "download_j": RECEIVE_W * seconds["download"],
        "train_j": watts * seconds["training"],
        "upload_j": TRANSMIT_W * seconds["upload"],
        "wait_j": RECEIVE_W * (seconds["waiting"] + seconds["outside"]),
        "exchange_j": TRANSMIT_W * seconds["exchange"] + watts * worked_s,
    }


def vehicle_computer(settings: ComputeSettings, vehicle_id: str, streams: Streams, vehicle_type: str = "") -> Computer:
    """Return a vehicle's computer, equal for equal ids: its type's preset or one drawn by shares; log-normal speed."""
    presets = list(settings.shares)
    preset = settings.by_type.get(vehicle_type, presets[0])
    if len(presets) > 1 and vehicle_type not in settings.by_type:
        ends = list(itertools.accumulate(settings.shares.values()))
        uniform = float(streams.generator("fleet", vehicle_id).random())
        preset = presets[min(bisect_right(ends, uniform), len(presets) - 1)]  # shares may sum to a little less than 1
    flops = settings.median_of(preset)
    if settings.spread > 0:
        flops *= math.exp(settings.spread * float(streams.generator("compute", vehicle_id).standard_normal()))
    return COMPUTERS[preset]._replace(flops=flops)
