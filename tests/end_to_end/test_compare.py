"""Learners compared over seeds, from the command line: whole, interrupted, extended, failed, refused."""

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import pytest
from small_runs import install, interrupted_at

from vnetsim.storage.run_directory import RunDirectory

SHORT = ("--rounds", "3", "--device", "cpu", "--set", "traffic.end_s=120")
TABLES = ("comparison.parquet", "comparison.csv")


@pytest.fixture
def toys(toy, monkeypatch) -> type[Any]:
    """Installs beside the toy ``shifted``, whose result is larger by one, and returns that."""

    class Shifted(toy):
        name: ClassVar[str] = "shifted"

        def evaluate(self, *, final: bool) -> dict[str, float]:
            return {"distance": super().evaluate(final=final)["distance"] + 1.0}

    install(monkeypatch, toy, Shifted)
    return Shifted


def command(out: Path, *options: str, seeds: str = "0:6") -> tuple[object, ...]:
    return "compare", "gaussian", "--learners", "toy,shifted", "--seeds", seeds, *SHORT, *options, "--out", out


def tables_of(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in TABLES]


@pytest.mark.usefixtures("toys")
def test_a_whole_comparison(cli, tmp_path):
    done = cli(*command(tmp_path / "all"), status=0)
    assert " failed: " not in done.err
    assert "  toy \u2212 shifted" in done.out or "toy \u2212 shifted  " in done.out
    assert "lower" in done.out
    assert max(map(len, done.out.splitlines()[:-1])) <= 80
    assert done.out.splitlines()[-1] == f"comparison: {tmp_path / 'all' / 'comparison.html'}"
    table = pl.read_parquet(tmp_path / "all" / "comparison.parquet")
    assert table.select("seed", "learner").rows() == [(seed, name) for seed in range(6) for name in ("toy", "shifted")]
    assert set(table["rounds"]) == {3}
    assert table["bytes"].min() > 0
    ours, theirs = (table.filter(pl.col("learner") == name)["value"] for name in ("toy", "shifted"))
    assert (theirs - ours - 1.0).abs().max() < 1e-12, "at one seed, all draws are common"
    assert ours.n_unique() == 6
    page = (tmp_path / "all" / "comparison.html").read_text()
    assert "withheld: did not meet the traffic" in page, "three rounds are shorter than a dwell"
    assert "<td>0.031</td>" in page
    (row,) = pl.read_parquet(tmp_path / "all" / "comparison_differences.parquet").to_dicts()
    assert (row["difference"], row["low"], row["high"]) == (pytest.approx(-1.0),) * 3
    assert (row["p"], row["verdict"], row["method"], row["tests"]) == (2 / 64, "", "sign-flip", 1)
    digest = json.loads((tmp_path / "all" / "comparison.json").read_text())["traffic"][0]["sha256"]
    assert digest in page
    for cell in (tmp_path / "all" / "cells").iterdir():
        assert digest in RunDirectory(cell).manifest()["inputs"].values()


@pytest.mark.usefixtures("toys")
def test_a_cell_is_the_run_that_replays_the_traffic(cli, results_of, tmp_path):
    assert cli(*command(tmp_path / "all", seeds="3,5")).status == 0
    (traffic,) = (tmp_path / "all" / "traffic").iterdir()
    replay = ("run", traffic, "--learner", "shifted", "--seed", "5", *SHORT)
    assert cli(*replay, "--out", tmp_path / "run").status == 0
    (cell,) = (tmp_path / "all" / "cells").glob("shifted-seed5-*")
    ours, theirs = results_of(cell), results_of(tmp_path / "run")
    for results in (ours, theirs):
        del results["experiment.toml"]  # its traffic.repeat, which a replay does not heed, is as recorded
    assert ours == theirs


def test_a_second_call_runs_what_is_missing(toys, cli, monkeypatch, tmp_path):
    made = []
    create = toys.create.__func__
    monkeypatch.setattr(
        toys, "create", classmethod(lambda kind, *given: (made.append(kind.name), create(kind, *given))[1])
    )
    assert cli(*command(tmp_path / "all", seeds="0:3")).status == 0
    before, first = tables_of(tmp_path / "all"), (tmp_path / "all" / "comparison.html").read_bytes()
    assert len(made) == 3
    again = cli(*command(tmp_path / "all", seeds="0:3"))
    assert (again.status, len(made)) == (0, 3)
    assert tables_of(tmp_path / "all") == before
    assert (tmp_path / "all" / "comparison.html").read_bytes() == first
    assert cli(*command(tmp_path / "all", seeds="0:4")).status == 0
    assert len(made) == 4
    assert pl.read_parquet(tmp_path / "all" / "comparison.parquet")["seed"].max() == 3
    (tmp_path / "all" / "comparison.html").unlink()
    shown = cli("report", tmp_path / "all")
    assert shown.status == 0
    assert "distance" in shown.out.lower()
    assert (tmp_path / "all" / "comparison.html").is_file()


def test_a_failed_cell_is_told_and_the_rest_goes_on(toys, cli, tmp_path):
    folder = tmp_path / "all"
    with interrupted_at(toys, "train", 4, RuntimeError("out of luck")):  # the second round of its second seed
        done = cli(*command(folder, seeds="0:2"))
    assert done.status == 1
    assert "cell 4 of 4 (shifted, seed 1) failed: learner 'shifted'" in done.err
    assert "out of luck" in done.err
    assert done.err.splitlines()[-1] == "vnetsim: 1 of 4 cells failed; the same command runs them again."
    assert pl.read_parquet(folder / "comparison.parquet").height == 3
    page = (folder / "comparison.html").read_text()
    assert "out of luck" in page
    assert "3 of 4" in page
    again = cli(*command(folder, seeds="0:2"))
    assert again.status == 0, again.err
    assert " failed: " not in again.err
    assert pl.read_parquet(folder / "comparison.parquet").height == 4
    assert "out of luck" not in (folder / "comparison.html").read_text()


def test_when_all_fail_there_is_no_page(toys, toy, cli, tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        for kind in (toy, toys):
            patch.setattr(kind, "train", lambda *_: 1 / 0)
        done = cli(*command(tmp_path / "all", seeds="0:2"))
    assert done.status == 1
    assert "4 of 4 cells failed" in done.err
    assert not (tmp_path / "all" / "comparison.html").exists()
    assert "no cell of this comparison has finished" in cli("report", tmp_path / "all").err


def _other_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "thesis.txt").write_text("dear to its owner")


def _alter_traffic(folder: Path) -> None:
    (windows,) = (folder / "traffic").glob("*/windows.parquet")
    with windows.open("ab") as file:
        file.write(b"x")


def _other_version(folder: Path) -> None:
    path = folder / "comparison.json"
    RunDirectory(folder).write_json(path.name, json.loads(path.read_text()) | {"vnetsim": "0.0.1"})


@pytest.mark.usefixtures("toys")
@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (_other_file, "neither empty nor a comparison; name another folder"),
        (_alter_traffic, "windows.parquet: changed or gone since it was recorded"),
        (_other_version, "made by vnetsim 0.0.1"),
    ],
)
def test_a_folder_that_does_not_fit_is_refused(harm, message, cli, refused, results_of, tmp_path):
    assert cli(*command(tmp_path / "all", seeds="0:1")).status == 0
    harm(tmp_path / "all")
    before = results_of(tmp_path / "all")
    assert message in refused(*command(tmp_path / "all", seeds="0:1"))
    assert results_of(tmp_path / "all") == before


@pytest.mark.usefixtures("toys")
def test_nothing_is_written_through_a_link_of_a_comparison(cli, refused, tmp_path):
    folder, outside = tmp_path / "all", tmp_path / "outside"
    assert cli(*command(folder, seeds="0:1")).status == 0
    cell = min((folder / "cells").iterdir())
    run = RunDirectory(cell)
    run.write_json("manifest.json", run.manifest() | {"status": "interrupted", "finished": None})
    (cell / ".rounds.parquet.12345678.tmp").write_text("left by a kill")
    for link in (folder / "cells", cell, folder / "traffic"):
        link.rename(outside)
        link.symlink_to(outside)
        before = {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()}
        line = f"{link}: a symbolic link; vnetsim writes and removes nothing through it. Remove it."
        assert line in refused(*command(folder, seeds="0:1"))
        if link != folder / "traffic":
            assert line in refused("resume", cell, "--trust")
        if link == cell:
            assert line in refused("report", cell)
        assert {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()} == before
        link.unlink()
        outside.rename(link)
    (tmp_path / "mine").symlink_to(cell)  # a link of the user's own
    RunDirectory(tmp_path / "mine").write_json("manifest.json", run.manifest())


def _alter_table(cell: Path) -> Path:
    with (cell / "metrics.parquet").open("ab") as file:
        file.write(b"x")
    return cell / "metrics.parquet"


def _alter_settings(cell: Path) -> Path:
    path = cell / "experiment.toml"
    path.write_text(path.read_text().replace("evaluate_every = 1", "evaluate_every = 2"))
    return path


def _lose_table(cell: Path) -> Path:
    (cell / "rounds.parquet").unlink()
    return cell / "rounds.parquet"


def _alter_manifest(cell: Path) -> Path:
    path = cell / "manifest.json"
    path.write_text(path.read_text().replace('"ended_by": "rounds"', '"ended_by": "traffic"'))
    return path


def _damage_seal(cell: Path) -> Path:
    (cell / "checksums.sha256").write_text("none")
    return cell / "checksums.sha256"


def _age(cell: Path) -> Path:
    path = cell / "manifest.json"
    RunDirectory(cell).write_json("manifest.json", json.loads(path.read_text()) | {"vnetsim": "0.0.1"})
    return cell


@pytest.mark.usefixtures("toys")
def test_altered_cells_are_named_and_the_rest_is_compared(cli, tmp_path):
    folder = tmp_path / "all"
    assert cli(*command(folder)).status == 0
    before = tables_of(folder)
    harms = (_alter_table, _alter_settings, _lose_table, _alter_manifest, _damage_seal, _age)
    cells = sorted((folder / "cells").glob("shifted-seed*"))
    harmed = [(cell, harm(cell)) for cell, harm in zip(cells, harms, strict=True)]
    done = cli(*command(folder))
    assert done.status == 1
    told = [
        line for line in done.err.splitlines() if " failed: " in line and "cell " in line and "missing here" not in line
    ]
    assert len(told) == 6, done.err
    for line, (cell, file) in zip(told, harmed, strict=True):
        assert f"failed: {file}: " in line
        assert f"delete {'it' if file == cell else cell}" in line
    assert pl.read_parquet(folder / "comparison.parquet").height == 6
    for cell in cells:
        shutil.rmtree(cell)
    assert cli(*command(folder)).status == 0
    assert tables_of(folder) == before


def test_the_folder_may_be_moved(toys, cli, results_of, tmp_path):
    """Cells know their traffic by its place in the folder, an interrupted one as well."""
    assert cli(*command(tmp_path / "whole", seeds="0:2")).status == 0
    with interrupted_at(toys, "train", 2):
        stopped = cli(*command(tmp_path / "before", seeds="0:2"), status=130)
    assert stopped.err.count("\n") == 1
    assert "Go on with the same command: vnetsim" in stopped.err
    assert " of 4 (shifted, seed 0)" in stopped.err
    (tmp_path / "elsewhere").mkdir()
    folder = (tmp_path / "before").rename(tmp_path / "elsewhere" / "after")
    assert cli(*command(folder, seeds="0:2")).status == 0
    assert tables_of(folder) == tables_of(tmp_path / "whole")
    for cell in (folder / "cells").iterdir():
        ours, theirs = results_of(cell), results_of(tmp_path / "whole" / "cells" / cell.name)
        assert ours == theirs
        assert all((cell / name).is_file() for name in RunDirectory(cell).manifest()["inputs"])
    (tmp_path / "whole").rename(tmp_path / "new")
    assert cli("report", tmp_path / "new").status == 0
    assert cli("resume", next((tmp_path / "new" / "cells").iterdir())).status == 0


@pytest.mark.usefixtures("toys")
def test_a_learners_file_goes_into_the_folder(cli, tmp_path):
    """What the user does to the file afterwards makes other cells, and does no harm to those there are."""
    mine = tmp_path / "mine.py"
    mine.write_text((Path(__file__).with_name("walk_learners.py")).read_text())
    given = ("compare", "gaussian", "--learners", f"{mine}:Walk,{mine}:Shifted", "--seeds", "0:1", *SHORT)
    assert cli(*given, "--out", tmp_path / "all").status == 0
    (copy,) = (tmp_path / "all" / "learners").rglob("*.py")
    assert copy.read_bytes() == mine.read_bytes()
    first = tables_of(tmp_path / "all")
    original = mine.read_text()
    mine.write_text(original.replace("offset: ClassVar[float] = 1.0", "offset: ClassVar[float] = 2.0"))
    assert cli(*given, "--out", tmp_path / "all").status == 0
    assert tables_of(tmp_path / "all") != first
    mine.write_text(original)
    copy.write_text("of somebody else")
    shutil.rmtree(tmp_path / "all" / "cells")
    assert cli(*given, "--out", tmp_path / "all").status == 0
    assert tables_of(tmp_path / "all") == first


@pytest.mark.slow
@pytest.mark.usefixtures("toys")
def test_a_full_disk_stops_the_comparison(cli, tmp_path):
    assert cli(*command(tmp_path / "whole", seeds="0:2")).status == 0
    original = os.fsync
    for call in (2, 30):
        folder, calls = tmp_path / f"run{call}", iter(range(10**6))

        def full(file: int, *, at: int = call, calls: Any = calls) -> None:
            if next(calls) >= at:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            original(file)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", full)
            done = cli(*command(folder, seeds="0:2"))
        assert done.status == 1
        assert done.err.count("\n") == 1
        assert f"vnetsim: {folder}: no space is left on the disk, so the comparison was stopped." in done.err
        assert "Go on with the same command: vnetsim" in done.err
        assert cli(*command(folder, seeds="0:2")).status == 0
        assert tables_of(folder) == tables_of(tmp_path / "whole")


@pytest.mark.usefixtures("toys")
def test_other_traffic_in_the_same_folder_runs_anew(cli, tmp_path):
    folder = tmp_path / "all"
    assert cli(*command(folder, seeds="0:1")).status == 0
    first = tables_of(folder)
    assert cli(*command(folder, "--set", "source.mean_kmh=70", seeds="0:1")).status == 0
    assert len(list((folder / "cells").iterdir())) == 4
    assert tables_of(folder) != first
    assert cli(*command(folder, seeds="0:1")).status == 0
    assert tables_of(folder) == first
