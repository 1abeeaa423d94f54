"""Converts longitudes and latitudes to metres of a SUMO net by the universal transverse Mercator projection (UTM)."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from vnetsim.coverage.windows import Floats

_AXIS_M, _FLATTENING = 6_378_137.0, 1 / 298.257223563
_SCALE, _EAST_M, _SOUTH_M = 0.9996, 500_000.0, 10_000_000.0


class Place(NamedTuple):
    """Place of a net on the Earth: a UTM zone of WGS 84, and the offset of SUMO's coordinates.

    Args:
        zone: from 1 to 60.
        south: whether the zone is in the southern hemisphere.
        offset_m: what SUMO added to x and y (m).
    """

    zone: int
    south: bool
    offset_m: tuple[float, float]

    @classmethod
    def of(cls, parameters: str, offset: str) -> Place | None:
        """Return the place from a net's ``projParameter`` and ``netOffset``; None if the projection is not UTM."""
        zone = re.search(r"\+zone=(\d+)", parameters)
        if "+proj=utm" not in parameters or zone is None or not re.search(r"=(WGS84|GRS80)\b", parameters):
            return None
        x_m, y_m = (float(part) for part in offset.split(","))
        return cls(int(zone[1]), "+south" in parameters, (x_m, y_m))

    def project(self, longitude: Floats, latitude: Floats) -> tuple[Floats, Floats]:
        """Return x and y (m) of places in degrees, accurate to a millimetre inside the zone.

        Uses Krueger's series in the third flattening: Karney, Journal of Geodesy 85 (2011).
        """
        n = _FLATTENING / (2 - _FLATTENING)
        radius_m = _AXIS_M / (1 + n) * (1 + n**2 / 4 + n**4 / 64)
        series = (n / 2 - 2 * n**2 / 3 + 5 * n**3 / 16, 13 * n**2 / 48 - 3 * n**3 / 5, 61 * n**3 / 240)
        eccentricity = 2 * np.sqrt(n) / (1 + n)
        sine = np.sin(np.radians(latitude))
        tangent = np.sinh(
            np.arctanh(sine) - eccentricity * np.arctanh(eccentricity * sine)
        )  # tangent of the conformal latitude
        east = np.radians(longitude - (6 * self.zone - 183))
        north = np.arctan2(tangent, np.cos(east))
        across = np.arcsinh(np.sin(east) / np.hypot(tangent, np.cos(east)))
        x, y = across, north
        for k, a in enumerate(series, 1):
            x = x + a * np.cos(2 * k * north) * np.sinh(2 * k * across)
            y = y + a * np.sin(2 * k * north) * np.cosh(2 * k * across)
        scale_m = _SCALE * radius_m
        return (
            _EAST_M + scale_m * x + self.offset_m[0],
            scale_m * y + (_SOUTH_M if self.south else 0.0) + self.offset_m[1],
        )
