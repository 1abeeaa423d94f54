"""Where long work says how far it is; who shows it is another matter."""

from __future__ import annotations

from typing import Protocol


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
