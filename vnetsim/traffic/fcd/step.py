"""One time step of a recording, and whether its positions are metres.

A recording made with ``--fcd-output.geo`` holds degrees: it is known by how little its vehicles move.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from vnetsim.coverage.windows import Floats
from vnetsim.errors import InputError

_ENOUGH_M = 200.0
_SLOW_MPS = 1.0
_SHARE = 1e-3
"""A degree is at least 1.9 km even of longitude at 89 degrees north; in metres, vehicles move as far as they drive."""


@dataclass(slots=True, eq=False)
class FcdStep:
    """The vehicles of one time step, as sequences of one length; ``lanes`` and ``types`` are empty where not recorded.

    ``where`` names the place in the file, for error messages; ``persons_known`` whether the recording tells persons
    from vehicles.
    """

    time_s: float
    ids: Sequence[str]
    x_m: Floats
    y_m: Floats
    speed_mps: Floats
    lanes: Sequence[str | None]
    types: Sequence[str | None]
    where: str
    persons_known: bool = True


class UnitsCheck:
    """Watches until vehicles have driven far enough to tell."""

    def __init__(self) -> None:
        self._before: tuple[float, dict[str, tuple[float, float, float]]] = (math.nan, {})
        self._driven_m = self._moved_m = 0.0
        self._decided = False

    def seen(self, steps: Iterable[FcdStep]) -> Iterator[FcdStep]:
        """Yield steps after a look at each."""
        for step in steps:
            self.see(step)
            yield step

    def see(self, step: FcdStep) -> None:
        """Look at the next step.

        Raises:
            InputError: positions are geographical degrees.
        """
        if self._decided or not len(step.ids):
            return
        if np.abs(step.x_m).max() > 180 or np.abs(step.y_m).max() > 90:
            self._decided = True  # no degrees on Earth
            return
        before_s, before = self._before
        columns = (values.tolist() for values in (step.x_m, step.y_m, step.speed_mps))
        now = dict(zip(step.ids, zip(*columns, strict=True), strict=True))
        for name in now.keys() & before.keys():
            (x0, y0, speed0), (x1, y1, speed1) = before[name], now[name]
            if min(speed0, speed1) > _SLOW_MPS:
                self._driven_m += (speed0 + speed1) / 2 * (step.time_s - before_s)
                self._moved_m += math.hypot(x1 - x0, y1 - y0)
        self._before = step.time_s, now
        if self._driven_m >= _ENOUGH_M:
            self._judge(step.where)
            self._decided = True

    def finish(self, where: str) -> None:
        """Judge by what there was.

        Raises:
            InputError: positions are geographical degrees.
        """
        if not self._decided and self._driven_m > 0:
            self._judge(where)

    def _judge(self, where: str) -> None:
        if 0 < self._moved_m < _SHARE * self._driven_m:
            raise InputError(
                f"{where}: positions are in degrees: vehicles drove {self._driven_m:.3g} m by their speeds and moved "
                f"by {self._moved_m:.2g}. Record without --fcd-output.geo."
            )
