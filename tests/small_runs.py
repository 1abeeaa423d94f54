"""Fixtures of the tests that run vnetsim whole: the command line called in this process, small runs, and the toy of a
learner. The ``conftest.py`` of such tests imports them.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from learner_checks import one_thread
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox
from toy_learner import Toy

from vnetsim.cli.commands import main
from vnetsim.plugins import entry_points
from vnetsim.storage.run_directory import RunDirectory
from vnetsim.storage.tables import Rows, to_parquet

SCENARIOS = Path(__file__).resolve().parents[1] / "scenarios"

SMALL_TIMING = (
    *("--device", "cpu", "--set", "round.quorum=2", "--set", "learning.batch=8", "--set", "learning.steps=1"),
    *("--set", "data.train_images=400", "--set", "data.test_images=100", "--set", "silos.count=10"),
    *("--set", "traffic.end_s=120", "--set", "cost.model=trained", "--set", "compute.preset=ecu"),
)
"""Options of the run below that decide who takes part when."""
SMALL = (
    *SMALL_TIMING,
    *("--set", "rounds=3", "--set", "learning.bank=100", "--set", "learning.linear_probe=never"),
)
"""Options of a run that takes about a second, with the real learners; a participation takes some seconds of traffic."""

TINY: dict[str, Any] = {
    "silos.count": 6,
    "data.train_images": 120,
    "data.test_images": 40,
    "learning.steps": 1,
    "learning.batch": 8,
    "traffic.end_s": 60,
    "round.quorum": 2,
    "compute.median_flops": 4e9,
    "device": "cpu",
}
"""Settings of a run of a second in Python."""


@dataclass(frozen=True, kw_only=True)
class Done:
    """What a command left on the terminal."""

    status: int
    out: str
    err: str


def execute(*arguments: object, status: int | None = None) -> Done:
    """Call ``vnetsim`` in this process, with one torch thread; ``status`` is what it must exit with."""
    out, err = io.StringIO(), io.StringIO()
    with (
        one_thread(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as stopped,
    ):  # fmt: skip
        main([str(argument) for argument in arguments])
    done = Done(status=int(stopped.value.code or 0), out=out.getvalue(), err=err.getvalue())
    assert status in (None, done.status), done.err
    return done


Cli = Callable[..., Done]
_made: dict[tuple[object, ...], tuple[Path, Done]] = {}


class _Blank:
    """Axes that draw nothing, and whatever they return: ``length`` bars, or nothing to go through."""

    def __init__(self, length: int = 0) -> None:
        self._length = length

    def __getattr__(self, _: str) -> _Blank:
        return self

    def __call__(self, *_: object, **__: object) -> _Blank:
        return self

    def __getitem__(self, _: object) -> _Blank:
        return self

    def __iter__(self) -> Iterator[_Blank]:
        return iter([self] * self._length)

    def bar(self, places: Sequence[float], *_: object, **__: object) -> _Blank:
        return _Blank(len(places))

    def get_position(self) -> Bbox:
        return Bbox.unit()


def _save_empty(_: Figure, file: io.StringIO | io.BytesIO, **__: object) -> None:
    content = '<svg xmlns="http://www.w3.org/2000/svg" width="1pt" height="1pt" viewBox="0 0 1 1"></svg>'
    file.write(content if isinstance(file, io.StringIO) else content.encode())


UNDRAWN = {"savefig": _save_empty, "add_axes": _Blank(), "colorbar": _Blank()}
DRAWN = {name: getattr(Figure, name) for name in UNDRAWN}


@contextlib.contextmanager
def figures(methods: Mapping[str, Any]) -> Iterator[None]:
    """Leave the figures of pages empty, ``UNDRAWN``, or draw them after all, ``DRAWN``."""
    with pytest.MonkeyPatch.context() as patch:
        for name, method in methods.items():
            patch.setattr(Figure, name, method)
        yield


@pytest.fixture(scope="module", autouse=True)
def undrawn() -> Iterator[None]:
    """Leave the figures of pages empty, which take half of a small run; tests/analysis looks at figures."""
    with figures(UNDRAWN):
        yield


@pytest.fixture(scope="session")
def cli() -> Cli:
    """``cli("run", scenario, ...)`` gives status, standard output and standard error."""
    return execute


@pytest.fixture(scope="session")
def small() -> tuple[str, ...]:
    return SMALL


@pytest.fixture(scope="session")
def small_timing() -> tuple[str, ...]:
    return SMALL_TIMING


@pytest.fixture(scope="session")
def scenarios() -> Path:
    """The shipped scenarios."""
    return SCENARIOS


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Path, Done]]:
    """Runs a shipped scenario small, once per set of options: ``small_run("gaussian.toml")``. Do not change it."""

    def run(scenario: str, *options: object) -> tuple[Path, Done]:
        key = Figure.savefig, scenario, *options
        if key not in _made:
            folder = tmp_path_factory.mktemp("runs") / "run"
            done = execute("run", SCENARIOS / scenario, *SMALL, *options, "--out", folder)
            assert done.status == 0, done.err
            _made[key] = folder, done
        return _made[key]

    return run


@pytest.fixture(scope="session")
def results_of() -> Callable[[Path], dict[str, bytes]]:
    """Returns the bytes of every result of a run; not the manifest and report, which tell when it ran."""

    def read(run: Path) -> dict[str, bytes]:
        files = {str(path.relative_to(run)): path for path in run.rglob("*") if path.is_file()}
        told = {"manifest.json", "checksums.sha256", "report.html", ".lock"}
        return {
            name: path.read_bytes() for name, path in files.items() if name not in told and "figures" not in path.parts
        }

    return read


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> type[Toy]:
    """A fresh class of the toy, installed under the name ``toy``."""

    class Fresh(Toy):
        pass

    install(monkeypatch, Fresh)
    return Fresh


def install(patch: pytest.MonkeyPatch, *learners: Any) -> None:
    """Have learners installed under their names."""
    made = [SimpleNamespace(name=one.name, value=f"tests:{one.name}", load=lambda one=one: one) for one in learners]
    patch.setattr("vnetsim.plugins.entry_points", lambda group: [*entry_points(group=group), *made])


@contextlib.contextmanager
def interrupted_at(
    target: Any, name: str, call: int, error: BaseException | type[BaseException] = KeyboardInterrupt
) -> Iterator[None]:
    """Press Ctrl-C, or raise another error, when ``target.name`` is called for the ``call``-th time, from 0."""
    original, calls = getattr(target, name), count()

    def wrapped(*arguments: Any, **options: Any) -> Any:
        if next(calls) == call:
            raise error
        return original(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(target, name, wrapped)
        yield


@contextlib.contextmanager
def held(*arguments: object, **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Start a ``vnetsim`` whose learner, of ``walk_learners.py``, stands still in its third round; kill it at last."""
    code = "from vnetsim.__main__ import main; main()"
    with tempfile.NamedTemporaryFile("w") as trouble:
        trouble.write("hold")
        trouble.flush()
        environment = {
            **os.environ, "OMP_NUM_THREADS": "1", "TERM": "xterm", "COLUMNS": "120", "WALK_TROUBLE": trouble.name,
            "PYTHONPATH": os.pathsep.join(sys.path),
        }  # fmt: skip
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments)], env=environment, **(quiet | options)
        ) as process:
            try:
                yield process
            finally:
                process.kill()


def events_in(folder: Path) -> list[Any]:
    """The events of the only file in a folder: records of length, checksum, content, checksum."""
    from tensorboardX.proto.event_pb2 import Event  # noqa: PLC0415

    (path,) = folder.glob("events.out.tfevents.*")
    content, events = path.read_bytes(), []
    while content:
        size = int.from_bytes(content[:8], "little")
        events.append(Event.FromString(content[12 : 12 + size]))
        content = content[16 + size :]
    return events


def write_table(run: RunDirectory, name: str, rows: Rows) -> None:
    run.put({f"{name}.parquet": to_parquet(name, rows)})


def group_is_gone(group: int) -> bool:
    """Return when a group of processes has ended; the test's own limit ends one that does not."""
    with contextlib.suppress(ProcessLookupError):
        while True:
            os.killpg(group, 0)
            time.sleep(0.05)
    return True
