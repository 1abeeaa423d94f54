"""Tables that grow: rows are written in pieces, ``windows/000000.parquet`` and so on, which are joined at the end.

A piece is complete after a fixed number of rows, or of values in their lists, so the same rows give the same pieces.
Each checkpoint writes the last, incomplete piece again. A resumed run appends all rows from the start and finds the
existing pieces equal.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

import polars as pl

from vnetsim.storage.checksums import sha256
from vnetsim.storage.disk import Content
from vnetsim.storage.run_directory import RunDirectory
from vnetsim.storage.tables import TABLES, Rows, arrow_schema, to_parquet

Row = TypeVar("Row")

PIECE_ROWS = 4096
PIECE_VALUES = 2**18
"""Number of rows, or of values in their lists, that complete a piece: about 8 MiB of coverage windows."""

GROUP_ROWS = 1024
"""Rows in a row group of the joined table; its bytes do not depend on the pieces."""


class TablePieces(Generic[Row]):
    """A table of a run directory that is written piece by piece.

    Args:
        run: the run directory.
        table: key in ``vnetsim.storage.tables.TABLES``.
        frame: converts rows to a table, given the index of the first one; by default the rows are tuples already.
        values: number of values in the lists of a row.
    """

    def __init__(
        self,
        run: RunDirectory,
        table: str,
        frame: Callable[[Sequence[Row], int], Rows] = lambda rows, _: list(rows),  # type: ignore[arg-type]
        values: Callable[[Row], int] = lambda _: 0,
    ) -> None:
        self._run = run
        self._table = table
        self._frame = frame
        self._values = values
        self._rows: list[Row] = []
        self._size = 0
        self._first = 0  # index of the first row that is not in a complete piece
        self._number = 0
        # pieces of the run to resume; beside a joined table they are leftovers
        self._there = 0 if run.holds(f"{table}.parquet") else len(run.names(table))

    @property
    def rows(self) -> int:
        """Number of rows appended."""
        return self._first + len(self._rows)

    def append(self, row: Row) -> None:
        """Add a row, and write the piece if that completes it.

        Raises:
            RunError: the disk is full or the folder not writable.
        """
        self._write_when_complete()  # if writing failed at the last row, the piece still ends there
        self._rows.append(row)
        self._size += self._values(row)
        self._write_when_complete()

    def _write_when_complete(self) -> None:
        if len(self._rows) < PIECE_ROWS and self._size < PIECE_VALUES:
            return
        content, later = self._content(), []
        if self._number + 1 < self._there and not self._run.has_content(self._name, sha256(content)):
            # other versions of packages computed other rows: do not mix them with the old ones
            later = [piece for piece in self._run.names(self._table) if piece > self._name]
        self._run.put({self._name: content}, remove=later)
        self._next_piece()

    def unsaved(self) -> dict[str, Content]:
        """Return the file that saves all rows, for ``Folder.put``; empty while existing pieces have more rows."""
        return {self._name: self._content()} if self._rows and self._number + 1 >= self._there else {}

    def joined(self) -> tuple[dict[str, Content], list[str]]:
        """Return the whole table as a file, and the names of the pieces that it replaces, for ``Folder.put``.

        Raises:
            RunError: the disk is full or the folder not writable.
        """
        name = f"{self._table}.parquet"
        if not self._number:  # the table fits into one piece
            whole = self._content()
            return {name: whole}, self._run.names(self._table)
        if self._rows:
            self._run.put({self._name: self._content()})
            self._next_piece()
        pieces = [self._piece(number) for number in range(self._number)]
        paths = [self._run.checked(piece) for piece in pieces]
        return {name: lambda path: _join(paths, path, self._table)}, self._run.names(self._table)

    def _next_piece(self) -> None:
        self._first += len(self._rows)
        self._rows, self._size, self._number = [], 0, self._number + 1

    @property
    def _name(self) -> str:
        return self._piece(self._number)

    def _piece(self, number: int) -> str:
        return f"{self._table}/{number:06d}.parquet"

    def _content(self) -> bytes:
        rows = self._frame(self._rows, self._first) if self._rows else []
        return to_parquet(self._table, rows)


def _join(pieces: list[Path], path: Path, table: str) -> None:
    """Join Parquet files in bounded memory."""
    try:
        pl.scan_parquet(pieces, glob=False).sink_parquet(
            path, row_group_size=GROUP_ROWS, arrow_schema=arrow_schema(TABLES[table])
        )
    except (OSError, pl.exceptions.PolarsError) as error:
        full = os.strerror(errno.ENOSPC) in str(error)
        raise OSError(errno.ENOSPC if full else errno.EIO, str(error).splitlines()[0]) from error
