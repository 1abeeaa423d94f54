"""Progress displays: for a terminal, a notebook and a pipe."""

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
"""Wall time (s) before the remaining time is estimated; at least one round or run must be done."""
EVERY_S = 60.0
"""Wall time (s) between two lines in a pipe."""
SHOW_EVERY_S = 0.2
"""Wall time (s) between two updates of a notebook's line."""
_BAR_LETTERS = 20


class _Lines:
    """Display for a pipe: notes, a line with the first estimate of the remaining time, and a line a minute."""

    def __init__(self) -> None:
        self._stage = ""
        self._began_s = time.monotonic()
        self._printed_s = 0.0  # when a line was last printed, from the beginning
        self._first: tuple[float, float, float | None] | None = None  # wall time (s), done and total at that time
        self._share: float | None = None
        self._left_s: float | None = None

    def stage(self, text: str) -> None:
        """Set the stage to the first line of a text; print only if a line is due."""
        self._stage = text.partition("\n")[0]
        self._print_if_due()

    def note(self, text: str) -> None:
        """Print a message as one line on standard error."""
        tell(text)

    def advance(self, *, time_s: float, done: float, total: float | None) -> None:  # noqa: ARG002 - the protocol's name
        """Estimate the wall time left, from scratch if ``done`` falls or ``total`` changes; print if a line is due."""
        now_s = time.monotonic()
        if self._first is None or done < self._first[1] or total != self._first[2]:
            self._first = now_s, done, total
        first_s, first, _ = self._first
        self._share = done / total if total else None
        self._left_s = (now_s - first_s) * (total - done) / (done - first) if total and done >= first + 1 else None
        self._print_if_due()

    def _print_if_due(self) -> None:
        """Print the line if a minute has passed since the last one, or once when the first estimate is ready."""
        elapsed_s, left_s = time.monotonic() - self._began_s, self._left_s
        estimated = not self._printed_s and elapsed_s >= FIRST_S and left_s is not None and left_s >= EVERY_S
        if estimated or elapsed_s >= self._printed_s + EVERY_S:
            self._printed_s = elapsed_s
            tell(self._line(elapsed_s))

    def _line(self, elapsed_s: float) -> str:
        """Return the line to print: stage, share done, time elapsed and time left, as far as known."""
        share = "" if self._share is None else f"{self._share:.0%} done"
        rest = "" if self._left_s is None else f"about {_duration_text(self._left_s)} left"
        return ", ".join(filter(None, (self._stage, share, f"{_duration_text(elapsed_s)} elapsed", rest)))


def _duration_text(seconds: float) -> str:
    """Return a time span in words: "40 s", "12 min", "3 h 5 min"."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    if minutes < 90:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


class _CellLine(_Lines):
    """Display for a notebook: one line with a bar that is overwritten, with the notes above it."""

    def __init__(self) -> None:
        super().__init__()
        self._printed_s = -SHOW_EVERY_S
        self._shown = 0  # letters

    def note(self, text: str) -> None:
        """Print a message above the line; the line is drawn again at the next update."""
        self.show("")
        tell(text)

    def _print_if_due(self) -> None:
        """Overwrite the line, with its bar, if ``SHOW_EVERY_S`` have passed since the last time."""
        elapsed_s = time.monotonic() - self._began_s
        if elapsed_s >= self._printed_s + SHOW_EVERY_S:
            self._printed_s = elapsed_s
            filled = round(_BAR_LETTERS * min(self._share or 0.0, 1.0))
            bar = "" if self._share is None else "\u2588" * filled + "\u2591" * (_BAR_LETTERS - filled) + " "
            self.show(bar + self._line(elapsed_s))

    def show(self, line: str) -> None:
        """Overwrite the shown line on standard error; an empty one erases it."""
        sys.stderr.write(f"\r{' ' * self._shown}\r{plain(line)}")
        sys.stderr.flush()
        self._shown = len(plain(line))


class _Silent(_Lines):
    """Display that shows nothing."""

    def note(self, text: str) -> None:
        pass

    def _print_if_due(self) -> None:
        pass


class _Bar:
    """Display for a terminal: one line with stage, simulated time, bar, elapsed and remaining time."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def stage(self, text: str) -> None:
        self._progress.update(self._task, description=plain(text))

    def note(self, text: str) -> None:
        """Print a message above the bar."""
        self._progress.console.print(plain(f"vnetsim: {text}"), markup=False, highlight=False)

    def advance(self, *, time_s: float, done: float, total: float | None) -> None:
        """Show the bar at ``done`` of ``total`` (endless for None), and the simulated time (s)."""
        self._progress.update(self._task, completed=done, total=total, clock=f"simulated {time_s:,.0f} s")


@contextmanager
def live_line() -> Iterator[ProgressDisplay]:
    """Yield a display for a terminal: one line on standard error, erased at the end, with notes above it."""
    from rich import progress as rich_progress  # noqa: PLC0415 - takes a while
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Column  # noqa: PLC0415

    columns = (
        # the only column that may wrap
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
    """Return whether a Jupyter kernel runs this process, without loading IPython."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")


@contextmanager
def cell_line() -> Iterator[ProgressDisplay]:
    """Yield a display for a notebook: one line below the cell, erased at the end, with notes above it."""
    line = _CellLine()
    try:
        yield line
    finally:
        line.show("")


def progress_display(show: bool | None = None) -> AbstractContextManager[ProgressDisplay]:
    """Return a context manager that yields the display for this process.

    None shows a live line in a notebook or on a terminal, elsewhere notes and a line a minute; True shows a live line
    everywhere, False nothing, not even notes.
    """
    if show is False:
        return nullcontext(_Silent())
    if _in_notebook():
        return cell_line()
    return live_line() if show or sys.stderr.isatty() else nullcontext(_Lines())
