"""Bounds of settings and when they act, declared beside their fields, and the checks that the settings' classes share.

A number's bounds stand in its annotation, and so does what a setting needs to have an effect::

    deadline_s: Annotated[float, Within(0.1, 1e7, "s", "shorter than a step of SUMO; longer than a season")] = 60.0
    alpha: Annotated[float, Acts("data.partition", ("dirichlet",))] = 0.1

``check_bounds`` reads bounds of any dataclass, ``bounds_of`` and ``acts_of`` list them. Every refusal names the key.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from vnetsim.errors import InputError


@dataclass(frozen=True)
class Within:
    """Bounds of a number, both included.

    Args:
        low: the least value.
        high: the greatest.
        unit: of both; empty for a number without one.
        reason: why not less or more, in a few words.
    """

    low: float
    high: float
    unit: str
    reason: str

    def __str__(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        return f"between {in_few_characters(self.low)} and {in_few_characters(self.high)}{unit}"

    def check(self, key: str, value: float) -> None:
        """Refuse a value outside, or not finite.

        Raises:
            InputError: naming the key, the bounds and why they stand.
        """
        # a whole number may be too large for isfinite
        if not self.low <= value <= self.high:
            raise InputError(f"{key} must be {self} ({self.reason}), got {value}.")


@dataclass(frozen=True)
class Acts:
    """What a setting needs to have an effect; of several in one annotation it needs all.

    Args:
        key: another setting, or, without values, a fact of the run in words.
        values: the other setting must have one of these.
        unless: or none of these.
    """

    key: str
    values: Sequence[Any] = ()
    unless: Sequence[Any] = ()

    @property
    def is_fact(self) -> bool:
        """Whether it is a fact of the run, and no other setting."""
        return not self.values and not self.unless

    def __str__(self) -> str:
        if self.is_fact:
            return self.key
        listed = " or ".join("{}" if value == {} else repr(value) for value in self.values or self.unless)
        return f"{self.key} = {listed}" if self.values else f"{self.key} other than {listed}"

    def holds(self, value: Any) -> bool:
        """Return whether the setting acts where the other setting, or the fact, has this value."""
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
    """Return the fact that a plug-in, ``"pace"``, needs a setting: one of its class's ``needs``, if it has that."""
    return Acts(f"a {by} that needs {key}")


def in_few_characters(value: float) -> str:
    """Return a number as short as it can be, and exactly."""
    short = f"{value:g}".replace("e+0", "e").replace("e+", "e").replace("e-0", "e-")
    return short if isinstance(value, float) and float(short) == value else repr(value)


T = TypeVar("T")


def _extras(hint: Any, kind: type[T]) -> tuple[T, ...]:
    """Return the objects of a kind in an annotation, also below ``| None``."""
    found = tuple(extra for extra in getattr(hint, "__metadata__", ()) if isinstance(extra, kind))
    inner = get_args(hint) if get_origin(hint) is not None else ()
    return found + tuple(one for part in inner for one in _extras(part, kind))


def _declared(settings: type, kind: type[T]) -> dict[str, tuple[T, ...]]:
    """Return objects of a kind by field; one that a subclass declares anew without keeps its parent's."""
    found: dict[str, tuple[T, ...]] = {}
    for base in settings.__mro__:
        if not is_dataclass(base):
            continue
        own = inspect.get_annotations(base)
        for name, hint in get_type_hints(base, include_extras=True).items():
            if name in own and (extras := _extras(hint, kind)):
                found.setdefault(name, extras)
    return found


@functools.cache
def bounds_of(kind: type) -> Mapping[str, Within]:
    """Return the bounds of a settings class by field."""
    return {name: bounds[0] for name, bounds in _declared(kind, Within).items()}


@functools.cache
def acts_of(kind: type) -> Mapping[str, tuple[Acts, ...]]:
    """Return what settings of a class need to have an effect, by field; those that always have one are left out."""
    return _declared(kind, Acts)


def check_bounds(table: str, settings: Any) -> None:
    """Refuse a setting that is outside the bounds declared beside its field, also in tables below.

    Args:
        table: in which the settings stand, for the message; empty for the outermost.
        settings: an instance of a dataclass; fields without bounds, and those that are None, are passed over.

    Raises:
        InputError: naming the first of them.
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
    """Raise ``InputError(message)`` unless ``condition`` holds."""
    if not condition:
        raise InputError(message)


BESIDE = {"beside": True}
"""Marks a field of a settings class that gathers what stands in its table besides the other fields."""

Share = Annotated[float, Within(0, 1, "", "a share")]
Images = Annotated[int, Within(0, 10_000_000, "", "eight times ImageNet; all are held in memory")]
