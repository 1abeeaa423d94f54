"""Standard output and error, which may be closed, full, or a terminal that is gone."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import threading
from collections.abc import Iterator
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


_BENEATH = threading.Lock()


@contextlib.contextmanager
def quiet(panic: type[BaseException]) -> Iterator[None]:
    """Drop what a library prints of a ``panic``, past Python to descriptor 2; what else is written comes afterwards."""
    if not _BENEATH.acquire(blocking=False):  # another thread is at it: it gives the descriptor back
        yield
        return
    import tempfile  # noqa: PLC0415 - keeps --help quick

    try:
        with tempfile.TemporaryFile() as written:
            before = os.dup(2)
            os.dup2(written.fileno(), 2)
            panicked = False
            try:
                yield
            except panic:
                panicked = True
                raise
            finally:
                with contextlib.suppress(OSError, ValueError):
                    sys.stderr.flush()
                os.dup2(before, 2)
                os.close(before)
                written.seek(0)
                with contextlib.suppress(OSError):
                    os.write(2, b"" if panicked else written.read())
    finally:
        _BENEATH.release()


def drop_output() -> None:
    """Send what is still to be printed nowhere where standard output fails, so that the program's end does not."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        return
    with contextlib.suppress(OSError, io.UnsupportedOperation):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
