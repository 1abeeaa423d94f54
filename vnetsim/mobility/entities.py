"""Files that declare XML entities, or that crash SUMO, are refused before SUMO sees them.

SUMO's parser expands entities, so that a few lines can grow to gigabytes inside it, where nothing can stop it any
more. No tool of SUMO writes a document type. And a net or an additional file that is cut off within its first elements
ends libsumo, and this process with it, by a segmentation fault (SUMO 1.28).
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
_CRASHING = {"net-file", "net", "n", "additional-files", "additional", "a"}
"""Options, in all their spellings, that name files which must be well-formed."""


class _RootReached(Exception):  # noqa: N818 - no error: it stops the parser after the declarations
    """The root element began; entities can only be declared before it."""


def refuse_entities(config: Path) -> None:
    """Check a SUMO configuration and every file it names.

    Other faults of these files are left to SUMO, which describes them better. Nets and additional files are read
    whole, of the others (routes may be gigabytes) what stands before the root element.

    Args:
        config: the ``.sumocfg``.

    Raises:
        InputError: one of the files declares an entity, or a net or additional file is not well-formed; with file and
            line.
    """
    named: dict[str, bool] = {}

    def start(option: str, attributes: dict[str, str]) -> None:
        for name in attributes.get("value", attributes.get("v", "")).split(","):
            named[name.strip()] = named.get(name.strip(), False) or option in _CRASHING

    with suppress(expat.ExpatError):
        _read(config, start)
    for name, whole in named.items():
        path = config.parent / name
        if not name or not path.is_file():
            continue
        try:
            _read(path, None if whole else _stop)
        except expat.ExpatError as error:
            if whole:
                what = expat.ErrorString(error.code)
                raise InputError(f"{config}: {path}:{error.lineno}: not well-formed XML: {what}.") from error


def _stop(_: str, __: dict[str, str]) -> None:
    raise _RootReached


def _read(path: Path, start: Callable[[str, dict[str, str]], None] | None) -> None:
    parser = expat.ParserCreate()

    def refuse(*_: object) -> int:
        raise InputError(
            f"{path}:{parser.CurrentLineNumber}: the file declares XML entities, which are not expanded; remove them."
        )

    parser.StartElementHandler = start
    parser.EntityDeclHandler = refuse
    opened = gzip.open if path.suffix == ".gz" else open
    with suppress(_RootReached, OSError, EOFError, zlib.error), opened(path, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            parser.Parse(chunk, False)
        parser.Parse(b"", True)
