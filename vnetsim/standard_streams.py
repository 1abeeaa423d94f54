"""Standard output and error, which may be closed, full, or a terminal that is gone."""

from __future__ import annotations

import contextlib
import io
import os
import sys
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


def drop_output() -> None:
    """Send what is still to be printed nowhere where standard output fails, so that the program's end does not."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        return
    with contextlib.suppress(OSError, io.UnsupportedOperation):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
