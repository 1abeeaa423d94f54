"""Standard output and error that may be closed, full, or a terminal that is gone: what was done is not lost by that."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path


def tell(line: str) -> None:
    """Print a line of the program's own to standard error; where nobody can read it, go on without."""
    shown = "".join(letter if letter.isprintable() else " " for letter in line)  # names may hold control characters
    with contextlib.suppress(OSError):
        sys.stderr.write(f"vnetsim: {shown}\n")
        sys.stderr.flush()


@contextlib.contextmanager
def telling(result: Path) -> Iterator[None]:
    """Print what was found inside; when standard output fails, say on standard error that ``result`` is complete."""
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        drop_output()
        tell(f"{result}: complete, but standard output cannot be written: {error.strerror}.")


def drop_output() -> None:
    """Send what is still to be printed nowhere where standard output fails, so that the program's end does not."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        return
    with contextlib.suppress(OSError, io.UnsupportedOperation):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


@contextlib.contextmanager
def panics_unheard(kind: type[BaseException]) -> Iterator[None]:
    """Keep off the terminal what a library in Rust prints before it raises ``kind``; all else that is printed goes on.

    Args:
        kind: the panic's exception.
    """
    try:
        saved = os.dup(2)
    except OSError:  # nothing to keep it off
        yield
        return
    with tempfile.TemporaryFile() as printed:
        os.dup2(printed.fileno(), 2)
        unheard = False
        try:
            yield
        except kind:
            unheard = True
            raise
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            if not unheard and printed.seek(0, os.SEEK_END):
                printed.seek(0)
                with contextlib.suppress(OSError):
                    os.write(2, printed.read())
