"""Every kill, power cut, full disk and failing disk at every change: recordings, runs, reports."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from commands import MOBILITY, RUN, Command, run_of_scaffold
from small_runs import SCENARIOS, SMALL

from analysis.report import page
from analysis.report.page import build_report

COMMANDS = {"mobility": (MOBILITY, 30), "run": (RUN, 100)}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_stop_at_every_change(name, killed_everywhere):
    command, least = COMMANDS[name]
    assert killed_everywhere(command) > least


@pytest.mark.slow
@pytest.mark.parametrize("how", ["full", "error"])
@pytest.mark.parametrize("name", COMMANDS)
def test_an_error_at_every_change(name, how, failed_everywhere):
    command, least = COMMANDS[name]
    assert failed_everywhere(how, command) > least


@pytest.fixture
def report(tmp_path, monkeypatch) -> Command:
    """The report of a run that lies there; its figures are drawn once."""
    made = tmp_path / "made"
    RUN.start(made)
    drawn = page.sections(page.load(made))
    monkeypatch.setattr(page, "sections", lambda _: drawn)

    def start(folder: Path) -> None:
        shutil.copytree(made, folder)
        build_report(folder)

    return Command(start=start, again=build_report)


def test_a_stop_at_every_change_of_a_report(report, killed_everywhere):
    assert killed_everywhere(report) > 20


@pytest.mark.parametrize("how", ["full", "error"])
def test_an_error_at_every_change_of_a_report(report, how, failed_everywhere):
    assert failed_everywhere(how, report) > 20


@pytest.mark.slow
def test_a_stop_at_every_change_of_a_learner_with_state_in_silos(killed_everywhere, tmp_path):
    assert killed_everywhere(run_of_scaffold(tmp_path)) > 100


@pytest.mark.slow
def test_an_error_at_every_change_of_a_learner_with_state_in_silos(failed_everywhere, tmp_path):
    assert failed_everywhere("both", run_of_scaffold(tmp_path)) > 100


STRUCK = """
import os, signal, sys
from learners.flsimco import FLSimCo
from small_runs import execute
from vnetsim.runs import session

session.SAFE_EVERY_S = 0.0
method, call, *arguments = sys.argv[1:]
true, calls = getattr(FLSimCo, method), []

def struck(*given, **named):
    calls.append(method)
    if len(calls) == int(call):
        os.kill(os.getpid(), signal.SIGKILL)
    return true(*given, **named)

setattr(FLSimCo, method, struck)
done = execute(*arguments)
sys.exit(f"{done.status}: {done.err}" if done.status else 0)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "method", "call"), [("carry", "merge", 5), ("forward", "aggregate", 4)])
def test_a_hierarchy_killed_in_a_round_goes_on_to_the_same_bits(policy, method, call, results_of, tmp_path):
    """Between the cloud's average and its copies at the RSUs, and when an RSU has trained what others sent on."""
    settings = (
        "topology.kind=hierarchical", "topology.edge_rounds=2", "backhaul.preset=cellular", "association.rule=nearest",
        f"handover.policy={policy}", "round.quorum=3", "round.invited=8", "round.max_staleness=2", "rounds=5",
        "compute.median_flops=5e7",
    )  # fmt: skip
    options = [*SMALL, "--rsu=-60,0", "--rsu=60,0", *(word for one in settings for word in ("--set", one))]

    def run(at: int, *arguments: object) -> int:
        command = [sys.executable, "-c", STRUCK, method, str(at), *map(str, arguments)]
        path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
        return subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=False).returncode

    begin = ("run", SCENARIOS / "intersection.sumocfg", *options, "--out")
    assert run(0, *begin, tmp_path / "whole") == 0
    assert run(call, *begin, tmp_path / "killed") == -signal.SIGKILL
    assert len(list((tmp_path / "killed" / "checkpoint").glob("aggregator-*"))) > 0, "rounds were saved before"
    assert run(0, "resume", tmp_path / "killed") == 0
    whole, killed = results_of(tmp_path / "whole"), results_of(tmp_path / "killed")
    assert [name for name in whole.keys() | killed.keys() if whole.get(name) != killed.get(name)] == []
    handed = pl.read_parquet(tmp_path / "whole" / "handovers.parquet")
    assert handed.filter(policy=policy, fate="committed").height > 0
