"""Cells on a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from vnetsim.cells import Job, Outcome
from vnetsim.errors import InputError
from vnetsim.study_progress import StudyProgress


def ray_engine(workers: int, address: str | None) -> Callable[[Sequence[Job], StudyProgress], Generator[Outcome]]:
    """Return what runs cells on a cluster."""
    raise InputError(f"--engine ray: not there yet ({workers}, {address}).")
