"""Runs whose RSUs aggregate by themselves: whole, stopped and gone on with, without training, and refused."""

import shlex
from pathlib import Path

import polars as pl
import pytest
import torch
from safetensors.torch import load_file
from small_runs import interrupted_at

import vnetsim
from learners.flsimco import FLSimCo
from vnetsim.storage.run_directory import RunDirectory

TWO = ("--rsu=-200,0", "--rsu=200,0", "--set", "round.quorum=2", "--set", "round.invited=4")
HIERARCHICAL = ("--set", "topology.kind=hierarchical", "--set", "backhaul.preset=cellular")
PEERS = ("--set", "topology.kind=peers", "--set", "topology.edge_rounds=2", "--set", "backhaul.latency_s=3")
WEST, EAST = "-200,0", "200,0"


def models(folder: Path) -> dict[str, dict[str, torch.Tensor]]:
    """Return the newest model of each aggregator, from the checkpoint."""
    found: dict[str, dict[str, torch.Tensor]] = {}
    for file in (folder / "checkpoint").glob("*.safetensors"):
        for key, tensor in load_file(file).items():
            name, _, tensor_name = key.rpartition("/")
            if tensor_name.startswith("model."):
                found.setdefault(name, {})[tensor_name] = tensor
    return found


@pytest.mark.parametrize(
    ("topology", "method", "call"),
    [(HIERARCHICAL, "merge", 4), pytest.param(PEERS, "aggregate", 5, marks=pytest.mark.slow)],
)
@pytest.mark.all_only
def test_a_stopped_run_goes_on_to_the_same_bits(topology, method, call, cli, small, results_of, scenarios, tmp_path):
    arguments = ("run", scenarios / "intersection.sumocfg", *small, *TWO, *topology, "--out")
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    assert cli(*arguments, whole).status == 0
    with interrupted_at(FLSimCo, method, call):
        interrupted = cli(*arguments, stopped)
    assert interrupted.status == 130
    assert " of 6 rounds" in interrupted.err
    assert cli("resume", shlex.quote(str(stopped))).status == 0
    assert results_of(stopped) == results_of(whole)

    run = vnetsim.load(whole)
    assert run.rounds.group_by("aggregator").len().sort("aggregator").rows() == [(WEST, 3), (EAST, 3)]
    merges = pl.read_parquet(whole / "merges.parquet")
    sums = merges.group_by("time_s", "aggregator", "version").agg(pl.col("weight").sum())
    assert sums["weight"].to_list() == pytest.approx([1.0] * sums.height, abs=1e-12)
    left = models(whole)
    if topology is HIERARCHICAL:  # a cloud that waits after every round leaves one model
        assert set(left) >= {WEST, EAST, "cloud"}
        for name, tensor in left["cloud"].items():
            assert torch.equal(left[WEST][name], tensor)
            assert torch.equal(left[EAST][name], tensor)
        assert run.model().round == 3
        assert run.metrics.filter(aggregator="cloud")["round"].max() == 3
    else:
        assert {run.model(rsu=name).round for name in (WEST, EAST)} == {3}
        assert not all(torch.equal(left[WEST][name], tensor) for name, tensor in left[EAST].items())
        with pytest.raises(vnetsim.InputError, match="name one of its RSUs"):
            run.model()
    wires = pl.read_parquet(whole / "backhaul.parquet")
    assert wires.filter(pl.col("up_bytes") > 0).height == 2
    page = (whole / "report.html").read_text()
    assert "2 RSUs aggregate by themselves" in page
    assert f"models of 2 RSUs{', each right before it is averaged' * (topology is HIERARCHICAL)}" in page
    assert ("models is the cloud" in page) == (topology is HIERARCHICAL)


@pytest.mark.parametrize("kind", [pytest.param("per-rsu", marks=pytest.mark.all_only), "hierarchical", "peers"])
def test_rounds_without_training_know_every_topology(kind, cli, small_timing, scenarios, tmp_path):
    wires = () if kind == "per-rsu" else ("--set", "backhaul.preset=metro-fibre")
    done = cli(
        "run", scenarios / "intersection.sumocfg", *small_timing, *TWO, "--timing-only", "--rounds", 3,
        "--set", f"topology.kind={kind}", *wires, "--out", tmp_path / kind,
    )  # fmt: skip
    assert done.status == 0, done.err
    schedule = pl.read_csv(tmp_path / kind / "schedule.csv")
    of_round = schedule.group_by("aggregator", "round").agg(pl.col("weight").sum())
    assert of_round["weight"].to_list() == pytest.approx([1.0] * of_round.height)
    assert of_round.height == 6
    assert (tmp_path / kind / "merges.parquet").exists() == (kind in ("hierarchical", "peers"))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (("topology.kind=hierarchical", "learner=cdl", "data.name=road"), "cdl"),
        (("topology.kind=per-rsu", "learner=dsgd", "data.name=road"), "dsgd"),
        (("topology.kind=per-rsu", "handover.policy=multi", "learner=fedco"), "silos of fedco keep a part"),
        (("topology.kind=peers", "topology.peers=distance", "topology.range_m=100"), "topology.range_m"),
        (
            ("topology.kind=hierarchical", "backhaul.latency_s=500", "traffic.repeat=false"),
            "no round of the cloud would close",
        ),
    ],
)
def test_what_cannot_be_is_one_line_before_anything_is_written(settings, why, cli, small_timing, scenarios, tmp_path):
    given = [part for setting in settings for part in ("--set", setting)]
    command = ("run", scenarios / "intersection.sumocfg", *small_timing, "--set", "rounds=3", *TWO)
    refused = cli(*command, *given, "--out", tmp_path / "run", status=2)
    assert why in refused.err
    assert refused.err.count("\n") == 1
    assert not RunDirectory(tmp_path / "run").holds("manifest.json")
