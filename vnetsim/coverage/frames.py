"""Sampled traffic as columns: the vehicles' positions at successive instants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from vnetsim.coverage.windows import EntryCause, ExitCause, Floats

Integers = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Frames:
    """Vehicles at successive instants. A row is one vehicle at one instant."""

    time_s: Floats  # the instants, strictly increasing (s), shape (T,)
    instant: Integers  # index into ``time_s`` of each row, shape (N,)
    # number of each row's vehicle, unique during the traffic, shape (N,); at most once for each instant
    vehicle: Integers
    x_m: Floats  # x in net coordinates (m), shape (N,), as ``y_m`` and ``speed_mps``
    y_m: Floats
    speed_mps: Floats
    # whether the source knows that the vehicle teleported since the previous instant, shape (N,)
    moved: NDArray[np.bool_]
    # whether the recording paused before an instant, shape (T,); None if it never did
    resumed: NDArray[np.bool_] | None = None


class Observer(Protocol):
    """A source's knowledge of the vehicles in its newest frames, queried only when a window opens or closes."""

    def vehicle_id(self, row: int) -> str:
        """Return the id of the vehicle in a row of the newest frames."""
        ...

    def vehicle_type(self, row: int) -> str:
        """Return the type of the vehicle in a row of the newest frames, empty if unknown."""
        ...

    def edge(self, row: int) -> str:
        """Return the id of the edge of the vehicle in a row of the newest frames, empty if unknown."""
        ...

    def appeared(self, row: int) -> EntryCause:
        """Return why the vehicle in a row is inside a disc although it has no row at the previous instant."""
        ...

    def vanished(self, vehicle: int, instant: int) -> ExitCause:
        """Return why a vehicle (its number), in a disc at the instant before index ``instant``, has no row there."""
        ...
