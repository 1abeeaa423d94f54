"""Progress, shown where there is somebody to see it: on a terminal or in a notebook."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from vnetsim.progress import ProgressDisplay
from vnetsim.standard_streams import tell


class _Silent:
    """In a pipe: only notes are printed, or nothing at all.

    Args:
        notes: whether notes are printed.
    """

    def __init__(self, *, notes: bool) -> None:
        self._notes = notes

    def stage(self, text: str) -> None:
        pass

    def note(self, text: str) -> None:
        if self._notes:
            tell(text)

    def advance(self, *, time_s: float, done: float, total: float | None) -> None:
        pass


def progress_display(show: bool | None = None) -> AbstractContextManager[ProgressDisplay]:
    """Give a display.

    Args:
        show: None for a live line in a notebook or when standard error is a terminal, and notes alone otherwise; True
            for a live line everywhere; False for nothing, not even notes.
    """
    if show is not False:
        from vnetsim.display.notebook import cell_line, in_notebook  # noqa: PLC0415

        if in_notebook():
            return cell_line()
        if show or sys.stderr.isatty():
            from vnetsim.display.terminal import live_line  # noqa: PLC0415 - rich takes a while

            return live_line()
    return _silence(notes=show is None)


@contextmanager
def _silence(*, notes: bool) -> Iterator[ProgressDisplay]:
    yield _Silent(notes=notes)
