"""The recorded traffic of a run, for data sets that are made of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordedDrive:
    """A vehicle's path inside an RSU's disc, and the silo to which its images belong.

    Times of the points (s, ascending), positions in the net's coordinates (m) and speeds (m/s) have the shape (N,), N
    >= 2.
    """

    vehicle_id: str
    silo: int
    time_s: Floats
    x_m: Floats
    y_m: Floats
    speed_mps: Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordedTraffic:
    """All drives of one pass of the traffic, in order of entry, and the net file on whose roads they are."""

    net: Path
    drives: Sequence[RecordedDrive]
