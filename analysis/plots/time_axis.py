"""Simulated time on an axis: seconds, minutes or hours, whichever reads best."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class TimeAxis:
    """Divide seconds by ``seconds`` and write ``label`` below."""

    seconds: float
    unit: str

    @property
    def label(self) -> str:
        """The axis label."""
        return f"simulated time ({self.unit})"


def time_axis(span_s: float) -> TimeAxis:
    """Return the unit that suits a time span."""
    if span_s <= 300:
        return TimeAxis(seconds=1.0, unit="s")
    if span_s <= 4 * 3600:
        return TimeAxis(seconds=60.0, unit="min")
    return TimeAxis(seconds=3600.0, unit="h")
