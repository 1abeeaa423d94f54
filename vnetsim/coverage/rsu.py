"""Roadside units: position and range."""

from __future__ import annotations

from dataclasses import dataclass

MAP_RADIUS = 1.3
"""Maps show the lanes within this many ranges of an RSU."""


@dataclass(frozen=True, kw_only=True)
class Rsu:
    """A roadside unit (RSU).

    Args:
        id: the POI's id, the junction's id, or ``"x,y"`` for one placed by coordinates.
        x_m: x in net coordinates (m), as ``y_m``.
        range_m: coverage radius (m), > 0.
        environment: its surroundings, ``urban`` or ``highway``; empty if unknown.
    """

    id: str
    x_m: float
    y_m: float
    range_m: float
    environment: str = ""


def degrees_hint(x_m: float, y_m: float) -> str:
    """Return a hint if the position of an RSU looks like longitude and latitude, else empty."""
    if abs(x_m) <= 180 and abs(y_m) <= 90 and x_m % 1 and y_m % 1:
        return " x,y are metres of the net; this looks like longitude and latitude, which the net does not place."
    return ""
