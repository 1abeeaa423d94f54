"""Whether buildings stand between two antennas, by the streets of the net or by the polygons of SUMO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import shapely
from shapely.validation import explain_validity

from vnetsim.coverage.windows import Floats
from vnetsim.errors import InputError
from vnetsim.xml_files import XmlFile

STREET_M = 10.0
"""Free space beside the middle of a lane: half of it, a pavement, and what keeps houses from the road."""

BUILDING = "building"
"""What the types of SUMO's polygons of buildings begin with, as polyconvert writes them from OpenStreetMap."""

Point = tuple[float, float]


class Streets:
    """Buildings stand wherever there is no street: a line of sight must stay within ``STREET_M`` of lanes.

    So a street that meets the RSU's junction is seen to its first bend or, straight on, through further junctions; side
    streets are seen into from a junction's middle alone. It needs the shapes of the lanes and no more, which recordings
    keep, and holds between two vehicles as well. An RSU further away from the road sees the nearest of it.

    Args:
        lanes: polylines, each an array (points, 2) in m; at least one.
        rsus_m: where RSUs stand (x and y in m).
    """

    def __init__(self, lanes: Sequence[Floats], rsus_m: Sequence[Point]) -> None:
        lines = [shapely.LineString(lane) for lane in lanes if len(lane) > 1]
        roads = shapely.union_all(lines)
        to_roads = [shapely.shortest_line(shapely.Point(place), roads) for place in rsus_m]
        self._free = shapely.union_all(shapely.buffer([*lines, *to_roads], STREET_M, quad_segs=4))
        shapely.prepare(self._free)

    def clear(self, one_m: Point, other_m: Point) -> bool:
        """Return whether the line between two places stays on streets."""
        return bool(shapely.covers(self._free, shapely.LineString([one_m, other_m])))


class Buildings:
    """Buildings stand where polygons of SUMO do. One that holds an RSU, also at its wall, carries it and hides nothing.

    Args:
        file: SUMO additional file with ``poly`` elements in the net's coordinates.
        rsus_m: where RSUs stand (x and y in m) by id.

    Attributes:
        notes: a line for each RSU that a building carries.

    Raises:
        InputError: the file cannot be read, has no building, or one that is no polygon or intersects itself.
    """

    def __init__(self, file: Path, rsus_m: Mapping[str, Point]) -> None:
        found: list[shapely.Polygon] = []

        def start(name: str, attributes: Mapping[str, str]) -> None:
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

        xml = XmlFile(file, start)
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

    def clear(self, one_m: Point, other_m: Point) -> bool:
        """Return whether no building stands on the line between two places."""
        return not len(self._tree.query(shapely.LineString([one_m, other_m]), predicate="intersects"))
