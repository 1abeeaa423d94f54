"""Roadside units: position and range, and which streets around them maps show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_MOST_LANES = 20_000
"""Of more lanes in the frame of the map, only those near an RSU are kept."""
_WIDE, _TALL = 1.65, 0.6
"""Least width over height, and height over width, of the frame: boxes in which pages draw maps have such shapes."""


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


def near_m(rsu: Rsu) -> float:
    """Return how far from an RSU (m) streets count as near: 1.3 times its range, but at least 100 m beyond it."""
    return max(1.3 * rsu.range_m, rsu.range_m + 100.0)


def map_frame(rsus: Sequence[Rsu]) -> tuple[float, float, float, float]:
    """Return the frame of maps around all RSUs: centre x, centre y, half the width and half the height (m)."""
    west, east = min(one.x_m - near_m(one) for one in rsus), max(one.x_m + near_m(one) for one in rsus)
    south, north = min(one.y_m - near_m(one) for one in rsus), max(one.y_m + near_m(one) for one in rsus)
    half_x, half_y = (east - west) / 2, (north - south) / 2
    return (west + east) / 2, (south + north) / 2, max(half_x, _WIDE * half_y), max(half_y, _TALL * half_x)


def near_lanes(lanes: Sequence[NDArray[np.float64]], rsus: Sequence[Rsu]) -> tuple[NDArray[np.float64], ...]:
    """Return the lanes, polylines (points, 2) in m, whose bounding box is near an RSU."""
    return lanes_within(lanes, [(one.x_m, one.y_m, near_m(one), near_m(one)) for one in rsus])


def map_lanes(
    lanes: Mapping[str, NDArray[np.float64]], rsus: Sequence[Rsu]
) -> tuple[tuple[NDArray[np.float64], ...], tuple[str, ...]]:
    """Return the lanes (polylines, m) in the map's frame and no note; of over 20,000 those near RSUs, and a note."""
    shown = lanes_within(list(lanes.values()), [map_frame(rsus)])
    if len(shown) <= _MOST_LANES:
        return shown, ()
    note = f"Maps show only the streets near an RSU: there are {len(shown):,} lanes in the frame."
    return near_lanes(shown, rsus), (note,)


def lanes_within(
    lanes: Sequence[NDArray[np.float64]], boxes: Sequence[tuple[float, float, float, float]]
) -> tuple[NDArray[np.float64], ...]:
    """Return the lanes whose bounding box touches a box: centre x, centre y, half the width, half the height (m)."""
    lanes = [lane for lane in lanes if len(lane)]
    if not lanes:
        return ()
    begins = np.cumsum([0, *map(len, lanes[:-1])])  # at once: a city has 10^5 lanes
    low, high = (end.reduceat(np.concatenate(lanes), begins) for end in (np.minimum, np.maximum))
    found = np.zeros(len(lanes), bool)
    for x_m, y_m, half_x, half_y in boxes:
        found |= ((low <= (x_m + half_x, y_m + half_y)) & (high >= (x_m - half_x, y_m - half_y))).all(axis=1)
    return tuple(lane for lane, keep in zip(lanes, found, strict=True) if keep)


def degrees_hint(x_m: float, y_m: float) -> str:
    """Return a hint to append to a message if an RSU's position looks like longitude and latitude, else empty."""
    if abs(x_m) <= 180 and abs(y_m) <= 90 and x_m % 1 and y_m % 1:
        return " x,y are metres of the net; this looks like longitude and latitude, which the net does not place."
    return ""
