"""The run directory: the folder with the results of a run.

Its files, which ``vnetsim.storage.folder`` writes and checks::

    experiment.toml      all settings of the experiment
    manifest.json        versions, seeds, SUMO command, device, input hashes, learner, status
    windows.parquet      also participations, exchanges, rounds, metrics, silos, map: see vnetsim.storage.tables
    windows/             pieces of this table until the run has finished; likewise for other tables that grow
    partition.csv        silo and class of each image; not in cells of a comparison
    samples.npz          example images, sharp and blurred, and frames along paths
    model.safetensors    final model of the single aggregator or the cloud; without either, models/ has one for each RSU
    checkpoint/          newest finished round: progress.json, the state it names, one file for each silo with state,
                         and results of earlier rounds, rounds-000000.json and so on
    checksums.sha256     SHA-256 of all these files: vnetsim.storage.folder
    report.html figures/ made by the analysis
"""

from __future__ import annotations

import errno
import io
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import polars as pl

from vnetsim import __version__
from vnetsim.errors import InputError
from vnetsim.process import refuse_forked
from vnetsim.standard_streams import quiet
from vnetsim.storage.checksums import sha256
from vnetsim.storage.disk import Content
from vnetsim.storage.folder import Folder, json_bytes
from vnetsim.storage.records import COMPARISON, FORMAT, ComparisonRecord, ManifestRecord
from vnetsim.storage.structure import build_record, read_toml
from vnetsim.storage.tables import TABLES, Rows, arrow_schema, to_parquet

T = TypeVar("T")
Row = TypeVar("Row")

PIECE_ROWS = 4096
PIECE_VALUES = 2**18
"""Number of rows, or of values in their lists, that complete a piece: about 8 MiB of coverage windows."""

GROUP_ROWS = 1024
"""Rows in a row group of the joined table; its bytes do not depend on the pieces."""


@dataclass(frozen=True)
class Scan:
    """Parquet files read as one table, in their order; only the result of a query is loaded into memory."""

    paths: tuple[Path, ...]

    def collect(self, query: Callable[[pl.LazyFrame], pl.LazyFrame]) -> pl.DataFrame:
        """Return the result of ``query`` on all rows, in their order; InputError if a file is unreadable or damaged."""
        with damage_as_input_error(self.paths[0]):
            return query(pl.scan_parquet(list(self.paths), glob=False)).collect(engine="streaming")


@contextmanager
def damage_as_input_error(path: Path, words: str = "unreadable") -> Iterator[None]:
    """Turn errors of a block that uses Polars into InputError ``path: words: reason``; refuse forked processes."""
    refuse_forked()
    try:
        with quiet(pl.exceptions.PanicException):
            yield
    except (OSError, pl.exceptions.PolarsError) as error:
        raise InputError(f"{path}: {words}: {(str(error) or 'damaged').splitlines()[0]}.") from error
    except pl.exceptions.PanicException as error:  # no subclass of Exception; Ctrl-C inside Polars raises it too
        if "KeyboardInterrupt" in str(error):
            raise
        raise InputError(f"{path}: {words}: the file is damaged.") from error


class RunDirectory(Folder):
    """A run directory at ``path``, which need not exist yet."""

    def write_json(self, name: str, value: Any) -> None:
        """Write ``value`` as JSON under ``name``; raises like ``put``."""
        self.put({name: json_bytes(value)})

    def read_json(self, name: str) -> Any:
        """Return the parsed JSON file ``name``; InputError if it is missing or damaged."""
        if not self.holds(name):
            stopped = self.path.is_dir() and any(self.path.iterdir()) and self.has_not_begun()
            hint = " A run stopped there before it began; call `vnetsim run` with this --out." if stopped else ""
            raise InputError(f"{self.path}: not a run directory, it has no {name}.{hint}")
        try:
            return json.loads(self.read_bytes(name))
        except (ValueError, RecursionError) as error:
            raise InputError(f"{self.path / name}: unreadable: {error}.") from error

    def write_arrays(self, name: str, **arrays: np.ndarray[Any, Any]) -> None:
        """Write arrays as a NumPy archive (.npz), whose bytes depend only on the arrays; raises like ``put``."""
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **arrays)
        self.put({name: buffer.getvalue()})

    def read_arrays(self, name: str) -> dict[str, np.ndarray[Any, Any]]:
        """Return the arrays of a NumPy archive by name; InputError if it is missing or damaged."""
        content = self.read_bytes(name)
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                return dict(arrays)
        except Exception as error:  # zipfile and NumPy raise many kinds for damaged files
            why = (str(error) or "damaged").splitlines()[0]
            raise InputError(f"{self.path / name}: unreadable: {why}.") from error

    def manifest(self) -> dict[str, Any]:
        """Return the parsed ``manifest.json``; raises like ``manifest_record``."""
        return self._read_record("manifest.json", ManifestRecord)[0]

    def manifest_record(self) -> ManifestRecord:
        """Return ``manifest.json`` as a record; InputError if it is missing, damaged, or of another format version."""
        return self._read_record("manifest.json", ManifestRecord)[1]

    def comparison(self) -> dict[str, Any]:
        """Return the parsed ``comparison.json``; raises like ``manifest_record``."""
        return self._read_record(COMPARISON, ComparisonRecord)[0]

    def comparison_record(self) -> ComparisonRecord:
        """Return ``comparison.json`` as a record; raises like ``manifest_record``."""
        return self._read_record(COMPARISON, ComparisonRecord)[1]

    def _read_record(self, name: str, kind: type[T]) -> tuple[dict[str, Any], T]:
        """Return (parsed JSON, record) of a file; InputError if missing, damaged or of another format version."""
        path, result = self.path / name, self.read_json(name)
        if isinstance(result, dict) and result.get("format") != FORMAT:
            made_by = f"vnetsim {result['vnetsim']}" if "vnetsim" in result else "another version"
            raise InputError(f"{path}: written by {made_by:.60} in another format than vnetsim {__version__} reads.")
        return result, build_record(path, result, kind)

    def settings(self) -> dict[str, Any]:
        """Return the nested tables of ``experiment.toml``, unchecked; InputError if it is missing or damaged."""
        return read_toml(self.checked_path("experiment.toml"))

    def has(self, table: str) -> bool:
        """Return whether the table was written, at least in part; InputError if a recorded file of it is missing."""
        return self.holds(f"{table}.parquet") or bool(self.names(table))

    def read(self, table: str) -> pl.DataFrame:
        """Return all rows of a table, with exactly its columns in ``storage.tables``; raises like ``scan``."""
        return self.scan(table).collect(lambda rows: rows)

    def scan(self, table: str) -> Scan:
        """Return a ``Scan`` of a table, joined or in pieces; InputError if missing, damaged or of other columns."""
        name = f"{table}.parquet"
        pieces = [] if self.holds(name) else self.names(table)
        paths = tuple(self.checked_path(piece) for piece in pieces or [name])
        for path in paths:
            _expect_columns(path, table, Scan((path,)).collect(lambda rows: rows.head(0)).schema)
        return Scan(paths)


def _expect_columns(path: Path, table: str, found: pl.Schema) -> None:
    """Raise InputError if the columns ``found`` in a file differ from the table's in name, type or number."""
    expected = {column.name: column.dtype for column in TABLES[table]}
    if dict(found) != expected:
        wrong = sorted(set(found.items()) ^ set(expected.items()), key=str)
        raise InputError(f"{path}: columns differ from those of this version: {wrong[0][0]}.")


class TablePieces(Generic[Row]):
    """A table that grows: rows are written in pieces, ``windows/000000.parquet`` and so on, and joined at the end.

    A piece is complete after a fixed number of rows, or of values in their lists, so the same rows give the same
    pieces. Each checkpoint writes the last, incomplete piece again. A resumed run appends all rows from the start and
    finds the existing pieces equal; once a piece differs, all later ones are removed.

    ``run`` is the run directory, perhaps with pieces of the run to resume; ``table`` is a key of ``tables.TABLES``.
    ``to_table`` converts rows, given the index of the first; by default they are tuples in the order of the columns.
    ``count_values`` returns the number of values in the lists of a row.
    """

    def __init__(
        self,
        run: RunDirectory,
        table: str,
        to_table: Callable[[Sequence[Row], int], Rows] = lambda rows, _: list(rows),  # type: ignore[arg-type]
        count_values: Callable[[Row], int] = lambda _: 0,
    ) -> None:
        self._run, self._table = run, table
        self._to_table, self._count_values = to_table, count_values
        self._rows: list[Row] = []  # of the piece being filled
        self._size = 0  # number of values in their lists
        self._first = 0  # index of the first of these rows
        self._number = 0  # of the piece being filled
        # pieces of the run to resume; beside a joined table they are leftovers
        self._there = 0 if run.holds(f"{table}.parquet") else len(run.names(table))

    @property
    def rows(self) -> int:
        """Number of rows appended."""
        return self._first + len(self._rows)

    def append(self, row: Row) -> None:
        """Add a row, and write the piece if that completes it; raises like ``put``."""
        self._write_when_complete()  # if writing failed at the last row, the piece still ends there
        self._rows.append(row)
        self._size += self._count_values(row)
        self._write_when_complete()

    def _write_when_complete(self) -> None:
        """Write the piece if it has enough rows or values; if its old content differs, remove all later pieces."""
        if len(self._rows) < PIECE_ROWS and self._size < PIECE_VALUES:
            return
        content, later = self._content(), []
        if self._number + 1 < self._there and not self._run.has_content(self._name, sha256(content)):
            # other versions of packages computed other rows: do not mix them with the old ones
            later = [piece for piece in self._run.names(self._table) if piece > self._name]
        self._run.put({self._name: content}, remove=later)
        self._begin_next_piece()

    def unsaved(self) -> dict[str, Content]:
        """Return {name: content} of the incomplete piece: once it was ``put``, all rows are saved. Writes nothing.

        Empty if the piece has no row, or if a resumed run has later pieces already.
        """
        return {self._name: self._content()} if self._rows and self._number + 1 >= self._there else {}

    def joined(self) -> tuple[dict[str, Content], list[str]]:
        """Return arguments of ``put``: {name: content} of the whole table, and names of the pieces to remove.

        Before, writes the last piece if there are several. Raises like ``append``, and InputError for a damaged piece.
        """
        name = f"{self._table}.parquet"
        if not self._number:  # the table fits into one piece
            return {name: self._content()}, self._run.names(self._table)
        if self._rows:
            self._run.put({self._name: self._content()})
            self._begin_next_piece()
        paths = [self._run.checked_path(self._piece_name(number)) for number in range(self._number)]
        return {name: lambda path: _join_pieces(paths, path, self._table)}, self._run.names(self._table)

    def _begin_next_piece(self) -> None:
        """Begin an empty piece after the present one was written."""
        self._first += len(self._rows)
        self._rows, self._size, self._number = [], 0, self._number + 1

    @property
    def _name(self) -> str:
        """The name of the piece being filled."""
        return self._piece_name(self._number)

    def _piece_name(self, number: int) -> str:
        """Return the name of the piece with this number, counted from 0."""
        return f"{self._table}/{number:06d}.parquet"

    def _content(self) -> bytes:
        """Return the rows of the piece being filled, perhaps none, as a Parquet file."""
        return to_parquet(self._table, self._to_table(self._rows, self._first) if self._rows else [])


def _join_pieces(pieces: list[Path], path: Path, table: str) -> None:
    """Write the rows of Parquet files into a file in bounded memory; OSError, ``ENOSPC`` if the disk is full."""
    try:
        pl.scan_parquet(pieces, glob=False).sink_parquet(
            path, row_group_size=GROUP_ROWS, arrow_schema=arrow_schema(TABLES[table])
        )
    except (OSError, pl.exceptions.PolarsError) as error:
        full = os.strerror(errno.ENOSPC) in str(error)
        raise OSError(errno.ENOSPC if full else errno.EIO, str(error).splitlines()[0]) from error
