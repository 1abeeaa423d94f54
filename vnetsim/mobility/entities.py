"""Files that declare XML entities are refused before SUMO sees them.

SUMO's parser expands entities, so that a few lines can grow to gigabytes inside it, where nothing can stop it any
more. No tool of SUMO writes a document type.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from xml.parsers import expat

from vnetsim.errors import InputError

_CHUNK_BYTES = 1 << 14


class _RootReached(Exception):  # noqa: N818 - no error: it stops the parser after the declarations
    """The root element began; entities can only be declared before it."""


def refuse_entities(config: Path) -> None:
    """Check a SUMO configuration and every file it names.

    Other faults of these files are left to SUMO, which describes them better.

    Args:
        config: the ``.sumocfg``.

    Raises:
        InputError: one of the files declares an entity; with file and line.
    """
    named: list[str] = []

    def start(_: str, attributes: dict[str, str]) -> None:
        named.extend(attributes.get("value", attributes.get("v", "")).split(","))

    _read(config, start)
    for name in dict.fromkeys(named):
        path = config.parent / name.strip()
        if name.strip() and path.is_file():
            _read(path, _stop)


def _stop(_: str, __: dict[str, str]) -> None:
    raise _RootReached


def _read(path: Path, start: Callable[[str, dict[str, str]], None]) -> None:
    parser = expat.ParserCreate()

    def refuse(*_: object) -> int:
        raise InputError(
            f"{path}:{parser.CurrentLineNumber}: the file declares XML entities, which are not expanded; remove them."
        )

    parser.StartElementHandler = start
    parser.EntityDeclHandler = refuse
    opened = gzip.open if path.suffix == ".gz" else open
    with suppress(_RootReached, expat.ExpatError, OSError, EOFError, zlib.error), opened(path, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            parser.Parse(chunk, False)
