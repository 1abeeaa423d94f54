"""A plug-in wrapped so that results, inputs and repetition of its calls are checked against its protocol."""

from __future__ import annotations

import collections.abc
import dataclasses
import functools
import hashlib
import inspect
import math
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from vnetsim.errors import VnetsimError
from vnetsim.errors.bounds import Within, bounds_of
from vnetsim.plugins import Kind, place_in_file, place_of, reason_of

_MAY_CHANGE = frozenset({"generator", "chances", "streams"})
"""Arguments, or their fields, that every plug-in may change."""


class BrokenLaw(VnetsimError):  # noqa: N818 - no error of the checker
    """A plug-in breaks a law: one line that says what was called, what came back, and what to do. Exit status 2."""

    exit_code = 2


class StrictPlugin:
    """A plug-in with attributes and results that must fit its protocol; it must not change what it is given.

    Args:
        plugin: the plug-in, or its class.
        kind: its kind.
        pure: methods that are called twice, and must give the same answer for the same arguments.
        may_change: names of arguments, and of their fields, that the plug-in may change, besides random streams.
        protocol: what it follows, if not the kind's protocol.

    Attributes:
        calls: number of calls of each method.
    """

    def __init__(
        self,
        plugin: Any,
        kind: Kind,
        *,
        pure: Collection[str] = (),
        may_change: Collection[str] = ("memory",),
        protocol: type | None = None,
    ) -> None:
        self._plugin, self._kind, self._pure = plugin, kind, pure
        self._protocol = protocol or kind.protocol
        self._may_change = _MAY_CHANGE | {*may_change}
        self.calls: collections.Counter[str] = collections.Counter()

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # for isinstance
        return type(self._plugin)

    def __getattr__(self, part: str) -> Any:
        value = getattr(self._plugin, part)
        if part.startswith("_"):
            return value
        expected = _expected(self._owner(part), part)
        if not inspect.isroutine(value):
            return self._fit(value, expected, part)

        def call(*given: Any, **named: Any) -> Any:
            return self._call(part, value, expected, given, named)

        return call

    def _owner(self, part: str) -> type:
        """Return the class that declares a part's type: the protocol, or a base class of vnetsim that extends it."""
        own = self._plugin if isinstance(self._plugin, type) else type(self._plugin)
        bases = [base for base in reversed(own.__mro__) if base.__module__.startswith("vnetsim.")]
        return next((one for one in (self._protocol, *bases) if part in {*vars(one), *_hints(one)}), self._protocol)

    def _call(self, part: str, method: Callable[..., Any], expected: Any, given: Any, named: Any) -> Any:
        self.calls[part] += 1
        words = f"{part}({', '.join([*map(_words, given), *(f'{key}={_words(one)}' for key, one in named.items())])})"
        before = self._bits_of(part, given)
        found = self._once(method, words, given, named)
        lazy = get_origin(expected) in (collections.abc.Iterable, collections.abc.Iterator)
        found = self._fit(found, expected, words, method)
        if lazy and get_origin(expected) is collections.abc.Iterator:
            return self._each(found, words)
        if lazy:
            found = tuple(self._each(found, words))
        if part in self._pure and bits(
            self._fit(self._once(method, words, given, named), expected, words, method)
        ) != bits(found):
            raise BrokenLaw(
                f"{words} returned one answer, and another one when it was called again with the same arguments; let "
                f"it depend on its arguments only.{place_of(method)}"
            )
        if self._bits_of(part, given) != before:
            raise BrokenLaw(f"{words} changed an argument; change a copy of it.{place_of(method)}")
        return found

    def _bits_of(self, part: str, given: Sequence[Any]) -> Any:
        declared = vars(self._protocol).get(part)
        names = list(inspect.signature(getattr(declared, "__func__", declared)).parameters)[1:] if declared else []
        names += [""] * len(given)
        return [
            bits(one, self._may_change) for name, one in zip(names, given, strict=False) if name not in self._may_change
        ]

    def _once(self, method: Callable[..., Any], words: str, given: Any, named: Any) -> Any:
        with errors_of(words):
            return method(*given, **named)

    def _fit(self, value: Any, expected: Any, words: str, method: Any = None) -> Any:
        try:
            return _fit(value, expected)
        except BrokenLaw as misfit:
            verb = "is" if method is None else "returned"
            place = f"{self._protocol.__module__}.{self._protocol.__name__}"
            raise BrokenLaw(f"{words} {verb} {misfit}; see {place}.{place_of(method)}") from None

    def _each(self, values: Iterable[Any], words: str) -> Iterator[Any]:
        with errors_of(words):
            yield from values


@contextmanager
def errors_of(words: str) -> Iterator[None]:
    """Turn an exception inside the block into a ``BrokenLaw``; ``words`` say which call raised it."""
    try:
        yield
    except BrokenLaw:
        raise
    except VnetsimError as error:
        raise BrokenLaw(f"{words} was refused: {error}") from error
    except (Exception, SystemExit) as error:
        raise BrokenLaw(f"{words} raised {reason_of(error)}; mend it.{place_in_file(error)}") from error


def bits(value: Any, skip: Collection[str] = ()) -> Any:
    """Return nested tuples that are equal if two values are equal to the bit; objects other than data are left out.

    ``skip`` names fields of dataclasses to leave out.
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
    elif isinstance(value, float | int | str | bytes | NoneType):
        found = type(value).__name__, repr(value)
    else:
        found = type(value).__name__, getattr(value, "vehicle_id", "")
    return found


@functools.cache
def _hints(owner: type) -> dict[str, Any]:
    return get_type_hints(owner, include_extras=True)


@functools.cache
def _expected(owner: type, part: str) -> Any:
    """Return the declared type of an attribute, or of a method's result."""
    declared = inspect.getattr_static(owner, part, None)
    function = getattr(declared, "fget", None) or getattr(declared, "__func__", declared)
    if inspect.isfunction(function):
        return get_type_hints(function, include_extras=True).get("return", Any)
    hint = _hints(owner).get(part, Any)
    return Any if get_origin(hint) is typing.ClassVar else hint


def _fit(value: Any, expected: Any, words: str = "") -> Any:
    """Return a value of the expected type; raise BrokenLaw. ``words`` describe the type in a message."""
    origin = get_origin(expected)
    if origin is Annotated:
        words = next((one for one in expected.__metadata__ if isinstance(one, str)), "")
        fitted = _fit(value, get_args(expected)[0], words)
        for within in (one for one in expected.__metadata__ if isinstance(one, Within)):
            _require(within.low <= fitted <= within.high, value, f"a number {within}")
        return fitted
    if origin in (Union, UnionType):
        return None if value is None else _fit(value, next(one for one in get_args(expected) if one is not NoneType))
    if expected in (float, int, bool):
        return _number(value, expected)
    if isinstance(origin, type):
        return _fit_container(value, origin, get_args(expected), words)
    if isinstance(expected, type) and expected not in (Any, NoneType):
        if getattr(expected, "_is_protocol", False):
            missing = [part for part in vars(expected) if part[0] != "_" and _absent(value, part)]
            _require(not missing, value, f"{_article(expected)}, and it lacks {', '.join(missing)}")
            return value
        _require(isinstance(value, expected), value, _article(expected))
        for field, within in bounds_of(expected).items():
            number = getattr(value, field)
            _require(within.low <= number <= within.high, number, f"{field} {within}")
    return value


def _absent(value: Any, part: str) -> bool:
    return inspect.getattr_static(value, part, None) is None and getattr(value, part, None) is None


def _fit_container(value: Any, origin: type, arguments: tuple[Any, ...], words: str) -> Any:
    if origin is tuple and Ellipsis not in arguments:
        _require(isinstance(value, tuple) and len(value) == len(arguments), value, words or f"{len(arguments)} values")
        return tuple(_fit(one, kind) for one, kind in zip(value, arguments, strict=True))
    inner = arguments[0] if arguments and isinstance(arguments[0], type) else None
    _require(isinstance(value, origin), value, words or _article(origin) + (f" of {inner.__name__}" if inner else ""))
    if origin is Mapping and float in arguments:
        for key, one in value.items():
            _number(one, float, f"a finite number as '{key}' (leave out what is none)")
    if inner is not None and origin is Sequence:
        for one in value:
            _require(isinstance(one, inner), one, f"{_article(inner)} each")
    return value


def _number(value: Any, expected: type, words: str = "") -> Any:
    words = words or {float: "a finite number", int: "a whole number", bool: "true or false"}[expected]
    try:
        found = bool(value) if expected is bool else float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        found = math.nan
    _require(not isinstance(value, str | NoneType) and math.isfinite(found), value, words)
    _require(expected is not int or float(found).is_integer(), value, words)
    return int(found) if expected is int else found


def _require(met: bool, value: Any, words: str) -> None:
    if not met:
        shown = repr(value) if isinstance(value, bool | int | float | str | NoneType) else _article(type(value))
        raise BrokenLaw(f"{shown:.80}, expected {words}")


def _article(kind: type) -> str:
    return f"{'an' if kind.__name__[:1] in 'AEIOUaeiou' else 'a'} {kind.__name__}"


def _words(value: Any) -> str:
    """Return an argument in a few words for a message."""
    if isinstance(value, bool | int | float | str | NoneType):
        return f"{value!r:.40}"
    if isinstance(value, Sequence):
        plain = value and all(isinstance(one, int | float) for one in value)
        return f"{value!r:.40}" if plain else f"{len(value)} x {type(value[0]).__name__}" if value else "[]"
    number = getattr(value, "round", None)
    return type(value).__name__ + (f" of round {number}" if isinstance(number, int) else "")


def parameters_fault(found: type, kind: Kind) -> str:
    """Return which method of a class cannot be called as the protocol says; empty for none."""
    for part, declared in vars(kind.protocol).items():
        wanted = getattr(declared, "__func__", declared)
        own = inspect.getattr_static(found, part, None)
        function = getattr(own, "__func__", own)
        if part.startswith("_") or not (inspect.isfunction(wanted) and inspect.isfunction(function)):
            continue
        asked = list(inspect.signature(wanted).parameters.values())
        needed = [one for one in asked if one.default is one.empty]
        by_name = {one.name: None for one in needed if one.kind is one.KEYWORD_ONLY}
        count = sum(one.kind is not one.KEYWORD_ONLY for one in needed) - isinstance(own, staticmethod)
        try:
            inspect.signature(function).bind(*[None] * count, **by_name)
        except TypeError as error:
            parameters = ", ".join(str(one).partition(":")[0] for one in asked)
            return f"its method {part} cannot be called with ({parameters}): {error}."
    return ""
