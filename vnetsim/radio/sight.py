"""Decides whether buildings block the line between two antennas, from the net's streets or SUMO's polygons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import shapely
from shapely.validation import explain_validity

from vnetsim.coverage.windows import Floats
from vnetsim.errors import InputError
from vnetsim.radio import PositionM
from vnetsim.xml_files import XmlFile

STREET_M = 10.0
"""Free space (m) on each side of a lane's middle: half of the lane, a pavement, and a gap to the houses."""

BUILDING = "building"
"""Prefix of the types of SUMO's polygons of buildings, as polyconvert writes them from OpenStreetMap."""


class Streets:
    """Assumes buildings wherever there is no street: a line of sight must stay within ``STREET_M`` of lanes.

    So an RSU at a junction sees its streets to their first bend, and straight on through further junctions; only from
    the middle of a junction does it see into side streets. An RSU away from the road sees the nearest part of the road.
    The same applies between two vehicles. ``lanes`` are polylines, each an array (points, 2) in m; at least one needs
    two points. ``rsus_m`` are the positions of RSUs.
    """

    def __init__(self, lanes: Sequence[Floats], rsus_m: Sequence[PositionM]) -> None:
        lines = [shapely.LineString(lane) for lane in lanes if len(lane) > 1]
        roads = shapely.union_all(lines)
        to_roads = [shapely.shortest_line(shapely.Point(place), roads) for place in rsus_m]
        self._free = shapely.union_all(shapely.buffer([*lines, *to_roads], STREET_M, quad_segs=4))
        shapely.prepare(self._free)

    def is_clear(self, one_m: PositionM, other_m: PositionM) -> bool:
        """Return whether the line between two places (m) stays on streets."""
        return bool(shapely.covers(self._free, shapely.LineString([one_m, other_m])))


class Buildings:
    """Buildings from SUMO's polygons. A building with an RSU in it or at its wall is ignored: it carries the RSU.

    ``file`` is a SUMO additional file with ``poly`` elements in the net's coordinates, ``rsus_m`` has positions of RSUs
    by id. InputError if the file is unreadable, has no building, or one that is not a polygon or intersects itself.
    ``notes`` has a line for each RSU on a building.
    """

    def __init__(self, file: Path, rsus_m: Mapping[str, PositionM]) -> None:
        found: list[shapely.Polygon] = []

        def add_building(name: str, attributes: Mapping[str, str]) -> None:
            """Add the building of an XML element, if it is one; InputError for one without a valid shape in metres."""
            if name != "poly" or not attributes.get("type", "").startswith(BUILDING):
                return
            who = f"{xml.where}: building '{attributes.get('id', '')}'"
            if attributes.get("geo", "").lower() in ("1", "true", "yes", "on"):
                raise InputError(f"{who} is in degrees (geo); give its shape in the net's coordinates.")
            try:
                points = [tuple(map(float, point.split(",")[:2])) for point in attributes.get("shape", "").split()]
                shape = shapely.Polygon(points)
            except ValueError as error:
                raise InputError(f"{who} has no shape of three points x,y or more: {error}.") from None
            if not shape.is_valid or shape.is_empty:
                raise InputError(f"{who} is no area ({explain_validity(shape)}); mend its shape, or leave it out.")
            found.append(shape)

        xml = XmlFile(file, add_building)
        xml.read()
        if not found:
            raise InputError(
                f'{file}: no building in it; they are written as <poly type="{BUILDING}..." shape="..."/>.'
            )
        tree = shapely.STRtree(found)
        below = {rsu: tree.query(shapely.Point(place), predicate="intersects") for rsu, place in rsus_m.items()}
        self.notes = [
            f"RSU '{rsu}' stands in or at a building of {file.name}, which is taken to carry it and to hide nothing."
            for rsu, buildings in below.items()
            if len(buildings)
        ]
        carrying = {int(index) for buildings in below.values() for index in buildings}
        self._tree = shapely.STRtree([shape for index, shape in enumerate(found) if index not in carrying])

    def is_clear(self, one_m: PositionM, other_m: PositionM) -> bool:
        """Return whether no building is on the line between two places (m), except those that carry an RSU."""
        return not len(self._tree.query(shapely.LineString([one_m, other_m]), predicate="intersects"))
