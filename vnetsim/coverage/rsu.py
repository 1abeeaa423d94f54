"""A roadside unit: where it stands and how far it reaches."""

from __future__ import annotations

from dataclasses import dataclass

MAP_RADIUS = 1.3
"""Lanes are drawn within this many ranges of an RSU."""


@dataclass(frozen=True, kw_only=True)
class Rsu:
    """A roadside unit (RSU).

    Args:
        id: the POI's id, the junction's id, or ``"x,y"`` for one placed by coordinates.
        x_m: position in net coordinates (m), like ``y_m``.
        y_m: see ``x_m``.
        range_m: coverage radius (m), > 0.
        environment: what surrounds it, ``urban`` or ``highway``; empty where nobody says.
    """

    id: str
    x_m: float
    y_m: float
    range_m: float
    environment: str = ""


def degrees_hint(x_m: float, y_m: float) -> str:
    """Return what to say of an RSU without traffic whose place looks like longitude and latitude; empty for another."""
    if abs(x_m) <= 180 and abs(y_m) <= 90 and x_m % 1 and y_m % 1:
        return " x,y are metres of the net; this looks like longitude and latitude, which the net does not place."
    return ""
