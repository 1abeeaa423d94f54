"""The run directory: atomic writes, tables with units, one-line errors."""

import base64
from pathlib import Path

import polars as pl
import pytest

from vnetsim.errors import InputError, RunError
from vnetsim.run_directory import RunDirectory, write_atomically
from vnetsim.tables import TABLES, to_parquet

ROW = (1, 2.5, "knn", 0.5)


def test_a_table_comes_back_as_written(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.write("metrics", [ROW])
    assert run.read("metrics").rows() == [ROW]


@pytest.mark.parametrize("name", TABLES)
def test_every_column_carries_unit_and_meaning_in_the_parquet_file(name: str, tmp_path: Path) -> None:
    (tmp_path / "t.parquet").write_bytes(to_parquet(name, []))
    # Arrow's own schema, as every Parquet reader finds it; its strings stand in it as they are, each once
    schema = base64.b64decode(pl.read_parquet_metadata(tmp_path / "t.parquet")["ARROW:schema"])
    for column in TABLES[name]:
        assert column.meaning.encode() in schema
        assert column.unit.encode() in schema


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    write_atomically(path, b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(RunError, match=r"x: cannot write: No space left on device"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_missing_damaged_and_foreign_tables_are_named(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    with pytest.raises(InputError, match=r"metrics\.parquet: missing"):
        run.read("metrics")
    (tmp_path / "metrics.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(InputError, match=r"metrics\.parquet: unreadable"):
        run.read("metrics")
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "metrics.parquet")
    with pytest.raises(InputError, match=r"metrics\.parquet: columns differ"):
        run.read("metrics")


def test_a_folder_that_is_no_run_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a run directory, it has no manifest"):
        RunDirectory(tmp_path).manifest()
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(InputError, match=r"manifest\.json: unreadable"):
        RunDirectory(tmp_path).manifest()
