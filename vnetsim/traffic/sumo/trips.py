"""Reads means from the ``tripinfo`` and ``edgeData`` files that a scenario has SUMO write."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from vnetsim.errors import InputError
from vnetsim.traffic.fcd.tables import parse_seconds
from vnetsim.traffic.sumo.config import read_first_element
from vnetsim.xml_files import XmlFile

_MEANS = {
    "duration": "trip_duration_s",
    "waitingTime": "trip_waiting_s",
    "timeLoss": "trip_time_loss_s",
    "departDelay": "trip_depart_delay_s",
}
"""Attributes of ``tripinfo`` elements, and the names of their means."""
ARRIVED = "trips_arrived"
EDGE_SPEED = "edge_speed_kmh"
"""Prefix of the names of mean speeds; a dot and the id of the ``edgeData`` element follow."""


def traffic_outcomes(folder: Path) -> tuple[dict[str, float], list[str]]:
    """Return outcomes of one SUMO run by name (unit in the name), and notes on files in ``folder`` that are damaged.

    Of vehicles that arrived: their number and means of ``tripinfo``. Of each ``edgeData`` element that has speeds: the
    mean over the time that vehicles spent on edges. Persons, and lanes of ``laneData``, are not read. Files are XML of
    any name, gzipped if it ends with ``.gz``; others are ignored. The folder need not exist.
    """
    found: dict[str, float] = {}
    notes = []
    readers = {"tripinfos": _read_trips, "meandata": _read_edges}
    for path in sorted(folder.glob("*")):
        element = ""
        with suppress(InputError):  # it is not XML
            element = read_first_element(path)
        if reader := readers.get(element):
            try:
                found |= reader(path)
            except InputError as error:
                notes.append(f"{error} It is left out of what comparisons compare.")
    return found, notes


def _read_trips(path: Path) -> dict[str, float]:
    """Return the number of vehicles that arrived (key ``ARRIVED``) and means by name; no means if none arrived."""
    sums, arrived = defaultdict[str, float](float), 0

    def start(name: str, attributes: Mapping[str, str]) -> None:
        """Add a ``tripinfo`` element to ``sums`` and ``arrived`` if its vehicle arrived."""
        nonlocal arrived
        # with tripinfo-output.write-unfinished the arrival of others is -1; vaporized vehicles were removed on the way
        if name != "tripinfo" or not _parse_number(attributes, "arrival") >= 0 or attributes.get("vaporized"):
            return
        arrived += 1
        for attribute, mean in _MEANS.items():
            sums[mean] += _parse_number(attributes, attribute)

    XmlFile(path, start).read()
    means = {name: total / arrived for name, total in sums.items()}
    return {ARRIVED: arrived, **{name: mean for name, mean in means.items() if math.isfinite(mean)}}


def _read_edges(path: Path) -> dict[str, float]:
    """Return mean speeds (km/h) by ``EDGE_SPEED.id`` of each ``edgeData`` element; none for one without speeds."""
    metres, seconds, interval = defaultdict[str, float](float), defaultdict[str, float](float), ""

    def start(name: str, attributes: Mapping[str, str]) -> None:
        """Add an ``edge`` element's time and distance to its interval, unless it has no speed."""
        nonlocal interval
        if name == "interval":
            interval = attributes.get("id", "")
        spent_s, speed_mps = _parse_number(attributes, "sampledSeconds"), _parse_number(attributes, "speed")
        if name == "edge" and spent_s > 0 and math.isfinite(speed_mps):
            metres[interval] += spent_s * speed_mps
            seconds[interval] += spent_s

    XmlFile(path, start).read()
    return {f"{EDGE_SPEED}.{name}": 3.6 * metres[name] / seconds[name] for name in seconds}


def _parse_number(attributes: Mapping[str, str], name: str) -> float:
    """Return an attribute as a number, a time (also hh:mm:ss) in s; NaN if it is missing or no number."""
    try:
        return parse_seconds(attributes.get(name, "nan"))
    except ValueError:
        return math.nan
