"""What is fuzzed: for each kind of input its seed files, and what vnetsim does with them."""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from PIL import Image

from vnetsim.cli.commands import main
from vnetsim.coverage.windows import Left
from vnetsim.errors import VnetsimError
from vnetsim.experiment import Camera, DataSettings, Experiment, TrafficSettings
from vnetsim.learning.device import resolve_device
from vnetsim.learning.kinds import DATA_SETS
from vnetsim.random_streams import Streams
from vnetsim.runs.assembly import assemble
from vnetsim.runs.tables import windows_frame
from vnetsim.scenario.settings_file import read_experiment
from vnetsim.standard_streams import tell
from vnetsim.storage.tables import to_parquet
from vnetsim.study.request import plan_of
from vnetsim.traffic import open_traffic

SEEDS = Path(__file__).with_name("seeds")
SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"
QUICK = (
    *("--rounds", "2", "--device", "cpu", "--set", "learning.batch=8", "--set", "learning.steps=1"),
    *("--set", "learning.linear_probe=never", "--set", "data.train_images=100", "--set", "data.test_images=20"),
    *("--set", "silos.count=5", "--set", "traffic.end_s=60", "--set", "data.name=signs"),
)


@dataclass(frozen=True, kw_only=True)
class Done:
    """How an input ended: exit status, and what was printed on standard error."""

    status: int
    err: str


def command(*arguments: str) -> Done:
    """Call the command line in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(list(arguments))
        except SystemExit as stopped:
            return Done(status=int(stopped.code or 0), err=err.getvalue())
    raise AssertionError("main came back")


def inner(call: Callable[[], Any]) -> Done:
    """Call what a command calls, and end as it would."""
    err = io.StringIO()
    with contextlib.redirect_stderr(err):
        try:
            call()
        except VnetsimError as error:
            tell(str(error))
            return Done(status=error.exit_code, err=err.getvalue())
    return Done(status=0, err=err.getvalue())


@dataclass(frozen=True, kw_only=True)
class Target:
    """A kind of input.

    Args:
        share: of all inputs.
        seed: writes the files into an empty folder.
        files: patterns of the files to damage.
        call: what is done, in the folder.
    """

    share: float
    seed: Callable[[Path], None]
    files: tuple[str, ...]
    call: Callable[[], Done]


def copied(*names: str) -> Callable[[Path], None]:
    """Return a seed of files of this folder."""

    def copy(folder: Path) -> None:
        for name in names:
            shutil.copy(SEEDS / name, folder / name)

    return copy


def recording(suffix: str, *, rsu: str = "0,0:50", net: str = "") -> Callable[[], Done]:
    """Return the reading of a recording, as ``mobility`` does it."""

    def call() -> None:
        settings = TrafficSettings(rsu=(rsu,), net=net, repeat=False)
        with contextlib.closing(open_traffic(Experiment(scenario=f"trace{suffix}", traffic=settings))) as traffic:
            left = [event.window for event in traffic.events() if isinstance(event, Left)]
        to_parquet("windows", windows_frame(left, Camera()))

    return lambda: inner(call)


def parquet(folder: Path) -> None:
    table = pl.read_csv(SEEDS / "trace.csv", separator=";")
    table.write_parquet(folder / "trace.parquet")


def experiment() -> Done:
    """Do with an experiment what a run does before it learns, and read the first of its traffic."""

    def call() -> None:
        found = assemble(*read_experiment("experiment.toml")).experiment
        resolve_device(found.device)
        with contextlib.closing(open_traffic(found)) as traffic:
            for _ in itertools.islice(traffic.events(), 30):
                pass

    return inner(call)


def study() -> Done:
    return inner(lambda: plan_of("study.toml", []))


@cache
def _small_run() -> Path:
    """Return a finished run, made once."""
    folder = Path(tempfile.mkdtemp(prefix="vnetsim-fuzz-")) / "run"
    done = command("run", "gaussian", *QUICK, "--out", str(folder))
    assert done.status == 0, done.err
    shutil.rmtree(folder / "figures")
    (folder / "report.html").unlink()
    return folder


def run_directory(folder: Path) -> None:
    shutil.copytree(_small_run(), folder / "run")


def read_run() -> Done:
    from analysis.loading import load  # noqa: PLC0415 - matplotlib

    replayed = command("mobility", "run", "--no-report", "--out", "out")
    if replayed.status:
        return replayed
    shutil.rmtree("out")
    return inner(lambda: load(Path("run")))


def npz(folder: Path) -> None:
    images = np.arange(12 * 8 * 8 * 3, dtype=np.uint8).reshape(12, 8, 8, 3)
    np.savez_compressed(folder / "a.npz", images=images, labels=np.arange(12) % 3)


def steering(folder: Path) -> None:
    images = np.arange(40 * 8 * 8, dtype=np.uint8).reshape(40, 8, 8)
    np.savez(folder / "a.npz", imgs=images, ground_truths=np.linspace(-1, 1, 40))


def pictures(folder: Path) -> None:
    for name, ending in (("stop", "png"), ("yield", "jpg"), ("stop", "bmp"), ("yield", "gif"), ("stop", "tif")):
        (folder / "data" / name).mkdir(parents=True, exist_ok=True)
        for number in range(2):
            pixels = np.arange(75, dtype=np.uint8).reshape(5, 5, 3) * (number + 1)
            Image.fromarray(pixels).save(folder / "data" / name / f"{number}.{ending}")


def drive(folder: Path) -> None:
    copied("driving_log.csv")(folder)
    (folder / "IMG").mkdir()
    for line in (SEEDS / "driving_log.csv").read_text().splitlines()[1:]:
        for cell in line.split(",")[:3]:
            name = cell.strip().replace("\\", "/").rpartition("/")[2]
            Image.fromarray(np.zeros((6, 12, 3), dtype=np.uint8)).save(folder / "IMG" / name)


def data(name: str, root: str) -> Callable[[], Done]:
    """Return the reading of a data set."""

    def call() -> None:
        DATA_SETS.find(name)().load(DataSettings(name=name, root=root), Streams(seed=0))

    return lambda: inner(call)


def scenario(folder: Path) -> None:
    shutil.copy(SCENARIOS / "intersection.sumocfg", folder)
    shutil.copytree(SCENARIOS / "intersection", folder / "intersection")


def simulated() -> Done:
    options = ("--end", "30", "--no-report", "--out", "out")
    return command("mobility", "intersection.sumocfg", *options)


def zipped(folder: Path) -> None:
    content = (SEEDS / "trace.xml").read_bytes()
    (folder / "trace.xml.gz").write_bytes(gzip.compress(content, mtime=0))


def rsu_file(folder: Path) -> None:
    copied("trace.xml")(folder)
    (folder / "rsu.add.xml").write_text(
        '<additional>\n  <poi id="a" type="rsu" x="0" y="0"><param key="range" value="50"/></poi>\n'
        '  <poi id="b" type="rsu" x="20" y="5.5">\n    <param key="range" value="30"/>\n'
        '    <param key="environment" value="urban"/>\n  </poi>\n</additional>\n'
    )


def placed() -> Done:
    given = ("--set", "traffic.rsu=['rsu.add.xml']", "--no-report", "--out", "out")
    return command("mobility", "trace.xml", *given)


def options() -> Done:
    """Take each line of a file as a setting on the command line."""
    lines = Path("options.txt").read_text(errors="surrogateescape").splitlines()
    given = [part for line in lines for part in ("--set", line)]
    return command("mobility", "gaussian", "--set", "traffic.end_s=10", *given, "--no-report", "--out", "out")


TABLES = ("run/*.parquet", "run/*.json", "run/*.toml", "run/*.safetensors", "run/*.npz", "run/checksums.sha256")
TARGETS: dict[str, Target] = {
    "fcd-xml": Target(share=0.15, seed=copied("trace.xml"), files=("trace.xml",), call=recording(".xml")),
    "fcd-csv": Target(share=0.15, seed=copied("trace.csv"), files=("trace.csv",), call=recording(".csv")),
    "fcd-parquet": Target(share=0.07, seed=parquet, files=("trace.parquet",), call=recording(".parquet")),
    "net": Target(
        share=0.12,
        seed=copied("trace.xml", "cross.net.xml"),
        files=("cross.net.xml",),
        call=recording(".xml", net="cross.net.xml", rsu="centre:50"),
    ),
    "experiment": Target(share=0.13, seed=copied("experiment.toml"), files=("*.toml",), call=experiment),
    "study": Target(share=0.05, seed=copied("study.toml"), files=("study.toml",), call=study),
    "options": Target(share=0.02, seed=copied("options.txt"), files=("options.txt",), call=options),
    "npz": Target(share=0.06, seed=npz, files=("a.npz",), call=data("npz", "a.npz")),
    "steering-npz": Target(share=0.05, seed=steering, files=("a.npz",), call=data("steering-npz", "a.npz")),
    "driving-log": Target(share=0.05, seed=drive, files=("driving_log.csv",), call=data("driving-log", ".")),
    "folder": Target(share=0.04, seed=pictures, files=("data/*/*",), call=data("folder", "data")),
    "run": Target(share=0.03, seed=run_directory, files=TABLES, call=read_run),
    "fcd-gz": Target(share=0.03, seed=zipped, files=("trace.xml.gz",), call=recording(".xml.gz")),
    "rsu-file": Target(share=0.01, seed=rsu_file, files=("rsu.add.xml",), call=placed),
    "scenario": Target(
        share=0.01,
        seed=scenario,
        files=("*.sumocfg", "intersection/*.rou.xml", "intersection/*.add.xml"),
        call=simulated,
    ),
}


def chosen(target: Target, folder: Path) -> list[Path]:
    """Return the files of a seed that may be damaged, always in the same order."""
    return sorted({path for pattern in target.files for path in folder.glob(pattern) if path.is_file()})


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Work in a folder."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
