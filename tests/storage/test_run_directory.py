"""The run directory: atomic writes, tables with units, one-line errors."""

import base64
import os
import zipfile
from contextlib import suppress

import numpy as np
import polars as pl
import pytest

from learners.data.image_files import read_archive
from vnetsim.errors import InputError, RunError
from vnetsim.runs.writer import lock_directory
from vnetsim.storage.run_directory import RunDirectory, damage_as_input_error
from vnetsim.storage.tables import TABLES, frame, to_parquet


@pytest.mark.parametrize("name", TABLES)
def test_every_column_carries_unit_and_meaning_in_the_parquet_file(name, tmp_path):
    (tmp_path / "t.parquet").write_bytes(to_parquet(name, []))
    # Arrow's own schema, as every Parquet reader finds it; its strings stand in it as they are, each once
    schema = base64.b64decode(pl.read_parquet_metadata(tmp_path / "t.parquet")["ARROW:schema"])
    for column in TABLES[name]:
        assert column.meaning.encode() in schema
        assert column.unit.encode() in schema


@pytest.mark.parametrize(
    ("table", "column", "dtype"),
    [
        ("windows", "path_x_m", pl.List(pl.Float64)),
        ("silos", "class", pl.Int64),
        ("participations", "outcome", pl.String),
        ("participations", "weight", pl.Float64),
        ("rounds", "aggregator", pl.String),
    ],
)
def test_a_column_has_the_type_of_its_field(table, column, dtype):
    assert frame(TABLES[table]).schema[column] == dtype


def test_a_folder_that_is_no_run_directory_is_named(tmp_path):
    with pytest.raises(InputError, match="not a run directory, it has no manifest"):
        RunDirectory(tmp_path).manifest()
    RunDirectory(tmp_path).put({"manifest.json": b"{"})
    with pytest.raises(InputError, match=r"manifest\.json: unreadable"):
        RunDirectory(tmp_path).manifest()


@pytest.mark.parametrize("left", ["nothing", "a file of another", "a link in place of a folder"])
def test_folders_that_were_made_to_hold_a_run_go_with_it_where_nothing_stands_in_them(left, tmp_path):
    """Never one that was there before, and never through a symbolic link."""
    (tmp_path / "there").mkdir()
    run = RunDirectory(tmp_path / "there" / "a" / "b" / "run")

    def fault() -> None:
        if left == "a file of another":
            (tmp_path / "there" / "a" / "mine").touch()
        elif left != "nothing":
            (tmp_path / "there" / "a" / "b").rename(tmp_path / "there" / "a" / "elsewhere")
            (tmp_path / "there" / "a" / "b").symlink_to("elsewhere")
        raise InputError("wrong")

    with pytest.raises(InputError, match="wrong"), lock_directory(run, fresh=True):
        fault()
    found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")}
    more = {"nothing": set(), "a file of another": {"there/a", "there/a/mine"}}
    links = {"there/a", "there/a/b", "there/a/elsewhere", "there/a/elsewhere/run"}
    assert found - {"there/a/b/run"} == {"there", *more.get(left, links)}


def test_a_folder_that_cannot_be_made_leaves_none_above_it(tmp_path):
    run = RunDirectory(tmp_path / "a" / "b" / ("n" * 300))
    with pytest.raises(InputError, match="cannot be made or written"), lock_directory(run, fresh=True):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("what", ["pipe", "symbolic link"])
def test_a_lock_that_is_no_file_is_told_and_waited_for_by_nobody(what, tmp_path):
    (tmp_path / "mine").write_text("dear")
    if what == "pipe":
        os.mkfifo(tmp_path / ".lock")
    else:
        (tmp_path / ".lock").symlink_to("mine")
    with pytest.raises(InputError, match=rf"\.lock is a {what}"), lock_directory(RunDirectory(tmp_path), fresh=False):
        pass
    assert (tmp_path / "mine").read_text() == "dear"


def test_whatever_is_done_to_an_archive_of_arrays_is_one_line(tmp_path):
    run = RunDirectory(tmp_path)
    run.write_arrays("samples.npz", images=np.arange(600, dtype=np.uint8), kernels_px=np.arange(3.0))
    good = (tmp_path / "samples.npz").read_bytes()
    told = 0
    for position in range(0, len(good), 3):
        run.put({"samples.npz": good[:position] + bytes([good[position] ^ 0x2D]) + good[position + 1 :]})
        with suppress(InputError):
            run.read_arrays("samples.npz")
            continue
        told += 1
    assert told > 50


def test_a_header_of_an_array_that_is_no_python_is_one_line(tmp_path):
    header = b"{'descr': ('<f8', 'fortran_order': False, 'shape': (1,), }".ljust(117) + b"\n"
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("images.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(8))
    run = RunDirectory(tmp_path / "run")
    run.put({"samples.npz": (tmp_path / "a.npz").read_bytes()})
    with pytest.raises(InputError, match=r"samples\.npz: unreadable: "):
        run.read_arrays("samples.npz")
    with pytest.raises(InputError, match=r"a\.npz' is damaged; plain arrays are needed"):
        read_archive(tmp_path / "a.npz", ["images"])


def test_a_folder_of_the_users_beside_a_stray_lock_is_left_alone(tmp_path):
    (tmp_path / ".lock").touch()
    (tmp_path / "sumo").mkdir()
    (tmp_path / "sumo" / "mine").write_text("dear")
    run = RunDirectory(tmp_path)
    with pytest.raises(InputError, match="the output directory is not empty"), lock_directory(run, fresh=True):
        pass
    assert sorted(path.name for path in tmp_path.rglob("*")) == [".lock", "mine", "sumo"]
    run.claim()  # as a run does that is killed while SUMO opens its outputs
    with suppress(RunError), lock_directory(run, fresh=True):
        assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "checksums.sha256"]
        raise RunError("x")


def test_what_a_panic_prints_is_dropped_and_all_else_is_kept(capfd, tmp_path):
    with damage_as_input_error(tmp_path):
        os.write(2, b"written meanwhile\n")

    def panic() -> None:
        with damage_as_input_error(tmp_path):
            os.write(2, b"thread panicked")
            raise pl.exceptions.PanicException

    with pytest.raises(InputError, match="the file is damaged"):
        panic()
    assert capfd.readouterr().err == "written meanwhile\n"
