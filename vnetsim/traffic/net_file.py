"""Reads a recording's road net (``.net.xml``) without SUMO: its place on the Earth, junctions and lanes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vnetsim.coverage.placement import BESIDE_M, Poi
from vnetsim.coverage.rsu import MAP_RADIUS, Rsu
from vnetsim.errors import InputError
from vnetsim.traffic.projection import Place
from vnetsim.xml_files import XmlFile


@dataclass
class NetFile:
    """A SUMO net file (``.net.xml`` or ``.net.xml.gz``).

    Args:
        path: the file; None for a recording without a net: it is then empty.
        place: its place on the Earth; None unless the file gives it in UTM.

    Raises:
        InputError: it is missing or not a net.
    """

    path: Path | None
    _junctions: dict[str, tuple[float, float]] = field(default_factory=dict, init=False)
    _signalised: dict[str, int] = field(default_factory=dict, init=False)
    place: Place | None = field(default=None, init=False)
    _corners_m: tuple[float, ...] = field(default=(), init=False)
    _lanes: dict[str, NDArray[np.float64]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        if self.path is None:
            return
        roots: list[str] = []

        def start(name: str, attributes: Mapping[str, str]) -> None:
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
        if name == "junction" and attributes.get("type") != "internal":
            self._junctions[attributes["id"]] = float(attributes["x"]), float(attributes["y"])
            if attributes.get("type", "").startswith("traffic_light"):
                self._signalised[attributes["id"]] = len(attributes.get("incLanes", "").split())
        elif name == "location":
            self.place = Place.of(attributes.get("projParameter", ""), attributes.get("netOffset", ""))
            self._corners_m = tuple(float(part) for part in attributes["convBoundary"].split(",")) if self.place else ()
        elif name == "lane":
            points = [point.split(",")[:2] for point in attributes["shape"].split()]
            x_m, y_m = np.array(points, dtype=np.float64).T  # fails unless the shape consists of points
            self._lanes[attributes["id"]] = np.column_stack((x_m, y_m))

    def junction_ids(self) -> Sequence[str]:
        """Return the junctions, without the internal ones."""
        return list(self._junctions)

    def junction_position(self, junction_id: str) -> tuple[float, float]:
        """Return x and y of a junction (m)."""
        return self._junctions[junction_id]

    def projected(self, longitude: float, latitude: float) -> tuple[float, float] | None:
        """Return x and y (m) of a place in or near the net; None elsewhere, or if the net's place is unknown."""
        found = self.all_projected(np.array([longitude]), np.array([latitude]))
        return None if found is None else (float(found[0][0]), float(found[1][0]))

    def all_projected(
        self, longitude: NDArray[np.float64], latitude: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Return x and y (m) of places if at least half of them are in or near the net, else None."""
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
        """Raise ``InputError``: the demand of a recording is unknown before it is read."""
        raise InputError(f"{self.path}: name a junction of it with --rsu JUNCTION[:range_m].")

    def signalised_junctions(self, *, busiest_first: bool) -> Sequence[str]:
        """Return the junctions with traffic lights, sorted by name or by their number of incoming lanes."""
        lanes = self._signalised
        return sorted(lanes, key=lambda name: (-lanes[name], name)) if busiest_first else sorted(lanes)

    def shape(self, lane_id: str) -> NDArray[np.float64] | None:
        """Return a lane's polyline (points, 2) in m with at least two points; None if the net has no such lane."""
        lane = self._lanes.get(lane_id)
        return lane if lane is None or len(lane) > 1 else np.repeat(lane, 2, axis=0)

    def lanes(self, rsus: Sequence[Rsu]) -> tuple[NDArray[np.float64], ...]:
        """Return the lanes with a point within 1.3 ranges of an RSU, as polylines (points, 2) in m."""

        def near(lane: NDArray[np.float64], rsu: Rsu) -> np.bool_:
            return (np.hypot(lane[:, 0] - rsu.x_m, lane[:, 1] - rsu.y_m) <= MAP_RADIUS * rsu.range_m).any()

        return tuple(lane for lane in self._lanes.values() if any(near(lane, rsu) for rsu in rsus))
