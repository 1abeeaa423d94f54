"""Standard output and error that may be closed, full, or a terminal that is gone: what was done is not lost by that."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unicodedata import category

_CONTROL = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Categories of Unicode: controls, marks of direction and the like, halves of a letter, ends of lines."""


def plain(text: str) -> str:
    """Return a text as a terminal may get it: of ESC and other control characters of names, the code is shown."""
    return "".join(
        ascii(letter)[1:-1] if letter != "\n" and category(letter) in _CONTROL else letter for letter in text
    )


def tell(line: str) -> None:
    """Print a line of the program's own to standard error; where nobody can read it, go on without."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"vnetsim: {plain(' '.join(line.splitlines()))}\n")
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
