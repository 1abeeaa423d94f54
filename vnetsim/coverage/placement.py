"""Places roadside units: at POIs of a scenario, at junctions, at coordinates."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from vnetsim.coverage.rsu import Rsu
from vnetsim.errors import InputError, unknown_name
from vnetsim.errors.bounds import Within
from vnetsim.experiment.traffic import REACH, REACH_M, TrafficSettings
from vnetsim.xml_files import XmlFile

_LISTED = 40
NO_RSU = "The scenario has no RSU"
"""Beginning of the note on a junction that was chosen as RSU."""
ALL_SIGNALISED = "all-signalised"
BESIDE_M = 1000.0
"""Largest distance (m) from a net at which a longitude and latitude still counts as a place in it."""
POSITION = Within(-1e8, 1e8, "m", "the Earth's circumference is 4e7 m")
ENVIRONMENTS = ("urban", "highway")
"""Possible surroundings of an RSU."""


@dataclass(frozen=True, kw_only=True)
class Poi:
    """A ``<poi type="rsu">`` of a scenario (m); ``range_text`` and ``environment`` are empty without that parameter."""

    id: str
    x_m: float
    y_m: float
    range_text: str
    environment: str = ""


class RoadNet(Protocol):
    """The functions of a road net that placing RSUs needs."""

    def junction_ids(self) -> Sequence[str]:
        """Return the ids of the junctions, without the internal ones."""
        ...

    def junction_position(self, junction_id: str) -> tuple[float, float]:
        """Return x and y of a junction (m)."""
        ...

    def projected(self, longitude: float, latitude: float) -> tuple[float, float] | None:
        """Return x and y (m) of a place in or near the net; None elsewhere, or if the net's place is unknown."""
        ...

    def rsu_pois(self) -> Sequence[Poi]:
        """Return the scenario's points of interest of type ``rsu``."""
        ...

    def busiest_junction(self) -> tuple[str, str]:
        """Return the id of the busiest junction, and in words why it was chosen; InputError if the net has none."""
        ...

    def signalised_junctions(self, *, busiest_first: bool) -> Sequence[str]:
        """Return the ids of the junctions with traffic lights, sorted by name or the busiest first."""
        ...


def place_rsus(settings: TrafficSettings, net: RoadNet, where: str) -> tuple[tuple[Rsu, ...], tuple[str, ...]]:
    """Return the RSUs of a scenario, and notes for the user; ``where`` names the scenario in messages.

    RSUs are those of ``traffic.rsu``, first the POIs of its files; if the setting is empty, the scenario's own POIs; if
    there are none, the busiest junction. An RSU that is not a POI gets the environment of the scenario's POIs if they
    all have the same. InputError for a malformed specification or POI, a file without RSU, an unknown junction, a net
    without a fitting junction, a position out of bounds, or two RSUs of one id or place.
    """
    range_m = settings.range_m or REACH_M
    listed = [poi for name in settings.rsu_files for poi in _read_pois(name)]
    notes: list[str] = []
    pois = net.rsu_pois()
    if settings.rsu:
        environments = {poi.environment for poi in pois}
        common = environments.pop() if len(environments) == 1 and environments <= set(ENVIRONMENTS) else ""
        rsus = [_convert_poi(poi, range_m, where) for poi in listed]
        for spec in settings.rsu_places:
            if spec.partition(":")[0] == ALL_SIGNALISED:
                found = _place_at_signals(spec, range_m, settings.rsu_spacing_m, net, where)
                notes.append(f"{len(found)} signalised junctions are RSUs.")
            else:
                found = [_parse_spec(spec, range_m, net, where, notes)]
            rsus += [replace(rsu, environment=common) for rsu in found]
    else:
        rsus = [_convert_poi(poi, range_m, where) for poi in pois]
    if not rsus:
        junction, measure = net.busiest_junction()
        x_m, y_m = net.junction_position(junction)
        rsus = [Rsu(id=junction, x_m=x_m, y_m=y_m, range_m=range_m)]
        notes.append(f"{NO_RSU}; took junction '{junction}', {measure}. Name another with --rsu JUNCTION or --rsu x,y.")
    if settings.range_m and all(rsu.range_m != settings.range_m for rsu in rsus):
        notes.append(
            f"traffic.range_m = {settings.range_m:g} has no effect: every RSU names its own range. Name another with "
            "--rsu JUNCTION:RANGE or --rsu x,y:RANGE."
        )
    if settings.rsu_spacing_m and not any(spec.startswith(ALL_SIGNALISED) for spec in settings.rsu_places):
        notes.append(
            f"traffic.rsu_spacing_m = {settings.rsu_spacing_m:g} has no effect: it is for --rsu {ALL_SIGNALISED} alone."
        )
    seen: set[str] = set()
    places: dict[tuple[float, float], str] = {}
    for rsu in rsus:
        if rsu.id in seen:
            raise InputError(f"{where}: two RSUs are called '{rsu.id}'; name each junction or position once.")
        seen.add(rsu.id)
        if (other := places.setdefault((rsu.x_m, rsu.y_m), rsu.id)) != rsu.id:
            raise InputError(
                f"{where}: RSUs '{other}' and '{rsu.id}' are at the same place, ({rsu.x_m:g}, {rsu.y_m:g}); leave "
                "one of them out, or move it."
            )
        POSITION.check(f"{where}: RSU '{rsu.id}': x_m", rsu.x_m)
        POSITION.check(f"{where}: RSU '{rsu.id}': y_m", rsu.y_m)
    return tuple(rsus), tuple(notes)


def rsus_of_file(name: str, range_m: float) -> list[Rsu]:
    """Return the RSUs (POIs) of a SUMO additional file, with ``range_m`` (m) if they have none; InputError if wrong."""
    return [_convert_poi(poi, range_m, name) for poi in _read_pois(name)]


def parse_coordinates(spec: str) -> tuple[float, float] | None:
    """Return x and y (m, or degrees) of an RSU given as ``x,y[:range_m]``; None for a text that names a junction."""
    head, _, _ = spec.partition(":")
    x_m, comma, y_m = head.partition(",")
    if not comma:
        return None
    try:
        return float(x_m), float(y_m)
    except ValueError:
        return None


def _place_at_signals(spec: str, default_m: float, spacing_m: float, net: RoadNet, where: str) -> list[Rsu]:
    """Return RSUs at signalised junctions, none nearer than ``spacing_m`` (m) to a busier one; InputError for none."""
    _, range_m = _split_spec(spec, default_m)
    rsus: list[Rsu] = []
    for junction in net.signalised_junctions(busiest_first=spacing_m > 0):
        x_m, y_m = net.junction_position(junction)
        if all(math.hypot(x_m - rsu.x_m, y_m - rsu.y_m) >= spacing_m for rsu in rsus):
            rsus.append(Rsu(id=junction, x_m=x_m, y_m=y_m, range_m=range_m))
    if not rsus:
        raise InputError(f"{where}: the net has no signalised junction; place RSUs with --rsu JUNCTION or --rsu x,y.")
    return rsus


def _parse_spec(spec: str, default_m: float, net: RoadNet, where: str, notes: list[str]) -> Rsu:
    """Return the RSU of ``JUNCTION[:range_m]`` or ``x,y[:range_m]``, else InputError; project degrees and note it."""
    if not spec.strip():
        raise InputError("An RSU is given as JUNCTION or x,y, either with :range_m; got an empty text.")
    position = parse_coordinates(spec)
    if position is not None:
        name, range_m = _split_spec(spec, default_m)
        degrees = abs(position[0]) <= 180 and abs(position[1]) <= 90
        if degrees and (metres := net.projected(*position)):
            notes.append(
                f"RSU {name} is read as longitude and latitude; it is at ({metres[0]:.1f}, {metres[1]:.1f}) m."
            )
            position = metres
        return Rsu(id=name, x_m=position[0], y_m=position[1], range_m=range_m)
    known = set(net.junction_ids())
    junction, range_m = spec, default_m
    # an id may contain colons, so try the whole text first
    if junction not in known and ":" in spec:
        junction, _, tail = spec.rpartition(":")
        range_m = _parse_range_m(tail, f"RSU '{spec}'")
    if junction not in known:
        # a city has thousands of junctions: list only similar names
        alike = difflib.get_close_matches(junction, known, n=10) if len(known) > _LISTED else known
        raise unknown_name("junction", junction, alike, where)
    x_m, y_m = net.junction_position(junction)
    return Rsu(id=junction, x_m=x_m, y_m=y_m, range_m=range_m)


def _split_spec(spec: str, default_m: float) -> tuple[str, float]:
    """Return the text before ``:range_m``, and the range (m), ``default_m`` without one; InputError if malformed."""
    head, colon, tail = spec.partition(":")
    return head.strip(), _parse_range_m(tail, f"RSU '{spec}'") if colon else default_m


def _convert_poi(poi: Poi, default_m: float, where: str) -> Rsu:
    """Return the RSU at a POI, with the range ``default_m`` if it has none; InputError for a wrong parameter."""
    text = poi.range_text
    range_m = _parse_range_m(text, f"{where}: parameter 'range' of POI '{poi.id}'") if text else default_m
    if poi.environment not in ("", *ENVIRONMENTS):
        source = f"{where}: parameter 'environment' of POI '{poi.id}'"
        raise unknown_name("environment", poi.environment, ENVIRONMENTS, where=source)
    return Rsu(id=poi.id, x_m=poi.x_m, y_m=poi.y_m, range_m=range_m, environment=poi.environment)


def _parse_range_m(text: str, where: str) -> float:
    """Return a text as a range (m); InputError that begins with ``where`` if it is no number or out of bounds."""
    try:
        range_m = float(text)
    except ValueError:
        raise InputError(f"{where}: the range must be a number of metres, got '{text}'.") from None
    REACH.check(f"{where}: the range", range_m)
    return range_m


def _read_pois(file_name: str) -> list[Poi]:
    """Return the POIs of type ``rsu`` in a SUMO additional file; InputError if there is none, or one has no x and y."""
    found: list[Poi] = []
    inside = False

    def start(name: str, attributes: Mapping[str, str]) -> None:
        """Add the POI that begins, or set a parameter of the POI that is open."""
        nonlocal inside
        key = attributes.get("key", "")
        if name == "poi" and attributes.get("type") == "rsu":
            inside, poi_id = True, attributes.get("id", "")
            try:
                x_m, y_m = float(attributes["x"]), float(attributes["y"])
            except (KeyError, ValueError):
                raise InputError(
                    f"{file.where}: RSU '{poi_id}' needs x and y as numbers of metres; places on lanes and "
                    "geographical ones are known to SUMO only: name the file in the scenario instead."
                ) from None
            found.append(Poi(id=poi_id, x_m=x_m, y_m=y_m, range_text=""))
        elif name == "param" and inside and key in ("range", "environment"):
            poi, text = found[-1], attributes.get("value", "").strip()
            found[-1] = replace(poi, range_text=text) if key == "range" else replace(poi, environment=text)

    def end(name: str) -> None:
        """Close the open POI."""
        nonlocal inside
        inside &= name != "poi"

    file = XmlFile(Path(file_name), start, end=end)
    file.read()
    if not found:
        raise InputError(f'{file_name}: no RSU in it; they are written as <poi id="..." type="rsu" x="..." y="..."/>.')
    return found
