"""What every source of sampled traffic gives: who is where at successive instants, as columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from vnetsim.coverage.windows import EntryCause, ExitCause, Floats

Integers = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Frames:
    """Vehicles at some successive instants. All arrays but ``time_s`` have one entry a row: a vehicle at an instant.

    Args:
        time_s: the instants, strictly increasing (s), shape (T,).
        instant: index into ``time_s``, shape (N,).
        vehicle: which vehicle, a number that is its own as long as the traffic lasts; once an instant.
        x_m: position in net coordinates (m), like ``y_m``.
        y_m: see ``x_m``.
        speed_mps: speed (m/s).
        moved: whether the source knows that it did not drive here since the instant before (a teleport).
        resumed: whether, before an instant, the traffic was not seen for a while, shape (T,); None where it always was.
    """

    time_s: Floats
    instant: Integers
    vehicle: Integers
    x_m: Floats
    y_m: Floats
    speed_mps: Floats
    moved: NDArray[np.bool_]
    resumed: NDArray[np.bool_] | None = None


class Observer(Protocol):
    """What a source knows of the vehicles of its newest frames, asked only when a window opens or closes."""

    def vehicle_id(self, row: int) -> str:
        """Return the id of the vehicle of a row."""
        ...

    def vehicle_type(self, row: int) -> str:
        """Return the type of the vehicle of a row, ``""`` where unknown."""
        ...

    def edge(self, row: int) -> str:
        """Return the edge that the vehicle of a row is on, ``""`` where unknown."""
        ...

    def appeared(self, row: int) -> EntryCause:
        """Return why the vehicle of a row that goes on from no other row is now inside a disc."""
        ...

    def vanished(self, vehicle: int, instant: int) -> ExitCause:
        """Return why a vehicle that was inside a disc an instant before is not among the rows of an instant."""
        ...
