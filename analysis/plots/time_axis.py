"""Simulated time on an axis: seconds, minutes or hours, whichever reads best, since the traffic began."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


def clock(seconds: float) -> str:
    """Return a simulated time as of a clock that was at 0:00 at time 0, with the seconds only where there are any."""
    whole = round(seconds)
    text = f"{whole // 3600}:{whole % 3600 // 60:02d}"
    return f"{text}:{whole % 60:02d}" if whole % 60 else text


@dataclass(frozen=True, kw_only=True)
class TimeAxis:
    """Divide the seconds since ``begin_s`` by ``seconds`` and write ``label`` below."""

    seconds: float
    unit: str
    begin_s: float = 0.0

    @property
    def label(self) -> str:
        """The axis label."""
        if self.begin_s == 0:
            return f"simulated time ({self.unit})"
        return f"simulated time since {clock(self.begin_s)} h ({self.unit})"

    def of(self, time_s: Any) -> Any:
        """Return where a simulated time (s), a number or an array, lies on the axis."""
        return (time_s - self.begin_s) / self.seconds


def time_axis(span_s: float, begin_s: float = 0.0) -> TimeAxis:
    """Return the unit that suits a time span, counted from the beginning of the traffic."""
    if span_s <= 300:
        return TimeAxis(seconds=1.0, unit="s", begin_s=begin_s)
    if span_s <= 4 * 3600:
        return TimeAxis(seconds=60.0, unit="min", begin_s=begin_s)
    return TimeAxis(seconds=3600.0, unit="h", begin_s=begin_s)
