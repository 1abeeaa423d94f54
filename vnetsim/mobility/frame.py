"""A frame: where the vehicles near the RSUs are at one instant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from vnetsim.coverage import Floats


@dataclass(frozen=True, kw_only=True)
class Frame:
    """Vehicles at one time, as arrays of one length.

    ``time_s`` is the label SUMO's FCD output gives the step (live sources convert to it), so that a live
    simulation and its recording agree.

    Args:
        time_s: simulated time (s).
        ids: vehicle ids, unique.
        x_m: positions in SUMO's net coordinates (m), like ``y_m``; front bumper, as SUMO reports.
        y_m: see ``x_m``.
        speed_mps: speeds (m/s), >= 0.
        angle_rad: heading in SUMO's sense converted to radians: 0 = north, clockwise.
        edges: edge (road) ids, ``""`` where unknown.
        types: vehicle type ids, ``""`` where unknown; may be empty when the source asks for types lazily.
        arrived: ids that ended their trip in this step, where the source knows (live SUMO).
        teleporting: ids that started or ended a teleport in this step, where the source knows.
    """

    time_s: float
    ids: Sequence[str]
    x_m: Floats
    y_m: Floats
    speed_mps: Floats
    angle_rad: Floats
    edges: Sequence[str]
    types: Sequence[str] = ()
    arrived: frozenset[str] = field(default_factory=frozenset)
    teleporting: frozenset[str] = field(default_factory=frozenset)


class FrameSource(Protocol):
    """Anything that yields frames in strictly increasing time."""

    def frames(self) -> Iterator[Frame]:
        """Yield the frames in strictly increasing ``time_s``."""
        ...

    def close(self) -> None:
        """Release files, sockets, the simulator; may be called twice."""
        ...
