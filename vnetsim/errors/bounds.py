"""Bounds of settings, conditions under which settings act, and the checks that settings classes share.

The annotation of a field declares its bounds, and what the setting needs to have an effect::

    deadline_s: Annotated[float, Within(0.1, 1e7, "s", "shorter than a step of SUMO; longer than a season")] = 60.0
    alpha: Annotated[float, Acts("data.partition", ("dirichlet",))] = 0.1

``check_bounds`` checks any dataclass; ``bounds_of`` and ``acts_of`` list the declarations. Every error names the key.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from vnetsim.errors import InputError

T = TypeVar("T")


@dataclass(frozen=True)
class Within:
    """Bounds of a number, both included.

    Args:
        low: the smallest value.
        high: the largest value.
        unit: the unit of both; empty for a number without one.
        reason: why not less or more, in a few words.
    """

    low: float
    high: float
    unit: str
    reason: str

    def __str__(self) -> str:
        """Return ``between LOW and HIGH UNIT``."""
        unit = f" {self.unit}" if self.unit else ""
        return f"between {in_few_characters(self.low)} and {in_few_characters(self.high)}{unit}"

    def check(self, key: str, value: float) -> None:
        """Refuse a value that is out of bounds or not finite.

        Raises:
            InputError: the message names the key, the bounds and their reason.
        """
        # refuses NaN too; isfinite fails for a large whole number
        if not self.low <= value <= self.high:
            raise InputError(f"{key} must be {self} ({self.reason}), got {value}.")


@dataclass(frozen=True)
class Acts:
    """A condition that a setting needs to have an effect; with several in one annotation, all must be met."""

    key: str  # another setting; or a fact of the run in words, if ``values`` and ``unless`` are empty
    values: Sequence[Any] = ()  # the other setting must have one of these values
    unless: Sequence[Any] = ()  # the other setting must have none of these values; ignored beside ``values``

    @property
    def is_fact(self) -> bool:
        """Whether the condition is a fact of the run and not another setting."""
        return not self.values and not self.unless

    def __str__(self) -> str:
        """Return the condition in words: the fact, ``KEY = VALUES`` or ``KEY other than VALUES``."""
        if self.is_fact:
            return self.key
        listed = " or ".join("{}" if value == {} else repr(value) for value in self.values or self.unless)
        return f"{self.key} = {listed}" if self.values else f"{self.key} other than {listed}"

    def holds(self, value: Any) -> bool:
        """Return whether the condition is met if the other setting, or the fact (true or false), has this value."""
        if self.is_fact:
            return bool(value)
        return value in self.values if self.values else value not in self.unless


TRAINS = Acts("training, which --timing-only leaves out")
SEVERAL_RSUS = Acts("two RSUs or more")
HANDOVERS = Acts("two RSUs or more, or handover.longest_gap_s above 0")
EXCHANGES = Acts("a learner whose vehicles exchange with each other")
WIRED = Acts("a topology.kind other than 'per-rsu', or a handover.policy that sends to another RSU")
A_SOURCE = Acts("a scenario that names a traffic source")


def needed(by: str, key: str) -> Acts:
    """Return the condition that the run's plug-in of kind ``by``, such as ``"pace"``, has ``key`` in its ``needs``."""
    return Acts(f"a {by} that needs {key}")


def in_few_characters(value: float) -> str:
    """Return a number as the shortest text that is exact, such as ``1e7``."""
    short = f"{value:g}".replace("e+0", "e").replace("e+", "e").replace("e-0", "e-")
    return short if isinstance(value, float) and float(short) == value else repr(value)


def _find_metadata(hint: Any, kind: type[T]) -> tuple[T, ...]:
    """Return the objects of class ``kind`` in an annotation, also inside ``| None``; empty if there are none."""
    found = tuple(extra for extra in getattr(hint, "__metadata__", ()) if isinstance(extra, kind))
    inner = get_args(hint) if get_origin(hint) is not None else ()
    return found + tuple(one for part in inner for one in _find_metadata(part, kind))


def _collect_metadata(settings: type, kind: type[T]) -> dict[str, tuple[T, ...]]:
    """Return the objects of class ``kind`` in annotations, by field; a field redeclared without any inherits them."""
    found: dict[str, tuple[T, ...]] = {}
    for base in settings.__mro__:
        if not is_dataclass(base):
            continue
        own = inspect.get_annotations(base)
        for name, hint in get_type_hints(base, include_extras=True).items():
            if name in own and (metadata := _find_metadata(hint, kind)):
                found.setdefault(name, metadata)
    return found


@functools.cache
def bounds_of(kind: type) -> Mapping[str, Within]:
    """Return the bounds of a settings class by field, without fields that declare none."""
    return {name: bounds[0] for name, bounds in _collect_metadata(kind, Within).items()}


@functools.cache
def acts_of(kind: type) -> Mapping[str, tuple[Acts, ...]]:
    """Return the conditions of a settings class by field, without fields that always have an effect."""
    return _collect_metadata(kind, Acts)


def check_bounds(table: str, settings: Any) -> None:
    """Refuse settings that are out of their declared bounds, also in nested tables; None is allowed.

    ``table`` is the dotted name of the table with these settings, for the message; empty for the top level.

    Raises:
        InputError: names the first such setting.
    """
    kind: type = type(settings)
    bounds = bounds_of(kind)
    for field in fields(settings):
        value, key = getattr(settings, field.name), f"{table}.{field.name}" if table else field.name
        if is_dataclass(value):
            check_bounds(key, value)
        elif field.name in bounds and value is not None:
            bounds[field.name].check(key, value)


def require(condition: bool, message: str) -> None:
    """Raise ``InputError(message)`` unless ``condition`` is true."""
    if not condition:
        raise InputError(message)


BESIDE = {"beside": True}
"""Metadata of a field that collects all keys of its table that have no field of their own."""

SHARE = Within(0, 1, "", "a share")
Share = Annotated[float, SHARE]
Images = Annotated[int, Within(0, 10_000_000, "", "eight times ImageNet; all are held in memory")]
