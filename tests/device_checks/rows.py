"""Rows of the check's table, what a part is given, and what is kept of finished parts between commands."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table.

    Args:
        work: what was done.
        reference: what it is held against, measured or computed in the same part.
        target: what it ought to be, empty where nothing was asked for.
        seen: the figure, with its unit.
        met: whether the target was met; None where there is none or it cannot be judged here.
        values: the figures as numbers, by name.
    """

    work: str
    reference: str
    target: str = ""
    seen: str
    met: bool | None = None
    values: Mapping[str, float | str | None] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CheckSetup:
    """What every part is given.

    Args:
        device: ``cpu``, ``cuda`` or ``cuda:N``.
        tiny: sizes that a busy processor does in a second, to rehearse; no figure of it means anything.
        seconds: about how long the part may take.
        folder: for the part's own files.
        schedule: file of the recorded participations.
        data_root: folder of CIFAR-10, empty for built-in images.
        seed: of the paper-size run.
        rounds: of the paper-size run; 0 for as many as the schedule has and the time allows.
        began_s: ``time.monotonic()`` when the part began.
    """

    device: str
    tiny: bool
    seconds: float
    folder: str
    schedule: str
    data_root: str = ""
    seed: int = 0
    rounds: int = 0
    began_s: float = 0.0

    @property
    def left_s(self) -> float:
        """Seconds until the part ought to end."""
        return self.began_s + self.seconds - time.monotonic()

    @property
    def cuda(self) -> bool:
        """Whether the device is a GPU."""
        return self.device.startswith("cuda")


class NotRun(Exception):  # noqa: N818 - no error: the table says why there is no figure
    """A part has nothing to do here; its text says why."""


class Unfinished(Exception):  # noqa: N818 - no error: the next command goes on
    """A part has used its time and goes on in the next command; ``rows`` are those so far."""

    def __init__(self, rows: Sequence[Row]) -> None:
        super().__init__("its time is used up; the next command goes on")
        self.rows = list(rows)


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of the check.

    Args:
        name: under which it is kept.
        title: heading of its rows.
        run: returns its rows, or raises ``NotRun`` or ``Unfinished``.
        limit_s: about how long it takes at most; a command that has less left does not begin it.
        deterministic: whether it runs under cuBLAS's reproducible workspace (``CUBLAS_WORKSPACE_CONFIG``).
    """

    name: str
    title: str
    run: Callable[[CheckSetup], list[Row]]
    limit_s: float = 120.0
    deterministic: bool = False


class Record:
    """The file that tells of finished parts; every change is on the disk before the next part begins.

    Args:
        path: of the file; need not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[str, Any]:
        """Return what is kept; empty at first."""
        if not self._path.exists():
            return {"parts": {}}
        content: dict[str, Any] = json.loads(self._path.read_text())
        return content

    def write(self, content: Mapping[str, Any]) -> None:
        """Replace what is kept."""
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")
        os.replace(new, self._path)  # noqa: PTH105 - one step, whatever happens

    def update(self, **changes: Any) -> None:
        """Change what is kept at the top."""
        self.write(self.read() | changes)

    def put(self, part: str, status: str, *, rows: Sequence[Row] = (), why: str = "", wall_s: float = 0.0) -> None:
        """Keep how a part ended: ``finished``, ``unfinished``, ``failed`` or ``not run``."""
        content = self.read()
        content["parts"][part] = {
            "status": status,
            "why": why,
            "wall_s": round(wall_s, 2),
            "rows": [asdict(row) for row in rows],
        }
        self.write(content)
