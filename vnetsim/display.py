"""Progress, shown where there is somebody to see it: on a terminal, in a notebook, or as lines in a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from vnetsim.progress import ProgressDisplay
from vnetsim.standard_streams import plain, tell

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

FIRST_S = 10.0
"""Wall time after which it can be said how long the rest takes, once a round or run is done."""
EVERY_S = 60.0
"""Wall time between two lines in a pipe."""
SHOW_EVERY_S = 0.2
"""Wall time between two looks of a notebook's line."""


class _Lines:
    """In a pipe: notes, a line when it is known how long the rest takes, and a line a minute."""

    def __init__(self) -> None:
        self._stage = ""
        self._began_s = time.monotonic()
        self._told_s = 0.0
        self._first: tuple[float, float, float | None] | None = None  # when, how much was done of how much
        self._share: float | None = None
        self._left_s: float | None = None

    def stage(self, text: str) -> None:
        self._stage = text.partition("\n")[0]
        self._tell()

    def note(self, text: str) -> None:
        tell(text)

    def advance(self, *, time_s: float, done: float, total: float | None) -> None:  # noqa: ARG002 - the protocol's name
        """Estimate the rest once a round, a run or a second of traffic is done; for other work ``done`` starts anew."""
        now_s = time.monotonic()
        if self._first is None or done < self._first[1] or total != self._first[2]:
            self._first = now_s, done, total
        first_s, first, _ = self._first
        self._share = done / total if total else None
        self._left_s = (now_s - first_s) * (total - done) / (done - first) if total and done >= first + 1 else None
        self._tell()

    def _tell(self) -> None:
        elapsed_s, left_s = time.monotonic() - self._began_s, self._left_s
        estimated = not self._told_s and elapsed_s >= FIRST_S and left_s is not None and left_s >= EVERY_S
        if estimated or elapsed_s >= self._told_s + EVERY_S:
            self._told_s = elapsed_s
            tell(self._words(elapsed_s))

    def _words(self, elapsed_s: float) -> str:
        share = "" if self._share is None else f"{self._share:.0%} done"
        rest = "" if self._left_s is None else f"about {_clock(self._left_s)} left"
        return ", ".join(filter(None, (self._stage, share, f"{_clock(elapsed_s)} elapsed", rest)))


def _clock(seconds: float) -> str:
    """Return a wall time as a person says it."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    if minutes < 90:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


class _CellLine(_Lines):
    """In a notebook: such a line again and again in the same place, and the notes above it."""

    def __init__(self) -> None:
        super().__init__()
        self._told_s = -SHOW_EVERY_S
        self._shown = 0  # letters

    def note(self, text: str) -> None:
        self.show("")
        tell(text)

    def _tell(self) -> None:
        elapsed_s = time.monotonic() - self._began_s
        if elapsed_s >= self._told_s + SHOW_EVERY_S:
            self._told_s = elapsed_s
            self.show(self._words(elapsed_s))

    def show(self, line: str) -> None:
        sys.stderr.write(f"\r{' ' * self._shown}\r{plain(line)}")
        sys.stderr.flush()
        self._shown = len(plain(line))


class _Silent:
    """Nothing at all."""

    def stage(self, text: str) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def advance(self, *, time_s: float, done: float, total: float | None) -> None:
        pass


class _Bar:
    """On a terminal: one line with stage, simulated time, bar, elapsed and remaining time."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def stage(self, text: str) -> None:
        self._progress.update(self._task, description=plain(text))

    def note(self, text: str) -> None:
        self._progress.console.print(plain(f"vnetsim: {text}"), markup=False, highlight=False)

    def advance(self, *, time_s: float, done: float, total: float | None) -> None:
        self._progress.update(self._task, completed=done, total=total, clock=f"simulated {time_s:,.0f} s")


@contextmanager
def live_line() -> Iterator[ProgressDisplay]:
    """Give a display that is one line on standard error, gone when it is left."""
    from rich import progress as rich_progress  # noqa: PLC0415 - takes a while
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Column  # noqa: PLC0415

    columns = (
        # the one that may take several lines
        rich_progress.TextColumn("{task.description}", markup=False, table_column=Column()),
        rich_progress.BarColumn(bar_width=10),
        rich_progress.TextColumn("{task.fields[clock]}"),
        rich_progress.TimeElapsedColumn(table_column=Column(no_wrap=True)),
        rich_progress.TextColumn("elapsed,"),
        rich_progress.TimeRemainingColumn(table_column=Column(no_wrap=True)),
        rich_progress.TextColumn("left"),
    )
    with rich_progress.Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield _Bar(progress, progress.add_task("starting", total=None, clock=""))


def _in_notebook() -> bool:
    """Return whether a Jupyter kernel runs this process; IPython is not loaded to find out."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")


@contextmanager
def cell_line() -> Iterator[ProgressDisplay]:
    """Give a display below the notebook's cell."""
    line = _CellLine()
    try:
        yield line
    finally:
        line.show("")


def progress_display(show: bool | None = None) -> AbstractContextManager[ProgressDisplay]:
    """Give a display.

    Args:
        show: None for a live line in a notebook or when standard error is a terminal, and notes and a line a minute
            otherwise; True for a live line everywhere; False for nothing, not even notes.
    """
    if show is False:
        return nullcontext(_Silent())
    if _in_notebook():
        return cell_line()
    return live_line() if show or sys.stderr.isatty() else nullcontext(_Lines())
