"""Progress, shown where there is somebody to see it: on a terminal or in a notebook."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext

from vnetsim.progress import ProgressDisplay, TimeLeft, clock
from vnetsim.standard_streams import tell

FIRST_S = 10.0
"""Wall time after which it can be told how long the rest takes, once a round or run is done."""
EVERY_S = 60.0
"""Wall time between two lines in a pipe."""


class _Lines:
    """In a pipe: notes, a line when it is known how long the rest takes, and a line a minute."""

    def __init__(self) -> None:
        self._stage = ""
        self._time = TimeLeft()
        self._told_s = 0.0

    def stage(self, text: str) -> None:
        self._stage = text.partition("\n")[0]
        self._tell()

    def note(self, text: str) -> None:
        tell(text)

    def advance(self, *, time_s: float, done: float, total: float | None) -> None:  # noqa: ARG002 - the protocol's name
        self._time.see(done, total)
        self._tell()

    def _tell(self) -> None:
        now_s, left_s = self._time.elapsed_s, self._time.left_s
        estimated = not self._told_s and now_s >= FIRST_S and left_s is not None and left_s >= EVERY_S
        if not estimated and now_s < self._told_s + EVERY_S:
            return
        self._told_s = now_s
        share = "" if self._time.share is None else f"{self._time.share:.0%} done"
        rest = "" if left_s is None else f"about {clock(left_s)} left"
        tell(", ".join(filter(None, (self._stage, share, f"{clock(now_s)} elapsed", rest))))


class _Silent:
    """Nothing at all."""

    def stage(self, text: str) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def advance(self, *, time_s: float, done: float, total: float | None) -> None:
        pass


def progress_display(show: bool | None = None) -> AbstractContextManager[ProgressDisplay]:
    """Give a display.

    Args:
        show: None for a live line in a notebook or when standard error is a terminal, and notes and a line a minute
            otherwise; True for a live line everywhere; False for nothing, not even notes.
    """
    if show is not False:
        from vnetsim.display.notebook import cell_line, in_notebook  # noqa: PLC0415

        if in_notebook():
            return cell_line()
        if show or sys.stderr.isatty():
            from vnetsim.display.terminal import live_line  # noqa: PLC0415 - rich takes a while

            return live_line()
    return nullcontext(_Lines() if show is None else _Silent())
