"""The protocol by which long work reports its progress."""

from __future__ import annotations

from typing import Protocol


class ProgressDisplay(Protocol):
    """Shows the progress of long work."""

    def stage(self, text: str) -> None:
        """Show what is being done now, in place of the stage before."""
        ...

    def note(self, text: str) -> None:
        """Print a message that stays on the screen."""
        ...

    def advance(self, *, time_s: float, done: float, total: float | None) -> None:
        """Show the simulated time (s) and the work done in rounds or seconds; ``total`` is None if unknown."""
        ...
