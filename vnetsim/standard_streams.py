"""Writing to standard output and error, which may be closed, full, or a terminal that is gone."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from unicodedata import category

_CONTROL = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories: control, format and surrogate characters, line and paragraph separators."""


def plain(text: str) -> str:
    """Return a text that is safe for a terminal: control characters, except newlines, become their escape codes."""
    return "".join(
        ascii(letter)[1:-1] if letter != "\n" and category(letter) in _CONTROL else letter for letter in text
    )


def tell(line: str) -> None:
    """Print a message as one line to standard error; ignore a closed or full stream."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"vnetsim: {plain(' '.join(line.splitlines()))}\n")
        sys.stderr.flush()


def drop_output() -> None:
    """Flush standard output; if that fails, redirect it to the null device so that Python can exit without an error."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        return
    with contextlib.suppress(OSError, io.UnsupportedOperation):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
