"""One learner's payload and work for those of another: who commits is then the same, whatever is learnt."""

from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import pytest
from small_runs import interrupted_at

from vnetsim.learning import Cost, Exchange
from vnetsim.runs.round_handler import Training
from vnetsim.storage.run_directory import RunDirectory

Cli = Callable[..., Any]
Refused = Callable[..., str]
ResultsOf = Callable[[Path], dict[str, bytes]]
Run = Callable[..., Path]

LEARNT = ("weight", "loss")  # columns of the participations that the learner fills
SHORT = ("--rounds", "3", "--device", "cpu", "--set", "traffic.end_s=120")
SCHEDULE = ("--set", "schedule.learner=toy")


@pytest.fixture
def run(cli: Cli, tmp_path: Path) -> Run:
    def call(name: str, learner: str, *options: object, scenario: object = "gaussian") -> Path:
        done = cli("run", scenario, "--learner", learner, *options, "--out", tmp_path / name)
        assert done.status == 0, done.err
        return tmp_path / name

    return call


@pytest.fixture
def others(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installs beside the toy ``heavy``, which sends more, and ``talking``, which exchanges with neighbours."""

    class Heavy(toy):
        name: ClassVar[str] = "heavy"

        def cost(self, silo: int) -> Cost:
            return replace(super().cost(silo), upload_bytes=20_000_000)

    class Talking(toy):
        name: ClassVar[str] = "talking"

        def cost(self, silo: int) -> Cost:
            plan = Exchange(before_training=True, mutual=True, send_bytes=1000, return_bytes=1000)
            return replace(super().cost(silo), exchange=plan)

    class Stranger(toy):
        name: ClassVar[str] = "stranger"
        task: ClassVar[str] = "chess"

    class Entry:
        def __init__(self, learner: Any) -> None:
            self.name, self.value, self._learner = learner.name, "tests", learner

        def load(self) -> Any:
            return self._learner

    entries = [Entry(learner) for learner in (toy, Heavy, Talking, Stranger)]
    monkeypatch.setattr("vnetsim.plugins.entry_points", lambda group: [*entry_points(group=group), *entries])


def timings(folder: Path) -> pl.DataFrame:
    return pl.read_parquet(folder / "participations.parquet").drop(LEARNT)


@pytest.mark.usefixtures("others")
def test_who_commits_is_the_schedules_and_what_is_learnt_the_runs(run: Run) -> None:
    light, heavy = run("light", "toy", *SHORT), run("heavy", "heavy", *SHORT)
    equal = run("equal", "heavy", *SHORT, *SCHEDULE)
    assert not timings(light).equals(timings(heavy))
    assert timings(light).equals(timings(equal))
    record = RunDirectory(equal).manifest()["learner"]
    assert record["name"] == "heavy"
    assert record["cost"]["upload_bytes"] == 100_000, "the record tells what the participations moved"


@pytest.mark.usefixtures("others")
def test_replayed_and_resumed(run: Run, cli: Cli, results_of: ResultsOf, tmp_path: Path) -> None:
    whole = run("whole", "heavy", *SHORT, *SCHEDULE)
    replayed = run("replayed", "heavy", "--device", "cpu", scenario=whole)
    assert timings(replayed).equals(timings(whole))
    with interrupted_at(Training, "close_round", 2):
        options = ("gaussian", "--learner", "heavy", *SHORT, *SCHEDULE, "--out", tmp_path / "broken")
        assert cli("run", *options).status == 130
    assert cli("resume", tmp_path / "broken").status == 0
    assert results_of(tmp_path / "broken") == results_of(whole)


@pytest.mark.usefixtures("others")
@pytest.mark.parametrize(
    ("learner", "options", "message"),
    [
        ("toy", ("schedule.learner=toi",), "schedule.learner: unknown learner 'toi'. Did you mean 'toy'?"),
        ("toy", ("schedule.learner=stranger",), "stranger learns another task (chess) than toy (random walk)"),
        ("toy", ("schedule.learning.payload_bytes=5",), "schedule.learning: needs schedule.learner"),
        (
            "toy",
            ("schedule.learner=toy", "schedule.learning.payload=5"),
            "schedule.learning: unknown key 'payload'. Did you mean 'payload_bytes'?",
        ),
        ("toy", ("schedule.lerner=toy",), "schedule: unknown key 'lerner'. Did you mean 'learner'?"),
        ("toy", ("schedule.learner=talking",), "but toy exchanges nothing between vehicles"),
        ("talking", ("schedule.learner=toy",), "talking exchanges with neighbours before training, in both directions"),
    ],
)
def test_what_does_not_fit_is_refused(
    learner: str, options: tuple[str, ...], message: str, refused: Refused, tmp_path: Path
) -> None:
    given = [part for option in options for part in ("--set", option)]
    assert message in refused("run", "gaussian", "--learner", learner, *SHORT, *given, "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()
