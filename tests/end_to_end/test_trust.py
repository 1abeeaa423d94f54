"""A run directory that was received is data: nothing in it is run unless the user says so."""

import json
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from small_runs import interrupted_at

from learners.federated import FederatedLearner
from vnetsim.errors import InputError
from vnetsim.experiment import PLUGIN_KEYS
from vnetsim.plugins import Kind
from vnetsim.scenario.settings_file import load_experiment, read_experiment, to_tables
from vnetsim.scenario.trust import asks_for_trust, check_resumed
from vnetsim.storage.run_directory import RunDirectory

EXAMPLE = Path(__file__).resolve().parents[2] / "scenarios" / "fedprox.py"


class Received:
    """A run directory with a learner's file that leaves a trace when it is run."""

    def __init__(self, run: Path, folder: Path) -> None:
        self.path = folder / "received"
        shutil.copytree(run, self.path)
        self.trace, self.code = folder / "executed", self.path / "evil.py"
        self.code.write_text(f"{EXAMPLE.read_text()}\nopen({str(self.trace)!r}, 'w').close()\n")

    def change(self, **changes: Any) -> None:
        file = self.path / "experiment.toml"
        # who means to deceive makes the checksums anew
        RunDirectory(self.path).put({file.name: tomli_w.dumps(tomllib.loads(file.read_text()) | changes).encode()})

    def unfinish(self) -> None:
        file = self.path / "manifest.json"
        RunDirectory(self.path).write_json(file.name, json.loads(file.read_text()) | {"status": "interrupted"})


@pytest.fixture
def received(small_run, tmp_path, monkeypatch) -> Received:
    monkeypatch.chdir(tmp_path)
    return Received(small_run("gaussian.toml")[0], tmp_path)


COMMANDS = [("run", "received"), ("compare", "received", "--learners", "fedavg,flsimco", "--seeds", "0,1")]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@pytest.mark.parametrize("absolute", [False, True], ids=["relative", "absolute"])
def test_a_schedule_of_a_received_folder_is_not_executed(command, absolute, received, refused):
    name = f"{received.code if absolute else 'evil.py'}:FedProx"
    received.change(schedule={"learner": name, "learning": {}})
    line = refused(*command, "--out", "out")
    assert line == (
        f"vnetsim: received/experiment.toml: schedule.learner: the folder wants the code of {received.code} (FedProx) "
        "to be run; if you trust it, add --trust, or name another with --set schedule.learner.\n"
    )
    assert not received.trace.exists()
    assert not Path("out").exists()


def test_a_learner_of_a_received_folder_is_not_executed_by_run_and_is_not_needed_by_another(received, refused, cli):
    received.change(learner="evil.py:FedProx")
    assert "learner: the folder wants the code of" in refused("run", "received", "--out", "out")
    assert cli("run", "received", "--learner", "fedavg", "--rounds", "1", "--out", "other").status == 0
    assert cli("mobility", "received", "--no-report", "--out", "traffic").status == 0
    assert cli("report", "received").status == 0
    assert not received.trace.exists()


@pytest.mark.parametrize("options", [("--trust",), ("--learner", "received/evil.py:FedProx")], ids=["trust", "learner"])
def test_the_user_may_say_so(options, received, cli):
    received.change(learner="evil.py:FedProx")
    done = cli("run", "received", *options, "--set", "rounds=1", "--out", "out")
    assert (done.status, done.err) == (0, "")
    assert received.trace.exists()


def test_resume_executes_a_file_only_when_the_user_names_the_same(received, refused):
    received.unfinish()
    received.change(learner="evil.py:FedProx")
    code = f"{received.code}:FedProx"
    line = refused("resume", "received")
    assert line.endswith(
        f"learner: the folder wants the code of {received.code} (FedProx) to be run; if you trust it, "
        f"add --trust or --learner {code}.\n"
    )
    assert f"names {code}; resume goes on with the same" in refused("resume", "received", "--learner", "other.py:X")
    received.change(schedule={"learner": "more.py:Evil", "learning": {}})
    assert "schedule.learner: the folder wants the code" in refused("resume", "received", "--learner", code)
    assert not received.trace.exists()


def test_an_interrupted_run_of_ones_own_code_says_how_to_go_on(cli, small, tmp_path):
    with interrupted_at(FederatedLearner, "train", 0):
        stopped = cli("run", "gaussian", *small, "--learner", f"{EXAMPLE}:FedProx", "--out", tmp_path / "run")
    assert stopped.err.endswith(f"Go on with: vnetsim resume {tmp_path / 'run'} --trust\n")
    assert cli("resume", tmp_path / "run", "--learner", f"{EXAMPLE}:FedProx").status == 0


@pytest.mark.parametrize("way", ["relative", "inside", "through a link"])
def test_resume_starts_no_sumo_on_what_came_with_the_folder(way, received, refused, tmp_path, monkeypatch):
    def started(*_: object, **__: object) -> None:
        pytest.fail("SUMO was started")

    monkeypatch.setattr("vnetsim.traffic.sumo.source.SumoTraffic.__init__", started)
    name = "evil.sumocfg"
    for folder in (received.path, tmp_path):
        (folder / name).write_text("<configuration/>")
    (tmp_path / "link").symlink_to(tmp_path)
    names = {
        "relative": f"../{name}",
        "inside": str(received.path / name),
        "through a link": str(tmp_path / "link" / name),
    }
    received.unfinish()
    received.change(scenario=names[way])
    assert "the folder wants SUMO to be started on" in refused("resume", "received")


def test_a_received_folder_fetches_nothing(received, refused, tmp_path, monkeypatch):
    def fetched(*_: object, **options: Any) -> None:
        assert not options["download"], "it was fetched"
        raise RuntimeError("Dataset not found or corrupted. You can use download=True to download it")

    monkeypatch.setattr("torchvision.datasets.CIFAR10.__init__", fetched)
    (tmp_path / "data").mkdir()
    data = tomllib.loads((received.path / "experiment.toml").read_text())["data"]
    wanted = data | {"name": "cifar10", "download": True, "root": str(tmp_path / "data")}
    received.change(data=wanted)
    assert "data.root" in refused("run", "received", "--out", "out")
    received.unfinish()
    assert "data.root" in refused("resume", "received")


@pytest.mark.slow
def test_a_comparison_that_goes_on_takes_no_other_learner_from_a_cell(small, cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = ("compare", "gaussian", "--learners", "fedavg,flsimco", "--seeds", "0,1", *small, "--set", "rounds=1")
    assert cli(*command, "--out", "out").status == 0
    trace = tmp_path / "executed"
    (tmp_path / "evil.py").write_text(f"open({str(trace)!r}, 'w').close()\n")
    before = {path: path.read_bytes() for path in tmp_path.glob("out/cells/*/experiment.toml")}
    for index, cell in enumerate(sorted((tmp_path / "out" / "cells").iterdir())):
        run = RunDirectory(cell)
        run.write_json("manifest.json", run.manifest() | {"status": "interrupted"})
        settings = tomllib.loads((cell / "experiment.toml").read_text())
        evil = f"{tmp_path / 'evil.py'}:X"
        changes = (
            {"learner": evil},
            {"schedule": {"learner": evil, "learning": {}}},
            {"learning": settings["learning"] | {"encoder": evil}},
            {"radio": {"name": evil}},
        )
        run.put({"experiment.toml": tomli_w.dumps(settings | changes[index]).encode()})
    assert cli(*command, "--out", "out").status == 0
    assert not trace.exists()
    assert before == {path: path.read_bytes() for path in tmp_path.glob("out/cells/*/experiment.toml")}


@pytest.mark.parametrize("key", PLUGIN_KEYS)
def test_no_key_of_a_received_folder_brings_code(key, tmp_path):
    trace = tmp_path / "executed"
    (tmp_path / "evil.py").write_text(f"open({str(trace)!r}, 'w').close()\n")
    values = {("scenario",): "gaussian", ("schedule", "learner"): "fedavg"}
    settings = to_tables({**values, tuple(key.split(".")): "evil.py:X"})
    folder = RunDirectory(tmp_path)
    folder.put({"experiment.toml": tomli_w.dumps(settings).encode()})
    with pytest.raises(InputError, match=rf"experiment\.toml: {key}: the folder wants the code of"):
        read_experiment(str(tmp_path))
    file = tmp_path / "experiment.toml"
    experiment = load_experiment(str(file))
    with pytest.raises(InputError, match=rf"experiment\.toml: {key}: the folder wants the code of"):
        check_resumed(experiment, file, scenario="gaussian", learner=None)
    assert asks_for_trust(experiment)
    assert not trace.exists()


def test_every_kind_of_plug_in_is_among_them():
    modules = [module for name, module in sys.modules.items() if name.startswith("vnetsim.")]
    kinds = [one for module in modules for one in vars(module).values() if isinstance(one, Kind)]
    assert len({kind.group for kind in kinds}) >= 7
    others = {"schedule.learner", "schedule.learning.encoder", "aggregation.strategy"}  # the last is Flower's
    assert {kind.key for kind in kinds} == {*PLUGIN_KEYS} - others | {"scenario"}
