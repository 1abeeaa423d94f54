"""How the command line ends: the one line that a user reads of an error, and the exit status."""

from __future__ import annotations

import contextlib
import errno
import sys
import traceback

from cyclopts import CycloptsError

from vnetsim.errors import INTERRUPTED, InputError, RunError, VnetsimError
from vnetsim.standard_streams import drop_output, plain, tell

_PANIC = "PanicException"
"""What a panic of a library written in Rust is called here. It is no ``Exception``, and every library has its own."""


def status_of(error: BaseException, *, debug: bool) -> int:
    """Print one line that says why a command ended, with ``debug`` where as well, and return the exit status."""
    if isinstance(error, BrokenPipeError) or isinstance(error.__context__, BrokenPipeError):  # the latter of rich
        drop_output()  # whoever has read enough may close the pipe
        return RunError.exit_code
    line, status = _line_of(error)
    if debug:
        with contextlib.suppress(OSError):
            sys.stderr.write(plain(traceback.format_exc()))
    tell(line)
    return status


def _line_of(error: BaseException) -> tuple[str, int]:
    """Return what a user reads of an error, and the exit status."""
    said = " ".join(str(error).split())
    match error:
        case CycloptsError():
            found = said, InputError.exit_code
        case VnetsimError():
            found = str(error), error.exit_code
        case OSError():
            where = f"{error.filename}: " if error.filename else ""
            drop_output()  # which may be what failed
            ended = InputError if error.errno == errno.ENAMETOOLONG else RunError
            found = f"{where}{error.strerror or error}.", ended.exit_code
        case KeyboardInterrupt():
            found = str(error) or "interrupted.", INTERRUPTED
        case MemoryError():
            found = f"no memory was left{': ' if said else ''}{said}.", RunError.exit_code
        case SystemExit():  # of a plug-in that was not called by its name, as when its settings check themselves
            what = f"a plug-in, or what it uses, ended the program (SystemExit: {error.code})."
            found = what, RunError.exit_code
        case _ if not isinstance(error, Exception) and type(error).__name__ != _PANIC:
            raise error
        case _ if not isinstance(error, Exception) and "KeyboardInterrupt" in said:  # so Ctrl-C arrives from there
            found = "interrupted; go on with vnetsim resume, or with the same command.", INTERRUPTED
        case _:
            what = f"internal error: {type(error).__name__}: {said} (--debug shows where)."
            found = what, RunError.exit_code
    return found
