"""What every kind of opened traffic has in common."""

from __future__ import annotations

import dataclasses

from vnetsim.coverage.rsu import Rsu
from vnetsim.coverage.windows import TrafficInfo


class OpenedTraffic:
    """RSUs, what the record says, and how far the traffic has been read; the base of what follows ``TrafficStream``."""

    _rsus: tuple[Rsu, ...]
    _info: TrafficInfo
    _time_s: float

    @property
    def rsus(self) -> tuple[Rsu, ...]:
        """The RSUs, at least one."""
        return self._rsus

    @property
    def info(self) -> TrafficInfo:
        """What the record says of this traffic; some notes show only while it is read."""
        note = self._late_note()
        return dataclasses.replace(self._info, notes=(*self._info.notes, note)) if note else self._info

    @property
    def time_s(self) -> float:
        """How far the traffic has been read (s)."""
        return self._time_s

    def close(self) -> None:
        """Release what is held; may be called twice."""

    def _late_note(self) -> str:
        """Return what the user must know after reading, empty for nothing."""
        return ""
