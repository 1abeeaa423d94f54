"""Roadside units: where they stand and how far they reach."""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from vnetsim.errors import InputError, unknown_name

_LISTED = 40


@dataclass(frozen=True, kw_only=True)
class Rsu:
    """A roadside unit (RSU).

    Args:
        id: the POI's id, the junction's id, or ``"x,y"`` for one placed by coordinates.
        x_m: position in net coordinates (m), like ``y_m``.
        y_m: see ``x_m``.
        range_m: coverage radius (m), > 0.
    """

    id: str
    x_m: float
    y_m: float
    range_m: float


@dataclass(frozen=True, kw_only=True)
class Poi:
    """A ``<poi type="rsu">`` of a scenario; ``range_text`` is its parameter ``range``, empty when it has none."""

    id: str
    x_m: float
    y_m: float
    range_text: str


class RoadNet(Protocol):
    """What placing RSUs needs to know of a road net."""

    def junction_ids(self) -> Sequence[str]:
        """Return the ids of the junctions, without the internal ones."""
        ...

    def junction_position(self, junction_id: str) -> tuple[float, float]:
        """Return x and y of a junction (m)."""
        ...

    def rsu_pois(self) -> Sequence[Poi]:
        """Return the scenario's points of interest of type ``rsu``."""
        ...

    def busiest_junction(self) -> tuple[str, str]:
        """Return the id of the busiest junction, and in words by what measure it is the busiest.

        Raises:
            InputError: when the net has no junction.
        """
        ...

    def boundary(self) -> tuple[float, float, float, float] | None:
        """Return the net's bounding box (x_min, y_min, x_max, y_max) in m, None where unknown."""
        ...


def place_rsus(
    specs: Sequence[str], *, range_m: float, net: RoadNet, where: str
) -> tuple[tuple[Rsu, ...], tuple[str, ...]]:
    """Return the RSUs of a scenario and the notes a user must see.

    The specifications decide; without any, the scenario's own POIs; without those, the busiest junction.

    Args:
        specs: RSUs as ``JUNCTION`` or ``x,y``, each with an optional ``:range_m``.
        range_m: coverage radius of an RSU that names none (m).
        net: the road net.
        where: the scenario's file, for error messages.

    Raises:
        InputError: for a specification that cannot be read, an unknown junction, or two RSUs of one id.
    """
    notes: list[str] = []
    if specs:
        rsus = [_from_spec(spec, range_m, net, where) for spec in specs]
    else:
        rsus = [_from_poi(poi, range_m, where) for poi in net.rsu_pois()]
    if not rsus:
        junction, measure = net.busiest_junction()
        x_m, y_m = net.junction_position(junction)
        rsus = [Rsu(id=junction, x_m=x_m, y_m=y_m, range_m=range_m)]
        notes.append(
            f"The scenario has no RSU; took junction '{junction}', {measure}. "
            "Name another with --rsu JUNCTION or --rsu x,y."
        )
    seen: set[str] = set()
    for rsu in rsus:
        if rsu.id in seen:
            raise InputError(f"{where}: two RSUs are called '{rsu.id}'; name each junction or position once.")
        seen.add(rsu.id)
    if (box := net.boundary()) is not None:
        notes += [
            f"RSU '{rsu.id}' at ({rsu.x_m:g}, {rsu.y_m:g}) lies outside the road net, which spans "
            f"x {box[0]:g}..{box[2]:g} m and y {box[1]:g}..{box[3]:g} m; it may see no traffic."
            for rsu in rsus
            if not (box[0] <= rsu.x_m <= box[2] and box[1] <= rsu.y_m <= box[3])
        ]
    return tuple(rsus), tuple(notes)


def coordinates(spec: str) -> tuple[float, float] | None:
    """Return x and y (m) of a specification ``x,y[:range_m]``, or None when it names a junction.

    Raises:
        InputError: for coordinates that are not finite.
    """
    head, _, _ = spec.partition(":")
    x_m, comma, y_m = head.partition(",")
    if not comma:
        return None
    try:
        position = float(x_m), float(y_m)
    except ValueError:
        return None
    if not all(map(math.isfinite, position)):
        raise InputError(f"RSU '{spec}': coordinates must be finite.")
    return position


def _from_spec(spec: str, default_m: float, net: RoadNet, where: str) -> Rsu:
    if not spec.strip():
        raise InputError("An RSU is given as JUNCTION or x,y, either with :range_m; got an empty text.")
    position = coordinates(spec)
    if position is not None:
        head, colon, tail = spec.partition(":")
        range_m = _range(tail, f"RSU '{spec}'") if colon else default_m
        return Rsu(id=head.strip(), x_m=position[0], y_m=position[1], range_m=range_m)
    known = set(net.junction_ids())
    junction, range_m = spec, default_m
    # An id may itself contain colons, so the whole text is tried first.
    if junction not in known and ":" in spec:
        junction, _, tail = spec.rpartition(":")
        range_m = _range(tail, f"RSU '{spec}'")
    if junction not in known:
        # A city has thousands of junctions: then only those that look alike are worth a line.
        alike = difflib.get_close_matches(junction, known, n=10) if len(known) > _LISTED else known
        raise unknown_name("junction", junction, alike, where)
    x_m, y_m = net.junction_position(junction)
    return Rsu(id=junction, x_m=x_m, y_m=y_m, range_m=range_m)


def _from_poi(poi: Poi, default_m: float, where: str) -> Rsu:
    text = poi.range_text
    range_m = _range(text, f"{where}: parameter 'range' of POI '{poi.id}'") if text else default_m
    return Rsu(id=poi.id, x_m=poi.x_m, y_m=poi.y_m, range_m=range_m)


def _range(text: str, where: str) -> float:
    try:
        range_m = float(text)
    except ValueError:
        range_m = math.nan
    if not (math.isfinite(range_m) and range_m > 0):
        raise InputError(f"{where}: the range must be a positive number of metres, got '{text}'.")
    return range_m
