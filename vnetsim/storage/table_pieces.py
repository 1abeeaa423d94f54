"""Tables that grow: rows are appended in durable pieces, ``windows/000000.parquet`` and so on, and joined at the end.

A piece is complete after so many rows, or values in their lists; where it ends follows from the rows alone. The last,
incomplete one is written anew whenever what there is shall be safe. Whoever goes on after a kill appends all rows
again, over the pieces that are there already.
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
"""Rows, or values in their lists, that complete a piece: about 8 MiB of coverage windows."""

GROUP_ROWS = 1024
"""Rows of a row group of the joined table; what is joined has the same bytes wherever the pieces ended."""


class TablePieces(Generic[Row]):
    """A table of a run directory that is written piece by piece.

    Args:
        table: key of ``vnetsim.storage.tables.TABLES``.
        frame: makes a table of rows, the first of which has the index given; without one, they are tuples.
        values: how many values the lists of a row hold.
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
        self._first = 0  # index of the first row that is in no complete piece
        self._number = 0
        # pieces of a run that goes on; when the table is whole, they are what its removal left
        self._there = 0 if run.holds(f"{table}.parquet") else len(run.names(table))

    @property
    def rows(self) -> int:
        """How many rows were appended."""
        return self._first + len(self._rows)

    def append(self, row: Row) -> None:
        """Add a row; a piece that it completes is written.

        Raises:
            RunError: the disk is full or the folder not writable.
        """
        self._write_when_complete()  # the last row's write may have failed; the piece ends there all the same
        self._rows.append(row)
        self._size += self._values(row)
        self._write_when_complete()

    def _write_when_complete(self) -> None:
        if len(self._rows) < PIECE_ROWS and self._size < PIECE_VALUES:
            return
        content, later = self._content(), []
        if self._number + 1 < self._there and not self._run.has_content(self._name, sha256(content)):
            # packages are others by now: the rows that come are not mixed with those that were there
            later = [piece for piece in self._run.names(self._table) if piece > self._name]
        self._run.put({self._name: content}, remove=later)
        self._next_piece()

    def unsaved(self) -> dict[str, Content]:
        """Return the file that makes all rows safe, for ``Folder.put``; none while pieces that are there hold more."""
        return {self._name: self._content()} if self._rows and self._number + 1 >= self._there else {}

    def joined(self) -> tuple[dict[str, Content], list[str]]:
        """Return the whole table as a file, and the pieces that it replaces, for ``Folder.put``.

        Raises:
            RunError: the disk is full or the folder not writable.
        """
        name = f"{self._table}.parquet"
        if not self._number:  # it fits into one
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
    """Write the rows of some Parquet files as one, in memory that does not grow with their number."""
    try:
        pl.scan_parquet(pieces, glob=False).sink_parquet(
            path, row_group_size=GROUP_ROWS, arrow_schema=arrow_schema(TABLES[table])
        )
    except (OSError, pl.exceptions.PolarsError) as error:
        full = os.strerror(errno.ENOSPC) in str(error)
        raise OSError(errno.ENOSPC if full else errno.EIO, str(error).splitlines()[0]) from error
