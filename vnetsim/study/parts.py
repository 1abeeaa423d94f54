"""Parts of a comparison: each runs every N-th cell, in a process of its own, on machines that share the folder.

All parts have a shared lock on the folder, so that a call without ``--part`` waits for none of them: it is refused. A
cell has the lock of its run directory, a recording of traffic one beside its folder, and one part at a time changes
``comparison.json`` and copies of plug-ins.
"""

from __future__ import annotations

import fcntl
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from vnetsim.errors import InputError
from vnetsim.process import refuse_forked
from vnetsim.runs.writer import open_lock
from vnetsim.storage.folder import PARTS_LOCK
from vnetsim.storage.run_directory import RunDirectory
from vnetsim.study.plan import Cell

Part = tuple[int, int]  # K and N of ``--part K/N``
OpenToChange = Callable[[], AbstractContextManager[RunDirectory]]
"""Gives a comparison's folder to a ``with`` block that changes its own files; no other process does so meanwhile."""


def part_of(text: str) -> Part:
    """Return K and N of ``K/N``; InputError if it is no such text, or K is not in 1 to N."""
    found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
    number, count = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= number <= count:
        raise InputError(f"--part: expected K/N with K from 1 to N, such as 3/20, got {text!r}.")
    return number, count


def in_part(cells: Sequence[Cell], part: Part) -> list[bool]:
    """Return for each cell whether it is in ``part``; pass all cells of the study, finished ones too, in its order."""
    number, count = part
    arms = len({(cell.arm, cell.condition) for cell in cells})
    period = math.lcm(arms, count)  # after so many cells the pattern shifts, so that an arm meets all parts
    return [(index + index // period) % count == number - 1 for index in range(len(cells))]


@contextmanager
def share_directory(run: RunDirectory) -> Iterator[None]:
    """Make a comparison's folder if missing, and let only other parts use it during the block; InputError if in use."""
    refuse_forked()
    with open_lock(run, how=fcntl.LOCK_SH | fcntl.LOCK_NB)[0]:
        yield


@contextmanager
def change_in_turn(folder: Path) -> Iterator[RunDirectory]:
    """Wait until no other part changes the comparison's own files; yield its folder, and write its checksums after."""
    run = RunDirectory(folder)  # a new object, which reads the checksums that others have written
    with open_lock(run, PARTS_LOCK, fcntl.LOCK_EX)[0]:
        yield run
        run.settle()
