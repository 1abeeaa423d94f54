"""Aggregation rules on the command line: used, recorded and resumed."""

from pathlib import Path
from typing import Any

import pytest
from small_runs import interrupted_at

from learners.state.privacy import PrivateMean
from vnetsim.storage.run_directory import RunDirectory

EXAMPLE = f"aggregation.name={Path(__file__).resolve().parents[2] / 'scenarios' / 'plugins' / 'half_life.py'}:HalfLife"
ASYNCHRONOUS = (
    *("--set", "round.quorum=1", "--set", "round.invited=4", "--set", "round.max_staleness=9", "--rounds", "6"),
    *("--set", "compute.median_flops=3e7", "--set", "source.arrivals_per_s=2"),
)


@pytest.fixture(scope="module")
def run_of(cli, scenarios, tmp_path_factory, small) -> Any:
    """Return a maker of asynchronous runs, by options."""

    def make(*options: str) -> RunDirectory:
        folder = tmp_path_factory.mktemp("run") / "run"
        command = ("run", scenarios / "gaussian.toml", "--learner", "fedavg", *small, *ASYNCHRONOUS)
        done = cli(*command, *options, "--out", folder)
        assert (done.status, done.err) == (0, "")
        return RunDirectory(folder)

    return make


def test_a_rule_is_used_recorded_and_resumed(run_of, cli, refused, results_of):
    """The example of a file: refused from a folder that names it unless that is trusted."""
    sync = run_of()
    run = run_of("--set", EXAMPLE, "--set", "aggregation.half_life=3")
    record = run.manifest()["plugins"]["aggregation"]
    assert record == {"name": "half-life", "source": "an example", "settings": {"mixing": 0.5, "half_life": 3.0}}
    assert "half_life.py" in {Path(name).name for name in run.manifest()["inputs"]}
    columns = ["round", "base_round", "vehicle_id", "outcome"]
    rows = run.read("participations").select(columns)
    # who takes part does not depend on what is learnt
    assert rows.equals(sync.read("participations").select(columns))
    committed = rows.filter(rows["outcome"] == "committed")
    assert committed.height == 6
    assert (committed["round"] > committed["base_round"]).any()
    results = [one.read("metrics").filter(one.read("metrics")["name"] == "loss")["value"] for one in (sync, run)]
    assert results[0].to_list() != results[1].to_list()
    assert "aggregation.name: the folder wants the code of" in refused("run", run.path, "--out", run.path.parent / "no")
    before = results_of(run.path)
    run.write_json("manifest.json", run.manifest() | {"status": "interrupted"})
    assert cli("resume", run.path, "--trust").status == 0
    after = results_of(run.path)
    assert {name for name in before if before[name] != after[name]} == set()


@pytest.mark.all_only
def test_a_private_run_says_so_and_is_resumed_to_the_same_bits(run_of, cli, scenarios, small, tmp_path):
    dp = ("--set", "learning.dp.clip=1", "--set", "learning.dp.noise_multiplier=2")
    whole = run_of(*dp)
    command = ("run", scenarios / "gaussian.toml", "--learner", "fedavg", *small, *ASYNCHRONOUS, *dp)
    with interrupted_at(PrivateMean, "mean", 3):
        assert cli(*command, "--out", tmp_path / "run").status == 130
    done = cli("resume", tmp_path / "run")
    assert done.status == 0
    resumed = RunDirectory(tmp_path / "run")
    for name in ("model.safetensors", "metrics.parquet", "participations.parquet"):
        assert resumed.read_bytes(name) == whole.read_bytes(name), name
    averaged = resumed.read("participations").drop_nulls("weight")
    fact = resumed.manifest()["learner"]["facts"]["Privacy"]
    assert f"(used {averaged.group_by('vehicle_id').len()['len'].max()} times) if each vehicle" in fact
    assert f"(used {averaged.group_by('silo').len()['len'].max()} times) if each silo" in fact
    assert "epsilon at delta = 1e-05" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ("selection.name=oort", "learning.dp: 'oort' chooses vehicles by what they trained"),
        ("silos.by=place", "learning.dp: with silos.by = 'place' a vehicle also trains on images of silos"),
    ],
)
def test_what_epsilon_does_not_count_is_refused_with_dp(refused, small, tmp_path, setting, line):
    options = ("--learner", "fedavg", *small, "--set", "learning.dp.clip=1", "--set", setting)
    assert line in refused("run", "gaussian", *options, "--out", tmp_path / "run")
