"""TOML of files that may have come from anybody: reading one ends soon, in values or in one line."""

from __future__ import annotations

import re
import tomllib
from typing import Any

DEEPEST = 50
"""Tables or lists within each other, in TOML and in records; settings have three, records six."""
_DOTTED = re.compile(rf"(?<![\w'\"-])(?:(?:[\w-]++|\"[^\"\n]*+\"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{DEEPEST}}}")
"""A key of so many parts. Python's parser takes a time that grows with the square of their number."""
_LARGEST = 2**63


def parse(text: str) -> dict[str, Any]:
    """Return the tables of a TOML document.

    Raises:
        ValueError: what is wrong, in one line: no TOML, a whole number of more than the 64 bits that TOML asks for, or
            tables or lists nested beyond any settings.
    """
    if _DOTTED.search(text):
        raise ValueError("nested too deeply")
    try:
        found = tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:  # a number with more digits than Python converts
        raise ValueError("a whole number has more than 64 bits") from None
    _check(found, 0)
    return found


def _check(value: Any, depth: int) -> None:
    if isinstance(value, dict | list):
        if depth > DEEPEST:
            raise ValueError("nested too deeply")
        for item in value.values() if isinstance(value, dict) else value:
            _check(item, depth + 1)
    elif isinstance(value, int) and not -_LARGEST <= value < _LARGEST:
        raise ValueError("a whole number has more than 64 bits")
