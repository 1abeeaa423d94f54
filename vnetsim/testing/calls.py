"""A plug-in wrapped so that its calls are counted, repeated, and checked for changes of their arguments."""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib
import inspect
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import NoneType
from typing import Any

import numpy as np

from vnetsim.errors import VnetsimError
from vnetsim.plugins import Kind, place_of, plugin_errors

_MAY_CHANGE = frozenset({"generator", "chances", "streams"})
"""Arguments, or their fields, that every plug-in may change."""


class BrokenLaw(VnetsimError):  # noqa: N818 - no error of the checker
    """A plug-in breaks a law: one line that says what was called, what came back, and what to do. Exit status 2."""

    exit_code = 2


def expect(condition: bool, fault: str) -> None:
    """Raise ``BrokenLaw(fault)`` unless ``condition`` is true."""
    if not condition:
        raise BrokenLaw(fault)


def expect_equal(one: Any, other: Any, fault: str) -> None:
    """Raise ``BrokenLaw(fault)`` unless two values are equal to the bit; see ``bits``."""
    expect(bits(one) == bits(other), fault)


class StrictPlugin:
    """A plug-in (or its class) whose ``calls`` of each method are counted; it must not change what it is given.

    Methods in ``pure`` are called twice, and must give the same answer for the same arguments. ``may_change`` names
    arguments, and fields of them, that it may change besides random streams.
    """

    def __init__(
        self, plugin: Any, kind: Kind, *, pure: Collection[str] = (), may_change: Collection[str] = ("memory",)
    ) -> None:
        self._plugin = plugin
        self._kind = kind
        self._pure = pure
        self._may_change = _MAY_CHANGE | {*may_change}
        self.calls: collections.Counter[str] = collections.Counter()

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # for isinstance
        return type(self._plugin)

    def __getattr__(self, part: str) -> Any:
        value = getattr(self._plugin, part)
        if part.startswith("_") or not inspect.isroutine(value):
            return value
        self.__dict__[part] = call = self._wrap(part, value)  # __getattr__ is called only once
        return call

    def _wrap(self, part: str, method: Any) -> Any:
        """Return ``method`` with its calls counted as ``part``; BrokenLaw for changed arguments or unequal answers."""
        name = str(getattr(self._plugin, "name", self._kind.name))

        @functools.wraps(method)
        def call(*given: Any, **named: Any) -> Any:
            self.calls[part] += 1
            arguments = [*map(_describe, given), *(f"{key}={_describe(one)}" for key, one in named.items())]
            words = f"{part}({', '.join(arguments)})"

            def answer() -> Any:
                with plugin_errors(self._kind.name, name, f"in {words}"):
                    found = method(*given, **named)
                    return tuple(found) if part == "select" and isinstance(found, Iterator) else found

            before = self._fixed_bits(part, given)
            found = answer()
            if part in self._pure:
                fault = f"{words} returned one answer, and another one when it was called again with the same arguments"
                expect_equal(answer(), found, f"{fault}; let it depend on its arguments only.{place_of(method)}")
            fault = f"{words} changed an argument; change a copy of it.{place_of(method)}"
            expect(self._fixed_bits(part, given) == before, fault)
            return found

        return call

    def _fixed_bits(self, part: str, given: Sequence[Any]) -> Any:
        """Return ``bits`` of those positional arguments of method ``part`` that it must not change."""
        declared = vars(self._kind.protocol).get(part)
        names = list(inspect.signature(getattr(declared, "__func__", declared)).parameters)[1:] if declared else []
        names += [""] * len(given)
        return [
            bits(one, self._may_change) for name, one in zip(names, given, strict=False) if name not in self._may_change
        ]


def bits(value: Any, skip: Collection[str] = ()) -> Any:
    """Return nested tuples, equal for two values exactly if these are equal to the bit, tensors and arrays included.

    Fields of dataclasses in ``skip`` are left out. Objects of unknown types count by type and ``vehicle_id`` only.
    """
    if hasattr(value, "detach"):  # a tensor
        import torch  # noqa: PLC0415 - takes seconds

        array = value.detach().cpu().contiguous()
        return str(array.dtype), bits(array.flatten().view(torch.uint8).numpy()), tuple(array.shape)
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, hashlib.sha256(np.ascontiguousarray(value).tobytes()).digest()
    if isinstance(value, Mapping):
        return tuple((key, bits(one, skip)) for key, one in value.items())
    if isinstance(value, list | tuple):
        found: Any = tuple(bits(one, skip) for one in value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = (field.name for field in dataclasses.fields(value) if field.name not in skip)
        found = type(value).__name__, *(bits(getattr(value, name), skip) for name in names)
    elif isinstance(value, set | frozenset):
        found = tuple(sorted(map(repr, value)))
    elif isinstance(value, float | int | str | bytes | NoneType):
        found = type(value).__name__, repr(value)
    else:
        found = type(value).__name__, getattr(value, "vehicle_id", "")
    return found


def _describe(value: Any) -> str:
    """Return an argument in a few words for a message, such as ``3 x Participant``."""
    if isinstance(value, bool | int | float | str | NoneType):
        return f"{value!r:.40}"
    if isinstance(value, Sequence):
        plain = value and all(isinstance(one, int | float) for one in value)
        return f"{value!r:.40}" if plain else f"{len(value)} x {type(value[0]).__name__}" if value else "[]"
    number = getattr(value, "round", None)
    return type(value).__name__ + (f" of round {number}" if isinstance(number, int) else "")
