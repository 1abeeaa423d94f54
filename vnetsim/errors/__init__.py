"""Errors a user meets: one line each, naming what is wrong, where, and what to do.

``bounds`` and ``paths`` look at what every package takes from users: numbers of settings, and names of files.

Every class takes exactly one message argument: SimPy re-raises an exception of a
process as ``type(e)(*e.args)``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

INTERRUPTED = 130
"""What a shell reports for a process that Ctrl-C ended; SIGTERM and SIGHUP end a run in the same way."""


class VnetsimError(Exception):
    """Base of all errors that reach the user as one line. ``exit_code`` is the process's exit status."""

    exit_code = 1


class InputError(VnetsimError):
    """The user's input is at fault: a file, a key, a value, a unit. Exit status 2."""

    exit_code = 2


class RunError(VnetsimError):
    """The run failed although its input was accepted: full disk, simulator crash, non-finite model. Exit status 1."""


class NotFiniteError(RunError):
    """A learner came to a number that is not finite. Going on with the same settings comes to it again."""


def unknown_name(kind: str, name: str, known: Iterable[str], where: str = "") -> InputError:
    """Return the error for a name that does not exist, listing those that do and the nearest one, whatever its case.

    ``kind`` says what it should have named, ``"learner"`` or ``"key"``; ``where``, in which file or option it stands.
    """
    names = sorted(known)
    folded = {known.casefold(): known for known in names}
    close = difflib.get_close_matches(name.casefold(), folded, n=1)
    hint = f" Did you mean '{folded[close[0]]}'?" if close else ""
    prefix = f"{where}: " if where else ""
    return InputError(f"{prefix}unknown {kind} '{name}'.{hint} Available: {', '.join(names) or 'none'}.")


def one_line(error: BaseException) -> str:
    """Return what an error says, as one line."""
    return " ".join(str(error).split()) or type(error).__name__
