"""The run directory: what a run leaves, in files that ``vnetsim.storage.folder`` writes and checks.

Layout (a folder the user can zip and send)::

    experiment.toml      the resolved experiment
    manifest.json        versions, seeds, SUMO command, device, input hashes, learner, status
    windows.parquet      and participations, exchanges, rounds, metrics, silos, map: see vnetsim.storage.tables
    windows/             and the other tables that grow: their pieces, until the run has finished
    samples.npz          example images, sharp and blurred
    model.safetensors    the final global model
    checkpoint/          the newest finished round: progress.json, the state it names, a file for each silo with state,
                         and results of earlier rounds, rounds-000000.json and so on
    checksums.sha256     SHA-256 of all these files: vnetsim.storage.checksums
    report.html figures/ made by the analysis
"""

from __future__ import annotations

import io
import json
import lzma
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from vnetsim.errors import InputError
from vnetsim.storage import toml_text
from vnetsim.storage.checksums import RECORD
from vnetsim.storage.folder import Folder, is_own, json_bytes
from vnetsim.storage.schemas import check, need
from vnetsim.storage.tables import TABLES, Scan, as_now, read_parquet, to_parquet

_LARGEST_ARRAYS = 2**28  # bytes
# what zipfile, zlib and NumPy raise; RuntimeError asks for a password or another version of the format
_DAMAGED_ARRAYS: tuple[type[Exception], ...] = (OSError, ValueError, EOFError, RuntimeError, MemoryError, SyntaxError)
_DAMAGED_ARRAYS += (KeyError, AttributeError, TypeError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error)

Rows = pl.DataFrame | list[tuple[object, ...]]
"""A table: a frame with its columns, or tuples in their order."""


class RunDirectory(Folder):
    """A run directory at ``path``.

    Args:
        path: the folder; need not exist yet.
    """

    def write_json(self, name: str, value: Any) -> None:
        """Write ``value`` as JSON under ``name``."""
        self.put({name: json_bytes(value)})

    def read_json(self, name: str) -> Any:
        """Return the JSON file ``name``.

        Raises:
            InputError: when it is missing or damaged.
        """
        if not self.holds(name):
            hint = (
                " A run stopped there before it began; call `vnetsim run` with this --out." if self._stopped() else ""
            )
            raise InputError(f"{self.path}: not a run directory, it has no {name}.{hint}")
        try:
            return json.loads(self.read_bytes(name))
        except (ValueError, RecursionError) as error:
            raise InputError(f"{self.path / name}: unreadable: {error}.") from error

    def _stopped(self) -> bool:
        """Return whether the folder holds nothing but what a kill leaves before a run directory is one."""
        names = [path.name for path in self.path.iterdir()] if self.path.is_dir() else []
        return bool(names) and all(is_own(name) or self.wrote(name) for name in names)

    def write_arrays(self, name: str, **arrays: np.ndarray[Any, Any]) -> None:
        """Write arrays as a NumPy archive under ``name``; nothing in it depends on when it was written."""
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **arrays)
        self.put({name: buffer.getvalue()})

    def read_arrays(self, name: str) -> dict[str, np.ndarray[Any, Any]]:
        """Return the arrays of a NumPy archive.

        Raises:
            InputError: it is missing, damaged, or larger than any that vnetsim writes.
        """
        content = self.read_bytes(name)
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                if sum(member.file_size for member in archive.infolist()) > _LARGEST_ARRAYS:
                    raise InputError(f"{self.path / name}: unreadable: larger than vnetsim writes it.")
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                return dict(arrays)
        except _DAMAGED_ARRAYS as error:
            why = (str(error) or "damaged").splitlines()[0]
            raise InputError(f"{self.path / name}: unreadable: {why}.") from error

    def manifest(self, *needed: str) -> dict[str, Any]:
        """Return ``manifest.json``; arguments and errors are those of ``record``."""
        return self.record("manifest.json", *needed)

    def record(self, name: str, *needed: str) -> dict[str, Any]:
        """Return a JSON file that tells what the folder is.

        Args:
            name: of the file.
            needed: keys that must be there, as ``vnetsim.storage.schemas.need`` takes them.

        Raises:
            InputError: it is missing, damaged, lacks a key, or the checksums that it tells of are gone.
        """
        result = check(self.path / name, self.read_json(name))
        need(self.path / name, result, *needed)
        if result.get("checksums") and not self.has_checksums:
            raise InputError(f"{self.path / RECORD}: gone since it was written; put it back.")
        return result

    def settings(self) -> tuple[dict[str, Any], str]:
        """Return the tables of ``experiment.toml``, those that are read again of the right types, and its text.

        Raises:
            InputError: it is missing or damaged.
        """
        name = "experiment.toml"
        content = self.read_bytes(name)
        try:
            text = content.decode()
            values = toml_text.parse(text)
        except ValueError as error:
            raise InputError(f"{self.path / name}: unreadable: {error}.") from None
        return check(self.path / name, values), text

    def has(self, table: str) -> bool:
        """Return whether the table was written, at least in part."""
        return self.holds(f"{table}.parquet") or bool(self.pieces(table))

    def pieces(self, table: str) -> list[str]:
        """Return the names of the pieces of a table that is not whole yet; see ``vnetsim.storage.table_pieces``."""
        return self.names(table)

    def write(self, table: str, rows: Rows) -> None:
        """Write a table of ``vnetsim.storage.tables.TABLES``."""
        self.write_tables({table: rows})

    def write_tables(self, tables: Mapping[str, Rows]) -> None:
        """Write several tables at once, which takes less time than one by one."""
        self.put({f"{name}.parquet": to_parquet(name, rows) for name, rows in tables.items()})

    def read(self, table: str) -> pl.DataFrame:
        """Return a table with exactly the columns of ``vnetsim.storage.tables``; those since added may be null.

        Raises:
            InputError: when it is missing, damaged or has other columns.
        """
        name = f"{table}.parquet"
        pieces = [] if self.holds(name) else self.pieces(table)
        frames = [self._frame(piece, table) for piece in pieces or [name]]
        return pl.concat(frames) if pieces else frames[0]

    def _frame(self, name: str, table: str) -> pl.DataFrame:
        path = self.checked(name)
        frame = read_parquet(path)
        _expect_columns(path, table, frame.schema)
        return as_now(table, frame)

    def scan(self, table: str) -> Scan:
        """Return a table to be read in part, with the columns that it was written with.

        Raises:
            InputError: when it is missing, damaged or has other columns.
        """
        name = f"{table}.parquet"
        pieces = [] if self.holds(name) else self.pieces(table)
        paths = tuple(self.checked(piece) for piece in pieces or [name])
        for path in paths:
            _expect_columns(path, table, Scan((path,)).collect(lambda rows: rows.head(0)).schema)
        return Scan(paths)


def _expect_columns(path: Path, table: str, found: pl.Schema) -> None:
    expected = {column.name: column.dtype for column in TABLES[table] if column.name in found or not column.added}
    if dict(found) != expected:
        wrong = sorted(set(found.items()) ^ set(expected.items()), key=str)
        raise InputError(f"{path}: columns differ from those of this version: {wrong[0][0]}.")
