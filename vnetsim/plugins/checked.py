"""Checks around any plug-in: an exception, or a result that breaks its protocol, becomes a one-line error."""

from __future__ import annotations

import collections.abc
import functools
import inspect
import math
import sys
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from vnetsim.errors import NotFiniteError, RunError
from vnetsim.errors.bounds import Within, bounds_of
from vnetsim.plugins import place_of, plugin_errors

T = TypeVar("T")


def checked(plugin: T, kind: str, protocol: type, *, name: str = "") -> T:
    """Return a plug-in (or its class) whose attributes and results are checked against its protocol.

    They must have the type that the protocol states, within the bounds of that type (``Annotated[float,
    Within(...)]``), and every number must be finite. Numbers are converted to plain Python numbers. Exceptions, also of
    a returned iterator, become RunError. Private attributes and those that the protocol does not name are not checked.
    ``kind`` is a word for messages, such as ``"pace"``; ``name`` is by default the plug-in's own.

    Raises:
        RunError: from the plug-in's methods: which failed, in which method and round, how, and at which line of the
            user's file.
    """
    return cast("T", CheckedPlugin(plugin, kind, protocol, name or str(getattr(plugin, "name", kind))))


class _MisfitError(Exception):
    """A result that does not fit its protocol."""


class _NotFiniteMisfitError(_MisfitError):
    """A result contains a number that is not finite."""


class CheckedPlugin:
    """Stands for a plug-in or its class; checks every attribute and result that the protocol declares."""

    def __init__(self, plugin: Any, kind: str, protocol: type, name: str) -> None:
        self._plugin = plugin
        self._protocol = protocol
        self._told = (kind, name)

    def __reduce__(self) -> tuple[Any, ...]:  # a copy is checked as well
        return CheckedPlugin, (self._plugin, self._told[0], self._protocol, self._told[1])

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # for isinstance
        return type(self._plugin)

    def __getattr__(self, part: str) -> Any:
        if part.startswith("_"):
            return getattr(self._plugin, part)
        kind, name = self._told
        present = inspect.getattr_static(self._plugin, part, None) is not None
        with plugin_errors(kind, name, f"in {part}") if present else nullcontext():
            value = getattr(self._plugin, part)
        expected = _expected(self._owner(part), part)
        if not inspect.isroutine(value):
            return self._fit_result(value, expected, part, None)
        self.__dict__[part] = call = self._method(part, value, expected)  # __getattr__ is called only once
        return call

    def _method(self, part: str, method: Any, expected: Any) -> Any:
        kind, name = self._told
        plain, low, high = _plain(expected)

        def call(*given: Any, **named: Any) -> Any:
            try:
                found = method(*given, **named)
            except (Exception, SystemExit) as error:
                with plugin_errors(kind, name, f"in {part}{_moment(given)}"):
                    raise error from error.__cause__
            # radio and pace are called a million times
            if type(found) is plain and low <= cast("float", found) <= high:
                return found
            return self._fit_result(found, expected, f"{part}{_moment(given)}", method)

        return call

    def _owner(self, part: str) -> type:
        """Return the class that declares a part's type: the protocol, or a base class of vnetsim that extends it."""
        own = self._plugin if isinstance(self._plugin, type) else type(self._plugin)
        bases = [base for base in reversed(own.__mro__) if base.__module__.startswith("vnetsim.")]
        return next((base for base in (self._protocol, *bases) if part in _parts(base)), self._protocol)

    def _fit_result(self, value: Any, expected: Any, when: str, method: Any) -> Any:
        """Return a result as the expected type; if it does not fit, RunError with the line of ``method`` (or None)."""
        kind, name = self._told
        try:
            fitted = _fit(value, expected)
        except _MisfitError as misfit:
            place = place_of(method)
            protocol = f"{self._protocol.__module__}.{self._protocol.__name__}"
            fault = NotFiniteError if isinstance(misfit, _NotFiniteMisfitError) else RunError
            raise fault(f"{kind} '{name}' failed in {when}: {misfit}; see {protocol}.{place}") from None
        lazy = get_origin(expected) in (collections.abc.Iterable, collections.abc.Iterator)
        return self._each(fitted, when) if lazy else fitted

    def _each(self, values: Iterable[Any], when: str) -> Iterator[Any]:
        """Yield the values; an exception of the iterator becomes RunError."""
        try:
            yield from values
        except (Exception, SystemExit) as error:
            with plugin_errors(*self._told, f"in {when}"):
                raise error from error.__cause__


@functools.cache
def _expected(owner: type, part: str) -> Any:
    """Return the declared type of an attribute, or of a method's result; Any if none is declared."""
    declared = inspect.getattr_static(owner, part, None)
    function = getattr(declared, "fget", None) or getattr(declared, "__func__", declared)
    if inspect.isfunction(function):
        return get_type_hints(function, include_extras=True).get("return", Any)
    hint = get_type_hints(owner, include_extras=True).get(part, Any)
    return Any if get_origin(hint) is typing.ClassVar else hint


def _plain(expected: Any) -> tuple[type | None, float, float]:
    """Return type, lower and upper bound of a result that is one number, for a fast check; type None for any other."""
    kind, *more = get_args(expected) if get_origin(expected) is Annotated else (expected,)
    if kind not in (float, int, bool):
        return None, 0.0, 0.0
    bounds = [one for one in more if isinstance(one, Within)]
    lows, highs = [one.low for one in bounds], [one.high for one in bounds]
    return kind, max(lows, default=-sys.float_info.max), min(highs, default=sys.float_info.max)


def _parts(owner: type) -> set[str]:
    """Return the names of the attributes and annotations in a class's own body."""
    return {*vars(owner), *inspect.get_annotations(owner)}


def _fit(value: Any, expected: Any, words: str = "") -> Any:
    """Return a value as the expected type; raises _MisfitError. ``words`` describe the type in a message."""
    origin = get_origin(expected)
    if origin is Annotated:
        return _fit_annotated(value, expected)
    if origin in (Union, UnionType):
        return None if value is None else _fit(value, next(one for one in get_args(expected) if one is not NoneType))
    if expected in (float, int, bool):
        return _number(value, expected)
    if isinstance(origin, type):
        return _fit_container(value, origin, get_args(expected), words)
    if isinstance(expected, type) and expected not in (Any, NoneType):
        parts = [part for part in vars(expected) if not part.startswith("_")] if _is_protocol(expected) else []
        missing = [part for part in parts if inspect.getattr_static(value, part, None) is None]
        some = f"{_article(expected)}, and it lacks {', '.join(missing)}"
        _require(not missing, value, some if len(missing) < len(parts) else _article(expected))
        _require(_is_protocol(expected) or isinstance(value, expected), value, _article(expected))
        for field, within in bounds_of(expected).items():
            _within(getattr(value, field), within, f" as {field}")
    return value


def _fit_annotated(value: Any, expected: Any) -> Any:
    """Return a value as the type inside ``Annotated``; _MisfitError if it does not fit or is out of bounds."""
    words = next((one for one in expected.__metadata__ if isinstance(one, str)), "")
    fitted = _fit(value, get_args(expected)[0], words)
    for bounds in expected.__metadata__:
        if isinstance(bounds, Within):
            _within(fitted, bounds)
    return fitted


def _within(value: float, bounds: Within, where: str = "") -> None:
    """Raise _MisfitError for a value outside of the bounds; ``where`` follows the value in the message."""
    if not bounds.low <= value <= bounds.high:
        raise _MisfitError(f"it returned {value}{where}, which must be {bounds}")


def _fit_container(value: Any, origin: type, arguments: tuple[Any, ...], words: str) -> Any:
    """Return a tuple, mapping or sequence as the type ``origin[arguments]``; raises _MisfitError."""
    if origin is tuple and Ellipsis not in arguments:
        fits = isinstance(value, tuple) and len(value) == len(arguments)
        _require(fits, value, words or f"{len(arguments)} values")
        return tuple(_fit(one, kind) for one, kind in zip(value, arguments, strict=True))
    inner = arguments[0] if arguments and isinstance(arguments[0], type) else None
    if origin is Mapping:
        _require(
            isinstance(value, Mapping), value, "a mapping of numbers by name" if float in arguments else "a mapping"
        )
        return {key: _entry(key, one) for key, one in value.items()} if float in arguments else value
    name = f"{_article(origin)} of {inner.__name__}" if inner else _article(origin)
    _require(isinstance(value, origin), value, words or name)
    if inner is not None and origin is Sequence:
        for one in value:
            _require(isinstance(one, inner), one, f"{_article(inner)} each")
    return value


def _is_protocol(expected: type) -> bool:
    return bool(getattr(expected, "_is_protocol", False))


def _number(value: Any, expected: type) -> Any:
    """Return a value as a Python float, int or bool; raises _MisfitError for text, NaN, infinity, a fraction as int."""
    words = {float: "a finite number", int: "a whole number", bool: "true or false"}[expected]
    try:
        found = bool(value) if expected is bool else float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        found = math.nan
    _require(not isinstance(value, str) and math.isfinite(found), value, words)
    if expected is int:
        _require(float(found).is_integer(), value, words)
        return int(found)
    return found


def _entry(key: Any, value: Any) -> float:
    """Return a mapping's value as a float; raises _NotFiniteMisfitError, which names the key."""
    try:
        return float(_number(value, float))
    except _MisfitError:
        raise _NotFiniteMisfitError(f"its '{key}' is {value!r}; what is no finite number is to be left out") from None


def _require(holds: bool, value: Any, words: str) -> None:
    """Raise _MisfitError unless ``holds``; the message has the value and the expected type in ``words``."""
    if not holds:
        what = repr(value) if isinstance(value, bool | int | float | str | NoneType) else _article(type(value))
        raise _MisfitError(f"it returned {what:.80}, expected {words}")


def _article(kind: type) -> str:
    """Return the name of a class after "a" or "an"."""
    return f"{'an' if kind.__name__[:1] in 'AEIOUaeiou' else 'a'} {kind.__name__}"


def _moment(given: Sequence[Any]) -> str:
    """Return " in round N" and the vehicle, if the arguments have them."""
    for one in given:
        first = one[0] if isinstance(one, Sequence) and one else one
        number = getattr(getattr(first, "participant", first), "round", None)
        if isinstance(number, int):
            alone = isinstance(one, Sequence) and len(one) == 1 and hasattr(first, "vehicle_id")
            return f" in round {number}" + (f" at vehicle '{first.vehicle_id}'" if alone else "")
    return ""
