"""How the command line ends: one line for an error, and the exit status."""

from __future__ import annotations

import contextlib
import errno
import sys
import traceback

from cyclopts import CycloptsError

from vnetsim.errors import INTERRUPTED, InputError, RunError, VnetsimError, one_line
from vnetsim.standard_streams import drop_output, plain, tell

_PANIC = "PanicException"
"""Class name of a panic in a Rust library. It is not an ``Exception``, and every library has a class of its own."""


def status_of(error: BaseException, *, debug: bool) -> int:
    """Print why a command ended, in one line (nothing for a closed pipe; traceback with ``debug``); return the status.

    Any other BaseException than an error, interrupt, SystemExit or panic of a Rust library is raised again.
    """
    if isinstance(error, BrokenPipeError) or isinstance(error.__context__, BrokenPipeError):  # rich sets the context
        drop_output()  # a reader such as head may close the pipe
        return RunError.exit_code
    line, status = _line_of(error)
    if debug:
        with contextlib.suppress(OSError):
            sys.stderr.write(plain(traceback.format_exc()))
    tell(line)
    return status


def _line_of(error: BaseException) -> tuple[str, int]:
    """Return line and exit status; raise what ``status_of`` raises again. For an OSError also drop standard output."""
    said = one_line(error)
    match error:
        case CycloptsError():
            found = said, InputError.exit_code
        case VnetsimError():
            found = str(error), error.exit_code
        case OSError():
            where = f"{error.filename}: " if error.filename else ""
            drop_output()  # standard output itself may have failed
            ended = InputError if error.errno == errno.ENAMETOOLONG else RunError
            found = f"{where}{error.strerror or error}.", ended.exit_code
        case KeyboardInterrupt():
            found = str(error) or "interrupted.", INTERRUPTED
        case MemoryError():
            found = f"no memory was left{f': {said}' if str(error) else ''}.", RunError.exit_code
        case SystemExit():  # raised by a plug-in where plugin_errors does not catch it, such as in its settings
            what = f"a plug-in, or what it uses, ended the program (SystemExit: {error.code})."
            found = what, RunError.exit_code
        case _ if not isinstance(error, Exception) and type(error).__name__ != _PANIC:
            raise error
        case _ if not isinstance(error, Exception) and "KeyboardInterrupt" in said:  # Ctrl-C inside a Rust library
            found = "interrupted; go on with vnetsim resume, or with the same command.", INTERRUPTED
        case _:
            what = f"internal error: {type(error).__name__}: {said} (--debug shows where)."
            found = what, RunError.exit_code
    return found
