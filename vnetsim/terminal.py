"""What a person sees on the terminal: progress on standard error, closing tables on standard output."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from vnetsim.learning import Learner
from vnetsim.registry import about


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


def print_verdicts(verdicts: Sequence[tuple[str, str, str]], page: Path, *, title: str) -> None:
    """Print what a comparison found (metric, pair of learners, verdict) and the page's path."""
    console = Console()
    table = Table("metric", "pair", "verdict", title=Text(title), title_justify="left", title_style="bold")
    for metric, pair, verdict in verdicts:
        table.add_row(Text(metric), Text(pair), Text(verdict))
    console.print(table)
    print(f"comparison: {page}")


def print_learners(learners: Mapping[str, type[Learner]]) -> None:
    """Print one row a learner: name, task, payload, paper."""
    table = Table(show_lines=True)
    table.add_column("learner", no_wrap=True)
    for title in ("task", "payload", "paper"):
        table.add_column(title, overflow="fold")
    for name, learner in learners.items():
        table.add_row(Text(name), Text(learner.task), Text(about(learner).payload), Text(learner.paper))
    Console().print(table)


def print_learner(learner: type[Learner]) -> None:
    """Print what a learner says of itself: description, citation, payload, equations, settings, own defaults."""
    console = Console()
    own = about(learner)
    console.print(Text(f"{learner.name}: {learner.task}", style="bold"))
    described = inspect.cleandoc(learner.__doc__ or "").partition("\nArgs:")[0]
    for paragraph in described.strip().split("\n\n"):
        console.print(Text(" ".join(paragraph.split())))
    console.print(Text(f"\npaper: {learner.paper}"))
    if own.payload:
        console.print(Text(f"payload of a visit: {own.payload}"))
    if own.equations:
        console.print(Text("\nequations", style="bold"))
        for equation in own.equations:
            console.print(Text(f"  {equation}"), soft_wrap=True)
    settings = {field.name: _default(field) for field in dataclasses.fields(learner.Settings)}
    _print_defaults(console, "settings (--set learning.NAME=VALUE)", "setting", settings)
    if own.defaults:
        defaults = {key: repr(value) for key, value in own.defaults.items()}
        _print_defaults(
            console, "general settings of which it has a default of its own (--set KEY=VALUE)", "key", defaults
        )


def _print_defaults(console: Console, title: str, kind: str, defaults: Mapping[str, str]) -> None:
    console.print(Text(f"\n{title}", style="bold"))
    table = Table(kind, "default")
    for name, default in defaults.items():
        table.add_row(Text(name), Text(default))
    console.print(table)


def _default(field: dataclasses.Field[Any]) -> str:
    """Return a setting's default as text."""
    if field.default is not dataclasses.MISSING:
        return repr(field.default)
    return "(must be given)" if field.default_factory is dataclasses.MISSING else repr(field.default_factory())
