"""The Python API: the same runs as the command line, from a script or a notebook."""

import ast
import dataclasses
import doctest
import html
import importlib.util
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from learner_checks import one_thread
from small_runs import DRAWN, figures

import vnetsim
import vnetsim.api
from vnetsim.api import calls, plots, results
from vnetsim.api import settings as api_settings
from vnetsim.learning.kinds import LEARNERS
from vnetsim.plugins import Kind
from vnetsim.scenario.settings_file import parse_override, read_experiment, to_plain

TINY = {"silos.count": 10, "data.train_images": 200, "data.test_images": 50, "learning.steps": 1, "learning.batch": 8}
EXAMPLES = [
    example
    for module in (vnetsim.api, calls, plots, results, api_settings)
    for example in doctest.DocTestFinder().find(module, globs={})
    if example.examples
]


@pytest.fixture(autouse=True)
def _one_thread(tmp_path, monkeypatch) -> Iterator[None]:
    """As the command line of these tests has it, and below a folder of its own."""
    monkeypatch.chdir(tmp_path)
    with one_thread():
        yield


def settings_of(options: tuple[str, ...]) -> dict[str, Any]:
    """Return the settings of options of the command line, by dotted key."""
    pairs = [parse_override(text) for text in options if "=" in text]
    return {".".join(path): value for path, value in pairs}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_the_examples_of_the_documentation_run(example):
    flags = doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
    found: list[str] = []
    with figures(DRAWN if "plots" in example.name else {}):
        doctest.DocTestRunner(optionflags=flags).run(example, out=found.append)
    assert "".join(found) == ""


def test_every_function_and_class_has_an_example_or_needs_none():
    named = {example.name.rpartition("api.")[2] for example in EXAMPLES}
    assert {"calls.run", "calls.mobility", "calls.compare", "calls.resume", "calls.load"} <= named
    assert {"settings.Experiment", "results.Traffic", "results.Run.model"} <= named


def test_what_is_public():
    stub = ast.parse((Path(vnetsim.__file__).with_suffix(".pyi")).read_text())
    typed = {alias.name for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert typed | {"__version__"} == set(vnetsim.__all__)
    assert set(vnetsim.__all__) - {"__version__"} == set(vnetsim.api.__all__)
    for name in set(vnetsim.__all__) - {"__version__"}:
        public = getattr(vnetsim.api, name)
        assert inspect.getdoc(public), name
        assert set(vnetsim.__all__) <= set(dir(vnetsim))
        members = inspect.getmembers(public) if inspect.isclass(public) else []
        undocumented = [
            key
            for key, value in members
            if not key.startswith("_") and (inspect.isroutine(value) or isinstance(value, property))
            if not inspect.getdoc(value)
        ]
        assert undocumented == [], name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        vnetsim.nothing  # noqa: B018


def test_no_package_hides_a_function():
    for name in ("run", "mobility", "compare", "resume", "load"):
        assert getattr(vnetsim, name) is getattr(calls, name)
        assert importlib.util.find_spec(f"vnetsim.{name}") is None  # importing it would replace the attribute


def test_importing_loads_nothing_and_traffic_no_torch(scenarios):
    code = (
        "import sys; before = set(sys.modules); import vnetsim; new = set(sys.modules) - before\n"
        "assert new == {'vnetsim'}, new\n"
        "import vnetsim.traffic\n"
        "assert not {'traci', 'polars', 'scipy', 'vnetsim.traffic.sumo.source'} & set(sys.modules)\n"
        "assert vnetsim.mobility(sys.argv[1], traffic__end_s=20, out='m').summary().headline\n"
        "assert not {'torch', 'learners', 'scipy', 'matplotlib', 'cyclopts', 'IPython'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, scenarios / "intersection.sumocfg"], check=True)


def test_the_same_arguments_give_the_same_files(small_run, small, scenarios, results_of):
    given = settings_of(small)
    expected = results_of(small_run("gaussian.toml", "--learner", "fedavg", "--seed", "3")[0])
    run = vnetsim.run(scenarios / "gaussian.toml", learner="fedavg", seed=3, device="cpu", settings=given, out="run")
    found = results_of(run.path)
    assert found.keys() == expected.keys()
    assert [name for name in found if found[name] != expected[name]] == []
    tables = {name: getattr(run, name) for name in ("windows", "participations", "rounds", "silos")}
    for name, table in tables.items():
        file = pl.read_parquet(run.path / f"{name}.parquet")
        assert table.select(file.columns).equals(file), name
        assert run.units[name].keys() == set(table.columns)
    assert run.metrics.drop("unit").equals(pl.read_parquet(run.path / "metrics.parquet"))
    assert dict(run.metrics.select("name", "unit").unique().rows())["knn_accuracy"] == "%"
    assert run.manifest["command"][0].startswith("vnetsim.run(")
    assert run.learner["name"] == "fedavg"
    assert run.settings["seed"] == 3


@pytest.mark.parametrize("learner", LEARNERS.names())
def test_an_experiment_has_its_learners_defaults(learner):
    expected = read_experiment("gaussian", [(("learner",), learner)])[0]
    experiment = vnetsim.Experiment(learner=learner)
    assert to_plain(experiment) == to_plain(expected)
    more = dataclasses.replace(experiment, rounds=3)
    assert to_plain(more) == {**to_plain(expected), "rounds": 3}


def test_settings_by_keyword_by_dotted_key_and_as_tables_are_the_same():
    ways = (
        vnetsim.Experiment(round__quorum=3, data__name="signs"),
        vnetsim.Experiment(settings={"round.quorum": 3, "data.name": "signs"}),
        vnetsim.Experiment(settings={"round": {"quorum": 3}, "data": {"name": "signs"}}),
        vnetsim.Experiment(**{"round.quorum": 3, "data.name": "signs"}),
    )
    assert all(way == ways[0] for way in ways)
    assert ways[0].round.quorum == 3


def test_a_fleet_takes_the_place_of_another(tmp_path):
    file = tmp_path / "fleet.toml"
    file.write_text('scenario = "gaussian"\n[compute.fleet]\nagx-xavier = 0.3\njetson-nano = 0.7\n')
    assert vnetsim.Experiment(file).compute.fleet == {"agx-xavier": 0.3, "jetson-nano": 0.7}
    for fleet in ({"agx-orin": 1.0}, {}):
        assert vnetsim.Experiment(file, settings={"compute.fleet": fleet}).compute.fleet == fleet
        assert vnetsim.Experiment(file, settings={"compute": {"fleet": fleet}}).compute.fleet == fleet


def test_an_experiment_is_run_as_it_is(toy, results_of):
    experiment = vnetsim.Experiment(learner=toy.name, rounds=2, traffic__end_s=60, device="cpu")
    first = vnetsim.run(experiment, out="a")
    second = vnetsim.run("gaussian", learner=toy.name, rounds=2, traffic__end_s=60, device="cpu", out="b")
    assert results_of(first.path) == results_of(second.path)
    assert vnetsim.run(experiment, rounds=1, out="c").rounds.height == 1
    with pytest.raises(vnetsim.InputError, match="the experiment has toy; make another Experiment for fedavg"):
        vnetsim.run(experiment, learner="fedavg")


class Interrupting:
    """Presses Ctrl-C when a round is done."""

    def __init__(self, after: int) -> None:
        self._after = after
        self.stages: list[str] = []

    def stage(self, text: str) -> None:
        self.stages.append(text)

    def note(self, text: str) -> None:
        raise AssertionError(text)

    def advance(self, *, time_s: float, done: float, total: float | None) -> None:
        assert total == 12
        assert time_s >= 0
        if done >= self._after:
            raise KeyboardInterrupt


def test_an_interrupted_run_goes_on_to_the_same_bits(toy, results_of):
    given: dict[str, Any] = {"learner": toy.name, "rounds": 12, "device": "cpu", "traffic__end_s": 120}
    given["compute__preset"] = "ecu"
    whole = vnetsim.run("gaussian", **given, out="whole")
    display = Interrupting(1)
    with pytest.raises(KeyboardInterrupt, match="vnetsim resume broken"):
        vnetsim.run("gaussian", **given, out="broken", progress=display)
    broken = vnetsim.load("broken")
    assert broken.status == "interrupted"
    assert 1 <= broken.rounds.height < 12
    assert "running" in display.stages
    with pytest.raises(vnetsim.InputError, match=r"has no model.safetensors: the run has not finished"):
        broken.model()
    done = vnetsim.resume("broken")
    assert done.status == "finished"
    assert results_of(done.path) == results_of(whole.path)
    assert vnetsim.resume("broken").status == "finished", "nothing to do"


def test_folders_are_known_for_what_they_are(toy, tmp_path):
    vnetsim.mobility("gaussian", traffic__end_s=60, out="traffic")
    vnetsim.run("traffic", learner=toy.name, rounds=1, out="run")
    assert type(vnetsim.load("traffic")) is vnetsim.Traffic
    assert type(vnetsim.load(tmp_path / "run")) is vnetsim.Run
    for name, message in (
        ("nothing", "nothing: not a run directory, it has no manifest.json"),
        ("", "not a run directory"),
    ):
        with pytest.raises(vnetsim.InputError, match=message):
            vnetsim.load(name)
    (tmp_path / "run" / "manifest.json").write_text("{}")
    with pytest.raises(vnetsim.InputError, match="altered or damaged"):
        vnetsim.load("run")


def test_tables_become_pandas_frames(toy):
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    run = vnetsim.run("gaussian", learner=toy.name, rounds=1, traffic__end_s=60, out="run")
    for table in (run.windows, run.participations, run.metrics):
        frame = table.to_pandas()
        assert list(frame.columns) == table.columns
        assert len(frame) == table.height > 0


def cells_of(shown: str) -> dict[str, list[str]]:
    """Return the rows of the tables in HTML by their first cell; of rows with the same one, the last."""
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", shown)]
    return {row[0]: row[1:] for row in rows if row}


def test_a_notebook_shows_page_and_headline(toy):
    run = vnetsim.run("gaussian", learner=toy.name, rounds=1, traffic__end_s=60, out="run")
    page = run.report()
    assert page.path == run.path / "report.html"
    shown = page._repr_html_()
    assert shown.startswith('<iframe srcdoc="&lt;!DOCTYPE html&gt;')
    assert shown.count('"') == shown.split("srcdoc", 1)[1].count('"'), "what is quoted holds no quote"
    shown = run._repr_html_()
    assert cells_of(shown)["Rounds"] == ["1 of 1"]
    assert shown.startswith(f"<b>{toy.name} on gaussian</b>")
    assert all(f"<p>{html.escape(note)}</p>" in shown for note in run.summary().notes)


@pytest.mark.slow
def test_a_comparison(results_of):
    more = {**TINY, "traffic.end_s": 60, "learning.linear_probe": "never"}
    given: dict[str, Any] = {"learners": ["flsimco", "fedavg"], "rounds": 2, "settings": more, "out": "study"}
    study = vnetsim.compare("gaussian", seeds=range(2), **given)
    assert type(vnetsim.load("study")) is vnetsim.Study
    assert study.report().path.name == "comparison.html"
    for name in ("values", "differences", "targets", "measures", "measure_differences"):
        file = "" if name == "values" else f"_{name}"
        table = getattr(study, name)
        assert table.equals(pl.read_parquet(study.path / f"comparison{file}.parquet")), name
        assert study.units[name].keys() == set(table.columns)
    assert study.differences.filter(metric="knn_accuracy")["seeds"].to_list() == [2]
    assert study.runs.keys() == {(arm, "", seed) for arm in ("flsimco", "fedavg") for seed in (0, 1)}
    before = results_of(study.path / "cells")
    again = vnetsim.compare("gaussian", seeds=range(3), **given)
    assert len(again.runs) == 6
    assert before.items() <= results_of(study.path / "cells").items()
    before = set(again.path.iterdir())
    shown = again._repr_html_()
    assert set(again.path.iterdir()) == before, "showing writes nothing"
    assert cells_of(shown)["Cells"] == ["6 of 6"]
    difference, interval, *_ = cells_of(shown)["flsimco \u2212 fedavg"]
    mean = 100 * again.differences.filter(metric="knn_accuracy")["difference"].item()
    assert float(difference.replace("\u2212", "-")) == pytest.approx(mean, abs=0.05)
    assert interval


def test_cells_that_fail_are_an_error(toy, monkeypatch):
    def fails(*_: object) -> None:
        raise ValueError("no <b>gradient")

    class Other(toy):  # type: ignore[misc]
        name = "other"
        train = fails

    class Third(Other):
        name = "third"

    found, find = {"toy": toy, "other": Other, "third": Third}, Kind.find
    monkeypatch.setattr(Kind, "find", lambda kind, name: found.get(name) or find(kind, name))
    with pytest.raises(vnetsim.RunError, match=r"1 of 2 cells failed, the first by: .*no <b>gradient.*; s has"):
        vnetsim.compare("gaussian", learners="toy,other", seeds=0, rounds=1, traffic__end_s=60, out="s")
    study = vnetsim.load("s")
    assert len(study.failed) == 1
    assert [run.status for run in study.runs.values()] == ["finished", "failed"]
    with pytest.raises(vnetsim.RunError):
        vnetsim.compare("gaussian", learners="other,third", seeds=np.int64(0), rounds=1, traffic__end_s=60, out="none")
    for folder, finished in (("s", "1 of 2"), ("none", "0 of 2")):
        shown = vnetsim.load(folder)._repr_html_()
        assert cells_of(shown)["Cells"] == [finished]
        assert "no &lt;b&gt;gradient" in shown
