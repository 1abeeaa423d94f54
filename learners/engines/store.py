"""Recordings that the runs of one process share: cells of a study with the same step need not record it again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from learners.engines.lanes import Lane

if TYPE_CHECKING:
    from learners.engines.recorded import Recording

MOST_RECORDINGS = 32
"""Shapes of steps that an engine records; each has a network. Silos smaller than a batch have shapes of their own."""
LEFT_FREE = 0.75
"""A later run shares recordings only if this share of the memory that was free before the first is free again."""


@dataclass(kw_only=True, eq=False)
class Replicas:
    """Recordings of one step, one or more, each in a lane of its own."""

    value: object
    """All that the step depends on except tensors; None if other programs may not use the recordings."""
    constants: Sequence[Tensor]
    """The tensors that the step reads besides those of the recording."""
    recordings: list[Recording]
    enough: bool = False
    """Whether more lanes were found to be no faster, or not to fit into memory."""


class RecordingStore:
    """Lanes of a device and the recordings in them; an engine holds ``lock`` while it calls methods or uses lanes."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.lanes: list[Lane] = []
        self._kept: list[Replicas] = []
        self._free_bytes = 0

    def lane(self, i: int, make_lane: Callable[[], Lane]) -> Lane:
        """Return lane ``i``; make it and those before it if they do not exist yet."""
        while len(self.lanes) <= i:
            lane = make_lane()
            self._free_bytes = self._free_bytes or lane.free_bytes()
            lane.wait_for_others()
            self.lanes.append(lane)
        return self.lanes[i]

    def find(self, value: object, constants: Sequence[Tensor]) -> Replicas | None:
        """Return the newest recordings with equal value and constants; None if there are none or ``value`` is None."""
        for one in self._kept if value is not None else ():
            if one.value == value and len(one.constants) == len(constants):
                pairs = zip(one.constants, constants, strict=True)
                if all(a.dtype == b.dtype and torch.equal(a, b) for a, b in pairs):
                    return one
        return None

    def keep(self, replicas: Replicas) -> None:
        """Keep recordings for ``find``, unless their value is None; drop the longest unused beyond MOST_RECORDINGS."""
        self.drop(replicas)
        if replicas.value is not None:
            self._kept = [replicas, *self._kept][:MOST_RECORDINGS]

    def drop(self, replicas: Replicas) -> None:
        """Let ``find`` return these recordings no longer; do nothing if it would not."""
        self._kept = [one for one in self._kept if one is not replicas]

    def forget_others(self, own: Collection[Replicas]) -> bool:
        """Drop all recordings except ``own``, to free memory; return whether any were dropped."""
        before, self._kept = self._kept, [one for one in self._kept if one in own]
        return len(self._kept) < len(before)

    def has_room(self) -> bool:
        """Return whether another run can record here: all lanes are usable, and recordings take little memory."""
        return all(lane.usable and lane.free_bytes() >= LEFT_FREE * self._free_bytes for lane in self.lanes)


_STORES: dict[torch.device, RecordingStore] = {}


def get_store(device: torch.device) -> RecordingStore:
    """Return the store that runs of this process share on a device; a new one at first and if the last has no room."""
    if device not in _STORES or not _STORES[device].has_room():
        _STORES[device] = RecordingStore()
    return _STORES[device]
