"""Numbers and strings for readers: three digits, SI prefixes, thin spaces, no control characters."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

THIN = "\u202f"
"""Narrow no-break space between digit groups and before units."""

NONE = "\u2013"
"""Shown for a missing value."""

MOST_NAMED = 5
"""Most names in a sentence; others are counted."""

MEASURES = ("RMSE", "MAE")
"""Units that name a measure; the label then says what it measures."""
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "\u00b5"))
_SUPERSCRIPTS = str.maketrans("-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")


def count(value: float) -> str:
    """Return a finite value rounded to a whole number, with its digits in groups of three."""
    return f"{round(value):,}".replace(",", THIN).replace("-", "\u2212")


def number(value: float, digits: int = 3) -> str:
    """Return ``value`` with ``digits`` significant digits, and a power of ten if tiny or huge; a dash if not finite."""
    if not math.isfinite(value):
        return NONE
    if value == 0:
        return "0"
    exponent = math.floor(math.log10(abs(float(f"{value:.{digits - 1}e}"))))
    if exponent < -4 or exponent > 6:
        mantissa = f"{value / 10.0**exponent:.{digits - 1}f}".replace("-", "\u2212")
        return f"{mantissa}{THIN}\u00d7{THIN}10{str(exponent).translate(_SUPERSCRIPTS)}"
    rounded = round(value, digits - 1 - exponent)
    return f"{rounded:,.{max(digits - 1 - exponent, 0)}f}".replace(",", THIN).replace("-", "\u2212")


def si(value: float, unit: str) -> str:
    """Return three digits and an SI prefix, as ``44.9 MB`` or ``1.11 GFLOP``; a dash and the unit if not finite."""
    if not math.isfinite(value) or value == 0:
        return f"{number(value)}{THIN}{unit}"
    rounded = abs(float(f"{value:.2e}"))
    scale, prefix = next(((s, p) for s, p in _PREFIXES if rounded >= s), _PREFIXES[-1])
    return f"{number(value / scale)}{THIN}{prefix}{unit}"


def byte_scale(most: float) -> tuple[float, str]:
    """Return (divisor, unit) for an axis of bytes up to ``most`` (B): 1 and ``B``, ..., 1e12 and ``TB``."""
    return next(((10.0**k, u) for k, u in ((12, "TB"), (9, "GB"), (6, "MB"), (3, "kB")) if most >= 10**k), (1.0, "B"))


def quantity(value: float, unit: str) -> str:
    """Return ``value`` with three digits and its unit, which may be empty, without a prefix; a dash if not finite."""
    return f"{number(value)}{THIN}{unit}" if unit else number(value)


def percent(fraction: float, digits: int = 1) -> str:
    """Return a fraction in per cent with ``digits`` decimals; a dash if not finite."""
    return f"{fraction * 100:.{digits}f}{THIN}%".replace("-", "\u2212") if math.isfinite(fraction) else NONE


def duration(seconds: float) -> str:
    """Return a time span (s) in one or two units that suit its size, as ``2 h 5 min``; a dash if not finite."""
    if not math.isfinite(seconds):
        return NONE
    if seconds < 120:
        return quantity(seconds, "s")
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}{THIN}min" + (f" {whole % 60}{THIN}s" if whole % 60 else "")
    return f"{count(whole // 3600)}{THIN}h" + (f" {whole % 3600 // 60}{THIN}min" if whole % 3600 // 60 else "")


def timestamp(text: object) -> str:
    """Return an ISO date in UTC as ``2025-01-31 12:00:00 UTC``; empty for an empty value or None."""
    return f"{clean(text)[:19].replace('T', ' ')} UTC" if text else ""


def plural(value: float, noun: str) -> str:
    """Return a whole number with its noun, with an "s" unless it is 1: ``1 vehicle``, ``12 vehicles``."""
    return f"{count(value)} {noun}{'' if value == 1 else 's'}"


def sentence_case(text: str) -> str:
    """Return ``text`` with a capital first letter, unless the second is one, as in ``kNN``."""
    return text if text[1:2].isupper() else text[:1].upper() + text[1:]


def decapitalised(text: str) -> str:
    """Return ``text`` with a small first letter, unless the second is a capital, as in ``RMSE`` or ``kNN``."""
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]


def subject(label: str, unit: str) -> str:
    """Return ``label``, or if the unit names a measure, such as RMSE, ``RMSE, label``."""
    return f"{unit}, {decapitalised(label)}" if unit in MEASURES else label


def dimension(unit: str) -> str:
    """Return the unit as written after a number; empty for one that names a measure, as ``RMSE``."""
    return "" if unit in MEASURES else unit


def clean(text: object, limit: int = 60) -> str:
    """Return ``text``, cut at the end to ``limit`` letters, unprintable ones as U+FFFD. HTML is not escaped."""
    shown = _printable(text)
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}\u2026"


def shortened(text: object, limit: int = 60) -> str:
    """Return ``text`` as ``clean`` does, but cut in the middle, because ids often begin alike."""
    shown = _printable(text)
    return shown if len(shown) <= limit else f"{shown[: limit // 2]}\u2026{shown[len(shown) - (limit - 1) // 2 :]}"


def slugs(names: Sequence[str]) -> list[str]:
    """Return a distinct part of a file name for each name: 40 of a-z, 0-9, ``-`` at most; repeated ones get -2, -3."""
    found: list[str] = []
    for name in names:
        slug = re.sub("[^a-z0-9]+", "-", name.lower())[:40].strip("-") or "unnamed"
        numbered = (slug, *(f"{slug}-{number}" for number in range(2, len(names) + 1)))
        found.append(next(one for one in numbered if one not in found))
    return found


def named(names: Sequence[str], between: str = ", ") -> str:
    """Return up to ``MOST_NAMED`` names, joined by ``between``, and the number of others, as ``a, b and 3 more``."""
    more = f" and {count(len(names) - MOST_NAMED)} more" if len(names) > MOST_NAMED else ""
    return between.join(shortened(name, 90) for name in names[:MOST_NAMED]) + more


def _printable(text: object) -> str:
    """Return text with each unprintable character replaced by U+FFFD."""
    shown = str(text)
    return shown if shown.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in shown)


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of the page: title, column heads, rows of text, and a note below."""

    title: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str = ""
