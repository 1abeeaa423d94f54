"""Whether buildings stand between two antennas, by the streets of the net."""

from __future__ import annotations

from collections.abc import Sequence

import shapely

from vnetsim.coverage.windows import Floats

STREET_M = 10.0
"""Free space beside the middle of a lane: half of it, a pavement, and what keeps houses from the road."""

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
