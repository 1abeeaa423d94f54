"""Activities in simulated time: generators that yield what they wait for.

A ``Task`` runs one. It is no SimPy process, for two reasons: an interrupt takes effect at once, and an exception leaves
the event loop as it was raised.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import simpy


class Signal:
    """An event that happens once. Calling it resumes at once all tasks that wait for it, in the order of waiting.

    A task that yields it after it has fired waits for ever; see ``until``.
    """

    __slots__ = ("callbacks", "fired")

    def __init__(self) -> None:
        self.callbacks: list[Callable[[Any], None]] = []
        self.fired = False

    def __call__(self) -> None:
        """Fire: set ``fired``, and resume the tasks that wait. Call it only once."""
        self.fired = True
        for go_on in self.callbacks:
            go_on(self)


Activity = Generator[simpy.Event | Signal, None, Any]


class Interrupt(Exception):  # noqa: N818 - it is no error
    """Raised in an activity where it waits."""


class Task(Signal):
    """Runs an activity from now on; as a signal, it fires when the activity has ended by itself.

    Python closes an activity that never ended some time after the run: its ``finally`` may change nothing that is
    still read then.
    """

    __slots__ = ("_activity", "_awaited")

    def __init__(self, activity: Activity) -> None:
        """Run the activity at once, up to its first ``yield``."""
        super().__init__()
        self._activity = activity
        self._awaited: simpy.Event | Signal | None
        self._wait_for(next(activity, None))

    def interrupt(self, cause: Interrupt) -> None:
        """Raise ``cause`` now in the activity, which then ends or waits again; an uncaught one is raised here."""
        try:
            self._wait_for(self._activity.throw(cause))
        except StopIteration:
            self._wait_for(None)

    def stop(self) -> None:
        """Never resume the activity, and never fire; the activity is not closed."""
        self._awaited = None

    def _wait_for(self, event: simpy.Event | Signal | None) -> None:
        """Resume the activity when ``event`` happens; with None the activity has ended: go on with who waits for it."""
        self._awaited = event
        if event is None:
            self()
        else:
            event.callbacks.append(self._resume)

    def _resume(self, happened: object) -> None:
        """Resume the activity if it still waits for the event that happened; else do nothing."""
        if happened is self._awaited:
            self._wait_for(next(self._activity, None))


class Deadline:
    """Calls a function at a time that may be put off or cancelled before."""

    def __init__(self, env: simpy.Environment) -> None:
        self._env = env
        self._task: Task | None = None

    def set(self, wait_s: float, expire: Callable[[], None]) -> None:
        """Call ``expire`` in ``wait_s`` (s) from now, instead of the call that was set before."""
        self.cancel()
        self._task = Task(self._wait(wait_s, expire))

    def cancel(self) -> None:
        """Cancel the call that was set, if any."""
        if self._task is not None:
            self._task.stop()

    def _wait(self, wait_s: float, expire: Callable[[], None]) -> Activity:
        """Wait (s), then call ``expire``."""
        yield self._env.timeout(wait_s)
        expire()


def until(signal: Signal) -> Activity:
    """Wait for a signal; return at once if it has fired already."""
    if not signal.fired:
        yield signal
