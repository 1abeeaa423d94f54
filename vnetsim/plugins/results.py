"""Checks of what a run's plug-ins return and raise: every fault is one line that names plug-in, method and protocol."""

from __future__ import annotations

import math
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

from vnetsim.errors import RunError, VnetsimError
from vnetsim.errors.bounds import Within
from vnetsim.plugins import Kind, place_of, plugin_errors

T = TypeVar("T")

FINITE = Within(-1e300, 1e300, "", "a number")
NOT_NEGATIVE = Within(0, 1e300, "", "a size")


def number_of(value: Any, within: Within, kind: Kind, plugin: Any, method: str, at: Any = None) -> float:
    """Return ``value``, which a plug-in's method returned, as a float; RunError if not finite, or out of bounds.

    ``kind``, ``plugin``, ``method`` and ``at.round``, if there is one, are for the message.
    """
    if type(value) is float and within.low <= value <= within.high:  # radio models are called a million times
        return value
    try:
        found = math.nan if isinstance(value, str) else float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        found = math.nan
    if not within.low <= found <= within.high:  # NaN is refused too
        raise wrong_result(value, f"a finite number {within}", kind, plugin, method, at)
    return found


def require_type(value: T, expected: type, kind: Kind, plugin: Any, method: str, at: Any = None) -> T:
    """Return a method's ``value`` unchanged; RunError if it is no instance of ``expected``. See ``number_of``."""
    if not isinstance(value, expected):
        raise wrong_result(value, expected.__name__, kind, plugin, method, at)
    return value


def wrong_result(value: Any, expected: str, kind: Kind, plugin: Any, method: str, at: Any = None) -> RunError:
    """Return, not raise, the error for a ``value`` that is not as ``expected`` says in words; see ``number_of``."""
    name, place = getattr(plugin, "name", kind.name), place_of(getattr(plugin, method, None))
    problem = f"it returned {' '.join(repr(value).split())[:80]}, expected {expected}; see {kind.place}"
    return RunError(f"{kind.name} '{name}' failed in {method}{_describe_round([at])}: {problem}.{place}")


@contextmanager
def errors_of_plugins(*plugins: tuple[Kind, Any]) -> Iterator[None]:
    """Turn an exception that was raised in code of one of ``plugins``, objects or classes, into a RunError of one line.

    It names plug-in, method, round and line of the user's file. Other exceptions, and VnetsimError, pass unchanged.
    """
    try:
        yield
    except VnetsimError:
        raise
    except (Exception, SystemExit) as error:
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        while frames:
            for kind, plugin in plugins:
                if method := _find_method(plugin, frames[-1]):
                    given = [
                        frame.f_locals.get(name)
                        for frame in reversed(frames)
                        for name in frame.f_code.co_varnames[1 : frame.f_code.co_argcount]
                    ]
                    with plugin_errors(kind.name, str(plugin.name), f"in {method}{_describe_round(given)}"):
                        raise error from error.__cause__
            frames.pop()
        raise


def _find_method(plugin: Any, frame: FrameType) -> str:
    """Return the plug-in's public method that a frame runs, or that contains the frame's code; empty if neither."""
    own = plugin if isinstance(plugin, type) else type(plugin)
    where = f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}"
    for base in own.__mro__:
        inside = where.removeprefix(f"{base.__module__}.{base.__qualname__}.")
        if inside != where and not inside.startswith("_"):
            return inside.partition(".")[0]
    return ""


def _describe_round(arguments: list[Any]) -> str:
    """Return " in round N" for the first argument of a call that has a whole number ``round``; else empty."""
    rounds = (getattr(one, "round", None) for one in arguments)
    return next((f" in round {number}" for number in rounds if isinstance(number, int)), "")
