"""Bounds of settings, declared beside their fields, and the checks that the settings' classes share.

A number's bounds stand in its annotation::

    deadline_s: Annotated[float, Within(0.1, 1e7, "s", "shorter than a step of SUMO; longer than a season")] = 60.0

``check_bounds`` reads them of any dataclass, ``bounds_of`` lists them. Every refusal names the key.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

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


def in_few_characters(value: float) -> str:
    """Return a number as short as it can be, and exactly."""
    short = f"{value:g}".replace("e+0", "e").replace("e+", "e").replace("e-0", "e-")
    return short if isinstance(value, float) and float(short) == value else repr(value)


def _within(hint: Any) -> Within | None:
    """Return the bounds in an annotation, also below ``| None``."""
    for extra in getattr(hint, "__metadata__", ()):
        if isinstance(extra, Within):
            return extra
    inner = get_args(hint) if get_origin(hint) is not None else ()
    return next((found for part in inner if (found := _within(part)) is not None), None)


@functools.cache
def bounds_of(kind: type) -> Mapping[str, Within]:
    """Return the bounds of a settings class by field; one that a subclass declares anew without keeps its parent's."""
    found: dict[str, Within] = {}
    for base in kind.__mro__:
        if not is_dataclass(base):
            continue
        own = inspect.get_annotations(base)
        for name, hint in get_type_hints(base, include_extras=True).items():
            within = _within(hint)
            if name in own and within is not None:
                found.setdefault(name, within)
    return found


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
