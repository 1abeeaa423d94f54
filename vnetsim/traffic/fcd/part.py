"""Successive time steps of a recording, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from vnetsim.coverage.frames import Integers
from vnetsim.coverage.windows import Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class FcdPart:
    """Some time steps. Those columns that are not of steps have a row for each vehicle in a step.

    Args:
        time_s: of the steps (s).
        where: place of each step in the file, for messages.
        step: index into ``time_s``, in order.
        ids: vehicle ids.
        x_m: positions (m), like ``y_m``.
        y_m: see ``x_m``.
        speed_mps: speeds (m/s).
        lanes: None where not recorded, like ``types``.
        types: see ``lanes``.
        persons_known: whether the recording tells persons from vehicles.
        vehicle: a number for each vehicle id, in order of first appearance.
    """

    time_s: Floats
    where: Sequence[str]
    step: Integers
    ids: Sequence[str]
    x_m: Floats
    y_m: Floats
    speed_mps: Floats
    lanes: Sequence[str | None]
    types: Sequence[str | None]
    persons_known: bool = True
    vehicle: Integers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def until(self, step: int) -> FcdPart:
        """Return the steps before ``step``."""
        rows = int(np.searchsorted(self.step, step))
        of_rows = ("step", "ids", "x_m", "y_m", "speed_mps", "lanes", "types", "vehicle")
        return replace(self, time_s=self.time_s[:step], **{name: getattr(self, name)[:rows] for name in of_rows})
