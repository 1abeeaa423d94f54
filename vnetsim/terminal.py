"""What a person sees on the terminal: progress on standard error, closing tables on standard output."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from vnetsim.learning import Learner


class ProgressDisplay(Protocol):
    """Where long work says how far it is."""

    def stage(self, text: str) -> None:
        """Name what is being done now."""
        ...

    def note(self, text: str) -> None:
        """Tell the user something that stays on the screen."""
        ...

    def advance(self, *, time_s: float, done: float, total: float | None) -> None:
        """Report the simulated time (s) and how much of the work is done, in rounds or seconds."""
        ...


class _Silent:
    """In a pipe: only notes are printed."""

    def stage(self, text: str) -> None:
        pass

    def note(self, text: str) -> None:
        print(f"vnetsim: {text}", file=sys.stderr)

    def advance(self, *, time_s: float, done: float, total: float | None) -> None:
        pass


class _Bar:
    """On a terminal: one line with stage, simulated time, bar, elapsed and remaining time."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def stage(self, text: str) -> None:
        self._progress.update(self._task, description=text)

    def note(self, text: str) -> None:
        self._progress.console.print(Text(f"vnetsim: {text}"))

    def advance(self, *, time_s: float, done: float, total: float | None) -> None:
        self._progress.update(self._task, completed=done, total=total, clock=f"simulated {time_s:,.0f} s")


@contextmanager
def progress_display() -> Iterator[ProgressDisplay]:
    """Give a display: a live line when standard error is a terminal, silence otherwise."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Silent()
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[clock]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        yield _Bar(progress, progress.add_task("starting", total=None, clock=""))


def print_headline(headline: Sequence[tuple[str, str]], report: Path, *, title: str) -> None:
    """Print headline numbers (label, value with unit) and the report's path."""
    console = Console()
    table = Table(title=Text(title), show_header=False, title_justify="left", title_style="bold")
    for label, value in headline:
        table.add_row(Text(label), Text(value))
    console.print(table)
    print(f"report: {report}")


def print_learners(learners: Mapping[str, type[Learner]]) -> None:
    """Print one line a learner: name, task, paper."""
    table = Table("learner", "task", "paper")
    for name, learner in learners.items():
        table.add_row(Text(name), Text(learner.task), Text(learner.paper))
    Console().print(table)


def print_learner(name: str, learner: type[Learner]) -> None:
    """Print a learner's description and its settings with their defaults."""
    console = Console()
    console.print(Text(f"{name}: {learner.task}", style="bold"))
    console.print(Text(learner.paper))
    console.print(Text(inspect.getdoc(learner) or ""))
    table = Table("setting", "default", title="settings (--set learning.NAME=VALUE)", title_justify="left")
    for field in dataclasses.fields(learner.Settings):
        table.add_row(Text(field.name), Text(repr(field.default)))
    console.print(table)
