"""Reads a recording's road net (``.net.xml``) without SUMO: its place on the Earth, junctions and lanes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vnetsim.coverage.placement import BESIDE_M, Poi
from vnetsim.coverage.windows import Floats
from vnetsim.errors import InputError
from vnetsim.xml_files import XmlFile

_AXIS_M, _FLATTENING = 6_378_137.0, 1 / 298.257223563
_SCALE, _EAST_M, _SOUTH_M = 0.9996, 500_000.0, 10_000_000.0


class Place(NamedTuple):
    """Place of a net on the Earth: a UTM zone of WGS 84, and the offset of SUMO's coordinates."""

    zone: int  # from 1 to 60
    south: bool  # whether the zone is in the southern hemisphere
    offset_m: tuple[float, float]  # what SUMO added to the projected x and y (m)

    @classmethod
    def parse(cls, parameters: str, offset: str) -> Place | None:
        """Return a net's place; None if its projection is not UTM; ValueError if ``offset`` is not ``x,y`` (m)."""
        zone = re.search(r"\+zone=(\d+)", parameters)
        if "+proj=utm" not in parameters or zone is None or not re.search(r"=(WGS84|GRS80)\b", parameters):
            return None
        x_m, y_m = (float(part) for part in offset.split(","))
        return cls(int(zone[1]), "+south" in parameters, (x_m, y_m))

    def project(self, longitude: Floats, latitude: Floats) -> tuple[Floats, Floats]:
        """Return net x and y (m) of degrees, to a millimetre: Krueger's series (Karney, J. of Geodesy 85, 2011)."""
        n = _FLATTENING / (2 - _FLATTENING)
        radius_m = _AXIS_M / (1 + n) * (1 + n**2 / 4 + n**4 / 64)
        series = (n / 2 - 2 * n**2 / 3 + 5 * n**3 / 16, 13 * n**2 / 48 - 3 * n**3 / 5, 61 * n**3 / 240)
        eccentricity = 2 * np.sqrt(n) / (1 + n)
        sine = np.sin(np.radians(latitude))
        # tangent of the conformal latitude
        tangent = np.sinh(np.arctanh(sine) - eccentricity * np.arctanh(eccentricity * sine))
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


@dataclass
class NetFile:
    """A SUMO net file (``.net.xml`` or ``.net.xml.gz``); InputError if it is missing or not a net."""

    path: Path | None  # the file; None for a recording without a net: it is then empty
    _junctions: dict[str, tuple[float, float]] = field(default_factory=dict, init=False)
    _signalised: dict[str, int] = field(default_factory=dict, init=False)
    # its place on the Earth; None unless the file gives it in UTM
    place: Place | None = field(default=None, init=False)
    _corners_m: tuple[float, ...] = field(default=(), init=False)
    lanes_m: dict[str, Floats] = field(default_factory=dict, init=False)  # polylines (points, 2) by lane id

    def __post_init__(self) -> None:
        if self.path is None:
            return
        roots: list[str] = []

        def start(name: str, attributes: Mapping[str, str]) -> None:
            """Store the element, and the first one's name in ``roots``; InputError for a malformed element."""
            roots[:] = roots or [name]
            try:
                self._add_element(name, attributes)
            except (LookupError, ValueError) as error:
                raise InputError(f"{file.where}: not a SUMO net: malformed element: {error}.") from error

        file = XmlFile(self.path, start)
        file.read()
        if roots[0] != "net":
            raise InputError(f"{self.path}: not a SUMO net: its root element is <{roots[0]}>, not <net>.")

    def _add_element(self, name: str, attributes: Mapping[str, str]) -> None:
        """Store a junction, a lane or the net's location; raise LookupError or ValueError for a malformed one."""
        if name == "junction" and attributes.get("type") != "internal":
            self._junctions[attributes["id"]] = float(attributes["x"]), float(attributes["y"])
            if attributes.get("type", "").startswith("traffic_light"):
                self._signalised[attributes["id"]] = len(attributes.get("incLanes", "").split())
        elif name == "location":
            self.place = Place.parse(attributes.get("projParameter", ""), attributes.get("netOffset", ""))
            self._corners_m = tuple(float(part) for part in attributes["convBoundary"].split(",")) if self.place else ()
        elif name == "lane":
            points = [point.split(",")[:2] for point in attributes["shape"].split()]
            x_m, y_m = np.array(points, dtype=np.float64).T  # fails unless the shape consists of points
            self.lanes_m[attributes["id"]] = np.column_stack((x_m, y_m))

    def junction_ids(self) -> Sequence[str]:
        """Return the ids of the junctions, without the internal ones."""
        return list(self._junctions)

    def junction_position(self, junction_id: str) -> tuple[float, float]:
        """Return x and y of a junction (m); raise KeyError if the net does not have it."""
        return self._junctions[junction_id]

    def projected(self, longitude: float, latitude: float) -> tuple[float, float] | None:
        """Return x and y (m) of a place in or near the net; None elsewhere, or if the net's place is unknown."""
        found = self.project_places(np.array([longitude]), np.array([latitude]))
        return None if found is None else (float(found[0][0]), float(found[1][0]))

    def project_places(self, longitude: Floats, latitude: Floats) -> tuple[Floats, Floats] | None:
        """Return x and y (m) of longitudes and latitudes (degrees), arrays of equal length.

        None if one of them is out of range, if fewer than half of the places are in or near the net, or if the net's
        place on the Earth is unknown.
        """
        degrees = (np.abs(longitude) <= 180) & (np.abs(latitude) <= 90)
        if self.place is None or not degrees.all():
            return None
        west_m, south_m, east_m, north_m = self._corners_m
        x_m, y_m = self.place.project(longitude, latitude)
        inside = (x_m >= west_m - BESIDE_M) & (x_m <= east_m + BESIDE_M)
        inside &= (y_m >= south_m - BESIDE_M) & (y_m <= north_m + BESIDE_M)
        return (x_m, y_m) if len(inside) and inside.mean() >= 0.5 else None

    def rsu_pois(self) -> Sequence[Poi]:
        """Return nothing: a net file contains no points of interest."""
        return ()

    def busiest_junction(self) -> tuple[str, str]:
        """Raise InputError: the demand of a recording is unknown before it is read."""
        raise InputError(f"{self.path}: name a junction of it with --rsu JUNCTION[:range_m].")

    def signalised_junctions(self, *, busiest_first: bool) -> Sequence[str]:
        """Return the ids of junctions with traffic lights, sorted by name, or those with most incoming lanes first."""
        lanes = self._signalised
        return sorted(lanes, key=lambda name: (-lanes[name], name)) if busiest_first else sorted(lanes)

    def lane_shape(self, lane_id: str) -> Floats | None:
        """Return a lane's polyline (points, 2) in m with at least two points; None if the net has no such lane."""
        lane = self.lanes_m.get(lane_id)
        return lane if lane is None or len(lane) > 1 else np.repeat(lane, 2, axis=0)

    @property
    def all_lanes(self) -> tuple[Floats, ...]:
        """All lanes as polylines (points, 2) in m."""
        return tuple(self.lanes_m.values())
