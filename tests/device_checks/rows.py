"""Rows of the check's table, what a part is given, and what is kept of the parts between commands."""

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
        ends_s: ``time.monotonic()`` when the part's limit is over.
        data_root: folder of CIFAR-10, empty for built-in images.
    """

    device: str
    tiny: bool
    ends_s: float
    data_root: str = ""

    @property
    def left_s(self) -> float:
        """Seconds until the part's limit is over."""
        return self.ends_s - time.monotonic()

    @property
    def cuda(self) -> bool:
        """Whether the device is a GPU."""
        return self.device.startswith("cuda")


class NotRun(Exception):  # noqa: N818 - no error: the table says why there is no figure
    """A part has nothing to do here; its text says why."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of the check.

    Args:
        name: under which it is kept.
        run: returns its rows, or raises ``NotRun``.
        limit_s: the most it may take; it is begun where so much is left of a command.
        decides: whether a target missed is a fault, which the exit status tells.
        group: parts of one group run in one process, one after the other; empty for a process of its own.
    """

    name: str
    run: Callable[[CheckSetup], list[Row]]
    limit_s: float
    decides: bool = False
    group: str = ""


class Record:
    """What is kept of the parts: ``gpu_check.json``, and ``gpu_check.md`` to read; on the disk after every part.

    Args:
        folder: of both files.
        names: of all parts, in the order of the table.
    """

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self._file, self._page, self._names = folder / "gpu_check.json", folder / "gpu_check.md", names

    def read(self) -> dict[str, Any]:
        """Return what is kept; nothing at first."""
        if not self._file.exists():
            return {"parts": {}}
        content: dict[str, Any] = json.loads(self._file.read_text())
        return content

    def update(self, **changes: Any) -> None:
        """Change what is kept."""
        content = self.read() | changes
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(content, indent=1) + "\n")
        os.replace(new, self._file)  # noqa: PTH105 - one step, whatever happens
        self._page.write_text(_page(content, self._names))

    def put(self, part: str, status: str, *, rows: Sequence[Row] = (), why: str = "", wall_s: float = 0.0) -> None:
        """Keep how far a part is: ``running``, ``finished``, ``failed`` or ``not run``."""
        found = {"status": status, "why": why, "wall_s": round(wall_s, 2), "rows": [asdict(row) for row in rows]}
        self.update(parts=self.read()["parts"] | {part: found})

    def left(self) -> list[str]:
        """Return the parts that no command has brought to an end."""
        kept = self.read()["parts"]
        return [name for name in self._names if kept.get(name, {"status": "running"})["status"] == "running"]

    def running(self) -> str:
        """Return the part that has begun and not ended; empty if none."""
        kept = self.read()["parts"].items()
        return next((name for name, part in kept if part["status"] == "running"), "")


def _page(content: Mapping[str, Any], names: Sequence[str]) -> str:
    lines = ["# Check of the learners on a device", ""]
    if content.get("setting", {}).get("tiny"):
        lines += ["**A rehearsal with tiny sizes: no speed below means anything.**", ""]
    lines += [", ".join(f"{name} {value}" for name, value in content.get("machine", {}).items() if value), ""]
    lines += ["| work | reference | target | seen | met |", "|---|---|---|---|---|"]
    for name in names:
        kept = content["parts"].get(name, {"status": "left", "rows": [], "why": ""})
        for row in kept["rows"]:
            cells = [row[key].replace("|", "\\|") for key in ("work", "reference", "target", "seen")]
            lines.append(f"| {' | '.join(cells)} | {({True: 'yes', False: 'no', None: ''})[row['met']]} |")
        if kept["status"] != "finished":
            why = " ".join(kept["why"].replace("|", "\\|").split())
            lines.append(f"| {name} | | | {kept['status']}{': ' if why else ''}{why} | |")
    return "\n".join([*lines, ""])
