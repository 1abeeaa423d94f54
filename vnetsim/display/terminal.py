"""Progress on a terminal: one live line on standard error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.table import Column
from rich.text import Text

from vnetsim.progress import ProgressDisplay
from vnetsim.standard_streams import plain


class _Bar:
    """On a terminal: one line with stage, simulated time, bar, elapsed and remaining time."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def stage(self, text: str) -> None:
        self._progress.update(self._task, description=plain(text))

    def note(self, text: str) -> None:
        self._progress.console.print(Text(plain(f"vnetsim: {text}")))

    def advance(self, *, time_s: float, done: float, total: float | None) -> None:
        self._progress.update(self._task, completed=done, total=total, clock=f"simulated {time_s:,.0f} s")


class _Times(ProgressColumn):
    """How long it has taken, and how long it will take yet once that can be told."""

    def render(self, task: Task) -> Text:
        words = [f"{_clock(task.elapsed or 0)} elapsed"]
        if task.time_remaining is not None and not task.finished:
            words.append(f"{_clock(task.time_remaining)} left")
        return Text(", ".join(words), style="progress.elapsed")


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


@contextmanager
def live_line() -> Iterator[ProgressDisplay]:
    """Give a display that is one line on standard error, gone when it is left."""
    columns = (
        TextColumn("{task.description}", markup=False, table_column=Column()),  # the one that may take several lines
        BarColumn(bar_width=10),
        TextColumn("{task.fields[clock]}", table_column=Column(no_wrap=True)),
        _Times(table_column=Column(no_wrap=True)),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield _Bar(progress, progress.add_task("starting", total=None, clock=""))
