"""Writing to standard output and error, which may be closed, full, or a terminal that is gone."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import threading
from collections.abc import Iterator
from unicodedata import category

_CONTROL = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories: control, format and surrogate characters, line and paragraph separators."""


def plain(text: str) -> str:
    """Return a text that is safe for a terminal: control characters, except newlines, are written as escape codes."""
    return "".join(
        ascii(letter)[1:-1] if letter != "\n" and category(letter) in _CONTROL else letter for letter in text
    )


def tell(line: str) -> None:
    """Print a message, its lines joined by spaces, as one line to standard error; ignore a closed or full stream."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"vnetsim: {plain(' '.join(line.splitlines()))}\n")
        sys.stderr.flush()


_REDIRECTED = threading.Lock()


@contextlib.contextmanager
def quiet(panic: type[BaseException]) -> Iterator[None]:
    """Hold back output to descriptor 2 during the block; print it at the end, or drop it if the block raises ``panic``.

    Does nothing while another thread is in such a block.
    """
    if not _REDIRECTED.acquire(blocking=False):  # another thread has redirected the descriptor and will restore it
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
        _REDIRECTED.release()


def drop_output() -> None:
    """Flush standard output; if that fails, redirect it to the null device, so that Python exits without an error."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        return
    with contextlib.suppress(OSError, io.UnsupportedOperation):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
