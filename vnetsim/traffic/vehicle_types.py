"""Selects the vehicles that take part, by vType or vClass: by default motor vehicles on roads.

Live SUMO gives both. A recording has at most the vType; its class is then guessed from its name: the name of a class,
alone or as a suffix as SUMO's tools write it (``pt_tram``, ``bike_bicycle``), one of SUMO's own types, or a common word
for it. Any other type counts as a motor vehicle.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from vnetsim.errors import InputError
from vnetsim.experiment.traffic import TrafficSettings

MOTOR, ALL = "motor", "all"
_RAIL = ("rail", "rail_electric", "rail_fast", "rail_urban", "subway", "tram", "cable_car")
NOT_MOTOR = frozenset(
    (*_RAIL, "pedestrian", "wheelchair", "bicycle", "scooter", "ship", "container", "aircraft", "drone")
)
"""SUMO's classes that are not motor vehicles on roads."""

_ON_ROADS = ("private", "emergency", "authority", "army", "vip", "passenger", "hov", "taxi", "bus", "coach", "delivery")
CLASSES = NOT_MOTOR.union(
    _ON_ROADS, ("truck", "trailer", "motorcycle", "moped", "evehicle", "custom1", "custom2", "ignoring")
)
"""All of SUMO's classes."""

CAR_M = 1.5
HEIGHTS_M = {
    "wheelchair": 1.2,
    "pedestrian": 1.719,
    "truck": 2.4,
    "container": 2.591,
    "tram": 3.2,
    "bus": 3.4,
    "rail": 3.75,
    **dict.fromkeys(("bicycle", "moped", "scooter"), 1.7),
    **dict.fromkeys(("delivery", "emergency"), 2.86),
    **dict.fromkeys(("rail_urban", "subway"), 3.6),
    **dict.fromkeys(("rail_electric", "rail_fast"), 3.89),
    **dict.fromkeys(("coach", "ship", "trailer"), 4.0),
}
"""SUMO's default heights by class (m); all other classes have ``CAR_M``."""

_WORDS = {
    **dict.fromkeys(("bicycle", "bike", "biketype", "cyclist"), "bicycle"),
    **dict.fromkeys(("pedestrian", "pedtype", "person"), "pedestrian"),
    **dict.fromkeys(("train", "rail", "railtype", "subway", "metro"), "rail"),
    **dict.fromkeys(("tram", "streetcar"), "tram"),
    **dict.fromkeys(("ship", "boat", "ferry"), "ship"),
    **dict.fromkeys(("containertype",), "container"),
}
_SHOWN = 8


@functools.cache
def class_of_name(type_id: str) -> str:
    """Return the SUMO vehicle class that the name of a vType indicates, empty if none."""
    name = type_id.lower()
    if name in CLASSES:
        return name
    longest = max((known for known in CLASSES if name.endswith(f"_{known}")), key=len, default="")
    if longest:
        return longest
    words = [word for word in re.split(r"[^a-z]+", name) if word]
    if any(word in CLASSES and word not in NOT_MOTOR for word in words):
        return ""
    return next((_WORDS[word] for word in words if word in _WORDS), "")


class TypeFilter:
    """Decides by ``traffic.vehicle_types`` which vehicles take part, and counts the others."""

    def __init__(self, settings: TrafficSettings) -> None:
        self._wanted = settings.vehicle_types
        self._left_out: dict[tuple[str, str], set[str]] = {}
        self.heights_m: dict[str, float] = {}  # by type, of vehicles that take part

    @property
    def is_default(self) -> bool:
        """Whether all motor vehicles take part, and no others: the default of ``traffic.vehicle_types``."""
        return self._wanted == (MOTOR,)

    @property
    def takes_all(self) -> bool:
        """Whether every vehicle takes part."""
        return ALL in self._wanted

    def takes(
        self, vehicle_id: str, type_id: str, vehicle_class: str | None = None, height_m: float | None = None
    ) -> bool:
        """Return whether a vehicle takes part; if so, record its type's height, else count it once in ``left_out``.

        With None as class, the class is guessed from the type's name; with None as height, the class's height is used.
        """
        known = class_of_name(type_id) if vehicle_class is None else vehicle_class
        names = {type_id, known, ALL, *((MOTOR,) if known not in NOT_MOTOR else ())}
        if names.isdisjoint(self._wanted):
            self._left_out.setdefault((type_id, known), set()).add(vehicle_id)
            return False
        self.heights_m[type_id] = HEIGHTS_M.get(known, CAR_M) if height_m is None else height_m
        return True

    @property
    def left_out(self) -> int:
        """Number of different vehicles that ``takes`` refused so far."""
        return sum(map(len, self._left_out.values()))

    def describe(self) -> str:
        """Return in words which vehicles take part, for the manifest."""
        if self.takes_all:
            return "all"
        return "motor vehicles" if self.is_default else _join_names(self._wanted)

    def make_note(self) -> str:
        """Return a note for the user on the vehicles that do not take part, empty if there are none so far."""
        if not self._left_out:
            return ""
        counts = Counter[str]()
        for (type_id, known), vehicles in self._left_out.items():
            name = f"{type_id} ({known})" if known and known != type_id else type_id
            counts[name] += len(vehicles)
        shown = [f"{count} of type {name}" for name, count in counts.most_common()]
        return (
            f"Of the vehicles near the RSUs these do not take part: {_join_names(shown)}. "
            f"Those that do: {self.describe()}; --vehicle-types all takes every one."
        )

    def refuse_nobody(self, where: str) -> None:
        """Raise InputError with ``where`` if vehicles were near RSUs but none took part; never if motor or all may."""
        if self.heights_m or not self._left_out or {MOTOR, ALL}.intersection(self._wanted):
            return
        types = sorted({type_id for type_id, _ in self._left_out})
        raise InputError(
            f"{where}: no vehicle near the RSUs is of the types {_join_names(self._wanted)} (traffic.vehicle_types); "
            f"there are {_join_names(types)}."
        )


class VehicleFilter:
    """Applies a ``TypeFilter`` to rows of vehicles, once for each vehicle number."""

    def __init__(self, types: TypeFilter) -> None:
        self._types = types
        self._found = np.zeros(0, dtype=np.int8)  # 1 takes part, -1 does not, 0 not decided yet

    def select_rows(
        self,
        vehicle: NDArray[np.int64],
        describe: Callable[[int], tuple[str, str | None, str | None, float | None]],
        near: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.bool_]:
        """Return for each row whether its vehicle (number, >= 0) takes part; one without a type does.

        ``describe(row)`` must return the vehicle's id, type (None: it has none), class and height in m (both None if
        unknown); it is called once for each vehicle. Only vehicles with a row in ``near`` (None: all) are decided on;
        a vehicle not decided on yet counts as taking part.
        """
        missing = int(vehicle.max(initial=-1)) + 1 - len(self._found)
        if missing > 0:
            self._found = np.append(self._found, np.zeros(missing, dtype=np.int8))
        unknown = np.flatnonzero((self._found[vehicle] == 0) & (True if near is None else near))
        for row in unknown[np.unique(vehicle[unknown], return_index=True)[1]].tolist():
            name, type_id, vehicle_class, height_m = describe(row)
            takes = type_id is None or self._types.takes(name, type_id, vehicle_class, height_m)
            self._found[vehicle[row]] = 1 if takes else -1
        return self._found[vehicle] >= 0


def _join_names(names: Sequence[str]) -> str:
    """Return names separated by commas: the first eight, and how many more there are."""
    rest = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + rest
