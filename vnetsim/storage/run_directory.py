"""The run directory: the folder with the results of a run.

Its files, which ``vnetsim.storage.folder`` writes and checks::

    experiment.toml      all settings of the experiment
    manifest.json        versions, seeds, SUMO command, device, input hashes, learner, status
    windows.parquet      also participations, exchanges, rounds, metrics, silos, map: see vnetsim.storage.tables
    windows/             pieces of this table until the run has finished; likewise for other tables that grow
    partition.csv        silo and class of each image; not in cells of a comparison
    samples.npz          example images, sharp and blurred
    model.safetensors    final model of the single aggregator or the cloud; without either, models/ has one for each RSU
    checkpoint/          newest finished round: progress.json, the state it names, one file for each silo with state,
                         and results of earlier rounds, rounds-000000.json and so on
    checksums.sha256     SHA-256 of all these files: vnetsim.storage.checksums
    report.html figures/ made by the analysis
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl

from vnetsim import __version__
from vnetsim.errors import InputError
from vnetsim.process import refuse_forked
from vnetsim.standard_streams import quiet
from vnetsim.storage.folder import Folder, json_bytes
from vnetsim.storage.records import COMPARISON, FORMAT, ComparisonRecord, ManifestRecord
from vnetsim.storage.structure import build_record, read_toml
from vnetsim.storage.tables import TABLES

T = TypeVar("T")


@dataclass(frozen=True)
class Scan:
    """Parquet files read as one table, in their order; only the result of a query is loaded into memory."""

    paths: tuple[Path, ...]

    def collect(self, query: Callable[[pl.LazyFrame], pl.LazyFrame]) -> pl.DataFrame:
        """Return the result of ``query`` on the table, with rows in the table's order.

        Raises:
            InputError: a file is unreadable or damaged.
        """
        with damage_as_input_error(self.paths[0]):
            return query(pl.scan_parquet(list(self.paths), glob=False)).collect(engine="streaming")


@contextmanager
def damage_as_input_error(path: Path, words: str = "unreadable") -> Iterator[None]:
    """Turn errors of Polars with a file into ``path: words: reason``.

    Raises:
        InputError: the file is unreadable or damaged.
    """
    refuse_forked()
    try:
        with quiet(pl.exceptions.PanicException):
            yield
    except (OSError, pl.exceptions.PolarsError) as error:
        raise InputError(f"{path}: {words}: {(str(error) or 'damaged').splitlines()[0]}.") from error
    except (
        pl.exceptions.PanicException
    ) as error:  # raised by Rust, not an Exception; Ctrl-C inside Polars raises it too
        if "KeyboardInterrupt" in str(error):
            raise
        raise InputError(f"{path}: {words}: the file is damaged.") from error


class RunDirectory(Folder):
    """A run directory at ``path``, which need not exist yet."""

    def write_json(self, name: str, value: Any) -> None:
        """Write ``value`` as JSON under ``name``."""
        self.put({name: json_bytes(value)})

    def read_json(self, name: str) -> Any:
        """Return the parsed JSON file ``name``.

        Raises:
            InputError: it is missing or damaged.
        """
        if not self.holds(name):
            stopped = self.path.is_dir() and any(self.path.iterdir()) and self.has_not_begun()
            hint = " A run stopped there before it began; call `vnetsim run` with this --out." if stopped else ""
            raise InputError(f"{self.path}: not a run directory, it has no {name}.{hint}")
        try:
            return json.loads(self.read_bytes(name))
        except (ValueError, RecursionError) as error:
            raise InputError(f"{self.path / name}: unreadable: {error}.") from error

    def write_arrays(self, name: str, **arrays: np.ndarray[Any, Any]) -> None:
        """Write arrays as a NumPy archive under ``name``; its bytes depend only on the arrays."""
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **arrays)
        self.put({name: buffer.getvalue()})

    def read_arrays(self, name: str) -> dict[str, np.ndarray[Any, Any]]:
        """Return the arrays of a NumPy archive.

        Raises:
            InputError: it is missing or damaged.
        """
        content = self.read_bytes(name)
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                return dict(arrays)
        except Exception as error:  # zipfile and NumPy raise many kinds for damaged files
            why = (str(error) or "damaged").splitlines()[0]
            raise InputError(f"{self.path / name}: unreadable: {why}.") from error

    def manifest(self) -> dict[str, Any]:
        """Return the parsed ``manifest.json``; see ``manifest_record``."""
        return self._record_of("manifest.json", ManifestRecord)[0]

    def manifest_record(self) -> ManifestRecord:
        """Return ``manifest.json`` as a record.

        Raises:
            InputError: it is missing, damaged, or of another format version.
        """
        return self._record_of("manifest.json", ManifestRecord)[1]

    def comparison(self) -> dict[str, Any]:
        """Return the parsed ``comparison.json``; see ``comparison_record``."""
        return self._record_of(COMPARISON, ComparisonRecord)[0]

    def comparison_record(self) -> ComparisonRecord:
        """Return ``comparison.json`` as a record; raises like ``manifest_record``."""
        return self._record_of(COMPARISON, ComparisonRecord)[1]

    def _record_of(self, name: str, kind: type[T]) -> tuple[dict[str, Any], T]:
        path, result = self.path / name, self.read_json(name)
        if isinstance(result, dict) and result.get("format") != FORMAT:
            made_by = f"vnetsim {result['vnetsim']}" if "vnetsim" in result else "another version"
            raise InputError(f"{path}: written by {made_by:.60} in another format than vnetsim {__version__} reads.")
        return result, build_record(path, result, kind)

    def settings(self) -> dict[str, Any]:
        """Return the tables of ``experiment.toml``.

        Raises:
            InputError: it is missing or damaged.
        """
        return read_toml(self.checked("experiment.toml"))

    def has(self, table: str) -> bool:
        """Return whether the table was written, at least in part."""
        return self.holds(f"{table}.parquet") or bool(self.names(table))

    def read(self, table: str) -> pl.DataFrame:
        """Return a table with exactly the columns of ``vnetsim.storage.tables``.

        Raises:
            InputError: it is missing, damaged or has other columns.
        """
        return self.scan(table).collect(lambda rows: rows)

    def scan(self, table: str) -> Scan:
        """Return a table for queries that need not load all of it; joined, or its pieces.

        Raises:
            InputError: it is missing, damaged or has other columns.
        """
        name = f"{table}.parquet"
        pieces = [] if self.holds(name) else self.names(table)
        paths = tuple(self.checked(piece) for piece in pieces or [name])
        for path in paths:
            _expect_columns(path, table, Scan((path,)).collect(lambda rows: rows.head(0)).schema)
        return Scan(paths)


def _expect_columns(path: Path, table: str, found: pl.Schema) -> None:
    expected = {column.name: column.dtype for column in TABLES[table]}
    if dict(found) != expected:
        wrong = sorted(set(found.items()) ^ set(expected.items()), key=str)
        raise InputError(f"{path}: columns differ from those of this version: {wrong[0][0]}.")
