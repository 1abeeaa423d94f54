"""The run directory: every file a run writes or reads, written atomically.

Layout (a folder the user can zip and send)::

    experiment.toml      the resolved experiment
    manifest.json        versions, seeds, SUMO command, device, input hashes, learner, status
    windows.parquet      and participations, exchanges, rounds, metrics, silos, map: see vnetsim.tables
    samples.npz          example images, sharp and blurred
    model.safetensors    the final global model
    checkpoint/          the newest finished round: progress.json, the state it names, a file for each silo with state
    report.html figures/ made by the analysis
"""

from __future__ import annotations

import io
import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from vnetsim.errors import InputError, RunError
from vnetsim.tables import TABLES, to_parquet

_TEMPORARY = re.compile(r"\..+\.(csv|html|json|npz|parquet|safetensors|svg|toml)\.[a-z0-9_]{8}")
"""Names that ``write_atomically`` gives to what it has not finished."""


def write_atomically(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path`` so that a kill at any instant leaves the old file or the new one.

    Raises:
        RunError: when the disk is full or the folder not writable.
    """
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            temporary = file.name
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except OSError as error:
        raise RunError(f"{path}: cannot write: {error.strerror}. What was finished before is kept.") from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)  # it is still there when something went wrong, also Ctrl-C


class RunDirectory:
    """A run directory at ``path``.

    Args:
        path: the folder; need not exist yet.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def remove_leftovers(self) -> None:
        """Remove the temporary files of writes that a kill cut short; no other process may be writing."""
        for path in self.path.rglob(".*"):
            if _TEMPORARY.fullmatch(path.name) and path.is_file():
                path.unlink()

    def write_json(self, name: str, value: Any) -> None:
        """Write ``value`` as JSON under ``name``."""
        write_atomically(self.path / name, json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True).encode())

    def read_json(self, name: str) -> Any:
        """Return the JSON file ``name``.

        Raises:
            InputError: when it is missing or damaged.
        """
        path = self.path / name
        try:
            return json.loads(path.read_bytes())
        except FileNotFoundError:
            raise InputError(f"{self.path}: not a run directory, it has no {name}.") from None
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: unreadable: {error}.") from error

    def write_arrays(self, name: str, **arrays: np.ndarray[Any, Any]) -> None:
        """Write arrays as a NumPy archive under ``name``; nothing in it depends on when it was written."""
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **arrays)
        write_atomically(self.path / name, buffer.getvalue())

    def manifest(self) -> dict[str, Any]:
        """Return ``manifest.json``."""
        result: dict[str, Any] = self.read_json("manifest.json")
        return result

    def has(self, table: str) -> bool:
        """Return whether the table was written."""
        return (self.path / f"{table}.parquet").is_file()

    def write(self, table: str, rows: pl.DataFrame | list[tuple[object, ...]]) -> None:
        """Write a table of ``vnetsim.tables.TABLES``."""
        write_atomically(self.path / f"{table}.parquet", to_parquet(table, rows))

    def read(self, table: str) -> pl.DataFrame:
        """Return a table with exactly the columns of ``vnetsim.tables``.

        Raises:
            InputError: when it is missing, damaged or has other columns.
        """
        path = self.path / f"{table}.parquet"
        expected = {column.name: column.dtype for column in TABLES[table]}
        try:
            frame = pl.read_parquet(path)
        except FileNotFoundError:
            raise InputError(f"{path}: missing.") from None
        except (OSError, pl.exceptions.PolarsError) as error:
            raise InputError(f"{path}: unreadable: {str(error).splitlines()[0]}.") from error
        if dict(frame.schema) != expected:
            wrong = sorted(set(frame.schema.items()) ^ set(expected.items()), key=str)
            raise InputError(f"{path}: columns differ from those of this version: {wrong[0][0]}.")
        return frame
