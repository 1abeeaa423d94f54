"""The road net of a running SUMO, for placing RSUs, drawing a map and choosing the radius of subscriptions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from vnetsim.coverage.placement import BESIDE_M, Poi
from vnetsim.coverage.rsu import Rsu, map_frame, map_lanes, near_m
from vnetsim.coverage.windows import Floats
from vnetsim.errors import InputError
from vnetsim.progress import ProgressDisplay
from vnetsim.traffic.sumo.counts import count_leaving
from vnetsim.traffic.vehicle_types import NOT_MOTOR

# constants of TraCI, copied because importing traci takes time
LANES, VEHICLES = 0xA3, 0xA4
SPEED, MAX_SPEED, POSITION, SHAPE = 0x40, 0x41, 0x42, 0x4E

_FRAME = "vnetsim.frame"
_SHARED = "vnetsim.shared"
_POI_TYPE = "vnetsim"
"""Not ``rsu``, the type by which a scenario marks its own RSUs."""
_SPEED_FACTOR = 2.0
_LONGEST_S = 1800.0
"""Time (s) of the scenario in which vehicles are counted: enough to find busy junctions, and cheaper than the run."""


@dataclass(frozen=True)
class SumoNet:
    """The net of a started SUMO."""

    api: Any  # the TraCI connection
    config: Path  # the ``.sumocfg``
    options: Sequence[str]  # SUMO's options from the user's settings, for the run that counts vehicles
    progress: ProgressDisplay | None  # shows that the busiest junction is searched; None for no display

    @cached_property
    def longest_jump_m(self) -> float:
        """Largest jump (m) of a vehicle over a junction, in a net without internal lanes; 0 if the net has them."""
        if any(lane.startswith(":") for lane in self.api.lane.getIDList()):
            return 0.0
        shapes = [np.array(self.api.junction.getShape(name)) for name in self._junctions]
        return max((float(np.hypot(*np.ptp(shape[:, :2], axis=0))) for shape in shapes if len(shape)), default=0.0)

    @cached_property
    def _junctions(self) -> list[str]:
        """The ids of the junctions, without the internal ones."""
        return [junction for junction in self.api.junction.getIDList() if not junction.startswith(":")]

    def junction_ids(self) -> Sequence[str]:
        """Return the ids of the junctions, without the internal ones."""
        return self._junctions

    def junction_position(self, junction_id: str) -> tuple[float, float]:
        """Return x and y of a junction (m)."""
        x_m, y_m = self.api.junction.getPosition(junction_id)[:2]
        return x_m, y_m

    def projected(self, longitude: float, latitude: float) -> tuple[float, float] | None:
        """Return x and y (m) of a place in or near the net; None elsewhere, or if the net's place is unknown."""
        try:
            x_m, y_m = self.api.simulation.convertGeo(longitude, latitude, fromGeo=True)
        except self.api.TraCIException:
            return None
        (west_m, south_m), (east_m, north_m) = self.api.simulation.getNetBoundary()
        inside = west_m - BESIDE_M <= x_m <= east_m + BESIDE_M and south_m - BESIDE_M <= y_m <= north_m + BESIDE_M
        # SUMO answers with the same numbers if it does not know the net's place
        return (x_m, y_m) if inside and (x_m, y_m) != (longitude, latitude) else None

    def rsu_pois(self) -> Sequence[Poi]:
        """Return the points of interest of type ``rsu``, sorted by id."""
        api = self.api.poi
        return [
            Poi(
                id=poi,
                x_m=position[0],
                y_m=position[1],
                range_text=api.getParameter(poi, "range").strip(),
                environment=api.getParameter(poi, "environment").strip(),
            )
            for poi in sorted(api.getIDList())
            if api.getType(poi) == "rsu"
            for position in (api.getPosition(poi),)
        ]

    def signalised_junctions(self, *, busiest_first: bool) -> Sequence[str]:
        """Return ids of junctions with traffic lights, by name, or the busiest first as counted in a run of SUMO."""
        incoming_lanes = self._find_signalised()
        return list(self._count_passes(incoming_lanes)) if busiest_first else sorted(incoming_lanes)

    def busiest_junction(self) -> tuple[str, str]:
        """Return the id of the busiest signalised junction, and in words why it was chosen.

        It is the one with most vehicles in a run of SUMO over the beginning of the scenario, or else with most incoming
        lanes. In a net without traffic lights all junctions are considered; InputError if there is none.
        """
        incoming_lanes = self._find_signalised()
        kind = "signalised junction"
        if not incoming_lanes:
            kind = "junction (none is signalised)"
            for edge in self.api.edge.getIDList():
                if not edge.startswith(":"):
                    lane_ids = {f"{edge}_{index}" for index in range(self.api.edge.getLaneNumber(edge))}
                    incoming_lanes.setdefault(self.api.edge.getToJunction(edge), set()).update(lane_ids)
        if not incoming_lanes:
            raise InputError("The net has no junction to place an RSU at; name a position with --rsu x,y.")
        if len(incoming_lanes) == 1:
            return next(iter(incoming_lanes)), f"the only {kind}"
        busiest, passes = next(iter(self._count_passes(incoming_lanes).items()))
        if not passes:
            lanes = len(incoming_lanes[busiest])
            return busiest, f"the {kind} with most incoming lanes ({lanes}; no vehicle was counted)"
        return busiest, (
            f"the {kind} into which vehicles drive most often ({passes} times in the first "
            f"{self._counting_s:g} s, counted in a run of SUMO beforehand)"
        )

    @property
    def _counting_s(self) -> float:
        """Length of the simulated time in which vehicles are counted (s)."""
        simulation = self.api.simulation
        end_s: float = simulation.getEndTime()
        return _LONGEST_S if end_s < 0 else min(_LONGEST_S, end_s - simulation.getTime())

    def _find_signalised(self) -> dict[str, set[str]]:
        """Return by junction with traffic lights the ids of its incoming lanes that motor vehicles may use."""
        incoming_lanes: dict[str, set[str]] = {}
        for light in self.api.trafficlight.getIDList():
            for lane in set(self.api.trafficlight.getControlledLanes(light)):
                allowed = self.api.lane.getAllowed(lane)
                if lane.startswith(":") or (allowed and NOT_MOTOR.issuperset(allowed)):
                    continue
                junction = self.api.edge.getToJunction(self.api.lane.getEdgeID(lane))
                incoming_lanes.setdefault(junction, set()).add(lane)
        return incoming_lanes

    def _count_passes(self, incoming_lanes: Mapping[str, set[str]]) -> dict[str, int]:
        """Run SUMO; return by junction how often vehicles drive into it, the busiest first; all 0 if SUMO fails."""
        if self.progress is not None:
            self.progress.stage("searching for the busiest junction")
        until_s = self.api.simulation.getTime() + self._counting_s
        left = count_leaving(self.config, self.options, until_s, self.api.getVersion()[1])
        passes = {
            junction: sum(left.get(edge, 0) for edge in {lane.rpartition("_")[0] for lane in lanes})
            for junction, lanes in incoming_lanes.items()
        }
        return dict(sorted(passes.items(), key=lambda item: (-item[1], -len(incoming_lanes[item[0]]), item[0])))


def add_rsu_pois(api: Any, rsus: Sequence[Rsu]) -> list[str]:
    """Add a POI at each RSU to SUMO, unless it is there, and return the ids of these POIs in order of ``rsus``."""
    there = set(api.poi.getIDList())
    names = [f"vnetsim.coverage.rsu.{index}" for index in range(len(rsus))]
    for name, rsu in zip(names, rsus, strict=True):
        if name not in there:
            api.poi.add(name, rsu.x_m, rsu.y_m, (0, 114, 178, 255), _POI_TYPE)
    return names


def shared_place(api: Any, rsus: Sequence[Rsu], places: Sequence[tuple[str, float]]) -> tuple[str, float] | None:
    """Return a POI, added to SUMO, and the radius (m) of one circle around all RSUs' circles; None if it is no better.

    ``places`` are POI and radius (m) of each RSU's circle. SUMO reports a vehicle once for every circle that contains
    it. So one large circle is better only if it contains fewer lanes than the RSUs' circles, with lanes in several
    circles counted several times. With one RSU no POI is added, and the result is None.
    """
    if len(rsus) == 1:
        return None
    circles = [(rsu.x_m, rsu.y_m, radius_m) for rsu, (_, radius_m) in zip(rsus, places, strict=True)]
    left_m, right_m = min(x - r for x, _, r in circles), max(x + r for x, _, r in circles)
    bottom_m, top_m = min(y - r for _, y, r in circles), max(y + r for _, y, r in circles)
    x_m, y_m = (left_m + right_m) / 2, (bottom_m + top_m) / 2
    if _SHARED not in api.poi.getIDList():
        api.poi.add(_SHARED, x_m, y_m, (0, 0, 0, 0))
    # one metre more because SUMO may round
    shared = _SHARED, 1.0 + max(math.hypot(x - x_m, y - y_m) + r for x, y, r in circles)
    in_shared, *in_circles = (len(_query_lanes(api, *place, MAX_SPEED)) for place in (shared, *places))
    return shared if in_shared < sum(in_circles) else None


def _query_lanes(api: Any, place: str, radius_m: float, *variables: int) -> dict[str, Any]:
    """Return values of the lanes around a POI, by lane id and TraCI variable; include ``MAX_SPEED`` in these."""
    api.poi.subscribeContext(place, LANES, radius_m, variables)
    found = api.poi.getContextSubscriptionResults(place) or {}
    api.poi.unsubscribeContext(place, LANES, radius_m)
    return {name: values for name, values in found.items() if MAX_SPEED in values}


def find_lanes_around(api: Any, place: str, rsu: Rsu) -> tuple[dict[str, Floats], float]:
    """Return lanes around an RSU, polylines (points, 2) in m by id, and the highest speed on them (m/s; 0 if none).

    ``place`` is the id of the RSU's POI. The speed is twice the highest limit, because a vehicle's speed factor is at
    most 2 by default. The types are not queried: SUMO would draw from a type distribution, which changes the traffic.
    """
    found = _query_lanes(api, place, near_m(rsu), MAX_SPEED, SHAPE)
    return _to_polylines(found), _SPEED_FACTOR * max((one[MAX_SPEED] for one in found.values()), default=0.0)


def _to_polylines(lanes: Mapping[str, Any]) -> dict[str, Floats]:
    """Return the shapes of lanes that ``_query_lanes`` found: polylines (points, 2) in m by id, sorted by id."""
    return {name: np.array([point[:2] for point in lanes[name][SHAPE]], dtype=np.float64) for name in sorted(lanes)}


def lanes_for_maps(
    api: Any, rsus: Sequence[Rsu], near: Mapping[str, Floats]
) -> tuple[tuple[Floats, ...], tuple[str, ...]]:
    """Return the lanes for maps, polylines in m, ``near`` ones first, and notes for users; adds a POI to SUMO."""
    x_m, y_m, half_x, half_y = map_frame(rsus)
    if _FRAME not in api.poi.getIDList():
        api.poi.add(_FRAME, x_m, y_m, (0, 0, 0, 0))
    found = _to_polylines(_query_lanes(api, _FRAME, math.hypot(half_x, half_y), MAX_SPEED, SHAPE))
    return map_lanes({**near, **found}, rsus)
