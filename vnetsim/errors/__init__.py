"""Error classes for users: the message is one line that says what is wrong, where, and what to do.

``bounds`` validates settings, ``paths`` validates file names. Every class takes one argument, the message, because
pickle rebuilds an exception as ``type(e)(*e.args)``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

INTERRUPTED = 130
"""Exit status after Ctrl-C, SIGTERM or SIGHUP."""


class VnetsimError(Exception):
    """Base class of all errors that the user sees as one line. ``exit_code`` is the process's exit status."""

    exit_code = 1


class InputError(VnetsimError):
    """The user's input is at fault: a file, a key, a value, a unit. Exit status 2."""

    exit_code = 2


class InUseError(InputError):
    """Another process has locked the folder."""


class RunError(VnetsimError):
    """The run failed although its input was accepted: full disk, simulator crash, non-finite model. Exit status 1."""


class UnfinishedError(VnetsimError):
    """The time limit was reached, or other processes are at work; the same call continues. Exit status 75."""

    exit_code = 75  # EX_TEMPFAIL of sysexits.h


class NotFiniteError(RunError):
    """A learner computed a number that is not finite. Resuming with the same settings would compute it again."""


def unknown_name(kind: str, name: str, known: Iterable[str], where: str = "") -> InputError:
    """Return, not raise, the error for an unknown name; it suggests the nearest known name, if any, and lists all.

    ``kind`` is what the name should have been, such as ``"learner"`` or ``"key"``; ``where`` is the file or option, or
    empty. Case is ignored; a known name that begins with ``name`` and a hyphen counts as nearest.
    """
    names = sorted(known)
    folded = {known.casefold(): known for known in names}
    longer = [one for one in folded if one.startswith(f"{name.casefold()}-")]
    close = longer or difflib.get_close_matches(name.casefold(), folded, n=1)
    hint = f" Did you mean '{folded[close[0]]}'?" if close else ""
    prefix = f"{where}: " if where else ""
    return InputError(f"{prefix}unknown {kind} '{name}'.{hint} Available: {', '.join(names) or 'none'}.")


def one_line(error: BaseException) -> str:
    """Return an error's message as one line; the name of its class if the message is empty."""
    return " ".join(str(error).split()) or type(error).__name__
