"""Progress in a notebook: one line below the cell, without a widget."""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vnetsim.progress import ProgressDisplay, TimeLeft, clock

SHOW_EVERY_S = 0.2


def in_notebook() -> bool:
    """Return whether a Jupyter kernel runs this process; IPython is not loaded to find out."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")


class _Line:
    """A line that is shown again and again in the same place, and the notes above it.

    Args:
        handle: of IPython's display, with ``update``.
    """

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._time = TimeLeft()
        self._due_s = 0.0
        self._stage, self._clock, self._done, self._total = "", "", 0.0, 0.0
        self._notes: list[str] = []

    def stage(self, text: str) -> None:
        self._stage = text
        self._show()

    def note(self, text: str) -> None:
        self._notes.append(text)
        self.show()

    def advance(self, *, time_s: float, done: float, total: float | None) -> None:
        self._clock, self._done, self._total = f"simulated {time_s:,.0f} s", done, total or 0.0
        self._time.see(done, total)
        self._show()

    def end(self) -> None:
        """Leave the notes alone."""
        self._stage = ""
        self.show()

    def _show(self) -> None:
        if time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + SHOW_EVERY_S
            self.show()

    def show(self) -> None:
        lines = [html.escape(note) for note in self._notes]
        if self._stage:
            share = f'<progress value="{self._done:g}" max="{self._total:g}"></progress>' if self._total else ""
            left = "" if self._time.left_s is None else f"about {clock(self._time.left_s)} left"
            words = [html.escape(self._stage), share, self._clock, f"{clock(self._time.elapsed_s)} elapsed", left]
            lines.append(" ".join(filter(None, words)))
        self._handle.update({"text/html": "<br>".join(lines), "text/plain": "\n".join(lines)}, raw=True)


@contextmanager
def cell_line() -> Iterator[ProgressDisplay]:
    """Give a display below the notebook's cell."""
    from IPython.display import display  # type: ignore[import-not-found]  # noqa: PLC0415 - there, see in_notebook

    line = _Line(display({"text/html": "", "text/plain": ""}, raw=True, display_id=True))
    try:
        yield line
    finally:
        line.end()
