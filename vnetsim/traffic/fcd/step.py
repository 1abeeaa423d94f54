"""One time step of a recording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vnetsim.coverage.windows import Floats


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
