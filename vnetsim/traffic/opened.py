"""What every kind of opened traffic has in common."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from vnetsim.coverage.rsu import Rsu
from vnetsim.coverage.windows import TrafficInfo


class OpenedTraffic:
    """The base of what follows ``TrafficStream``, which says what ``rsus``, ``info`` and ``time_s`` are."""

    rsus: tuple[Rsu, ...]
    time_s: float
    _info: TrafficInfo
    _late_note: Callable[[], str] = str

    @property
    def info(self) -> TrafficInfo:
        """What the record says of this traffic; who was left out shows only while it is read."""
        note = self._late_note()
        return dataclasses.replace(self._info, notes=(*self._info.notes, note)) if note else self._info

    def close(self) -> None:
        """Release what is held; may be called twice."""
