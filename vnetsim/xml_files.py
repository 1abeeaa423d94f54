"""Reads users' XML files as a stream; an error is one line with file and line number.

Entities are refused: they can expand a few lines to gigabytes or read other files, and SUMO writes none.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, cast
from xml.parsers import expat

from vnetsim.errors import InputError

Start = Callable[[str, Mapping[str, str]], None]

_CHUNK_BYTES = 1 << 16


class EntitiesError(InputError):
    """A file declares XML entities, or refers to another file that may."""


class XmlFile:
    """A file to be read once, plain or gzipped (``.gz``).

    Reading calls ``start`` with name and attributes at the start of every element, ``end`` with the name at its end,
    ``text`` with pieces of text and ``comment`` with every comment.
    """

    def __init__(
        self,
        path: Path,
        start: Start | None = None,
        *,
        end: Callable[[str], object] | None = None,
        text: Callable[[str], None] | None = None,
        comment: Callable[[str], None] | None = None,
    ) -> None:
        self._path = path
        self._parser = parser = expat.ParserCreate()
        parser.StartElementHandler = start
        parser.EndElementHandler = end
        parser.CharacterDataHandler = text
        parser.CommentHandler = comment
        parser.StartDoctypeDeclHandler = lambda _, system_id, *__: self._refuse() if system_id else None
        parser.EntityDeclHandler = self._refuse
        parser.ExternalEntityRefHandler = self._refuse

    @property
    def where(self) -> str:
        """The file and the current line number, as ``path:12``, for messages."""
        return f"{self._path}:{self._parser.CurrentLineNumber}"

    def read(self) -> None:
        """Read the whole file; InputError if it is missing, unreadable or no intact XML, EntitiesError for entities."""
        for _ in self.pieces():
            pass

    def pieces(self) -> Iterator[None]:
        """Read the file in pieces; yield after each piece, when the functions have been called for its content.

        Errors as ``read``; malformed XML raises its error only after the yield for its piece.
        """
        path, parser = self._path, self._parser
        try:
            with cast("IO[bytes]", gzip.open(path)) if path.suffix == ".gz" else path.open("rb") as file:
                chunk = b"begin"
                while chunk:
                    chunk = file.read(_CHUNK_BYTES)
                    problem = None
                    try:
                        parser.Parse(chunk, not chunk)
                    except expat.ExpatError as error:
                        problem = error
                    yield
                    if problem is not None:
                        what = expat.ErrorString(problem.code)
                        cut = " (the file seems cut off)" if not chunk else ""
                        raise InputError(f"{path}:{problem.lineno}: not well-formed XML: {what}{cut}.")
        except FileNotFoundError:
            raise InputError(f"{path}: no such file.") from None
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise InputError(f"{path}: damaged or cut off in the middle of the gzip stream: {error}.") from error
        except OSError as error:
            raise InputError(f"{path}: unreadable: {error.strerror or error}.") from error
        except (LookupError, ValueError) as error:  # the parser does not know the encoding
            raise InputError(f"{path}: {error}; write the file in UTF-8.") from None

    def _refuse(self, *_: object) -> int:
        """Raise EntitiesError; called by the parser at a declaration or use of an entity."""
        raise EntitiesError(f"{self.where}: the file declares XML entities, which are not expanded; remove them.")
