"""Runs over several RSUs whose discs overlap, under every rule of association and policy of handover."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from small_runs import interrupted_at

from learners.classification_fedavg import ClassificationFedAvg
from vnetsim.storage.run_directory import RunDirectory

Cli = Callable[..., Any]
QUICK = (
    *("--learner", "fedavg-classification", "--set", "silos.count=10", "--set", "learning.steps=1"),
    *("--set", "data.train_images=400", "--set", "data.test_images=50", "--set", "learning.batch=4"),
    *("--set", "round.max_staleness=2", "--set", "round.quorum=3", "--set", "round.invited=10"),
    *("--set", "compute.median_flops=6.25e6", "--set", "cost.model=trained"),
)
FEW = ("--set", "learning.local_test=10")
RULES = {
    "drop": ("association.rule=nearest",),
    "forward": ("association.rule=first", "handover.longest_gap_s=20", "handover.transfer=resume"),
    "carry": ("association.rule=strongest", "association.hysteresis=3", "association.trigger_s=0.3"),
    "carry-delta": ("association.rule=nearest", "handover.longest_gap_s=5"),
    "mix": ("association.rule=nearest", "association.hysteresis=10", "rounds=2"),
    "multi": ("association.rule=strongest", "silos.count=40"),
}


def options(policy: str, topology: str) -> tuple[str, ...]:
    chosen = ("rounds=4", f"handover.policy={policy}", f"topology.kind={topology}", *RULES[policy])
    return (*QUICK, *(word for setting in chosen for word in ("--set", setting)))


@pytest.fixture(scope="module")
def recording(cli, scenarios, tmp_path_factory) -> Path:
    """Return two minutes of the corridor's traffic."""
    folder = tmp_path_factory.mktemp("corridor") / "traffic"
    return recorded(cli, scenarios, folder)


def recorded(cli: Cli, scenarios: Path, folder: Path, *more: str) -> Path:
    span = ("--set", "traffic.end_s=240", "--set", "traffic.warmup_s=120", "--set", "traffic.repeat=false")
    cli("mobility", scenarios / "corridor.sumocfg", *span, *more, "--no-report", "--out", folder, status=0)
    return folder


def runs() -> Iterator[Any]:
    """Yield policies with topologies; the quick suite has the one whose models are carried and mixed."""
    for policy, topology in (
        ("forward", "single"),
        ("multi", "hierarchical"),
        *((policy, "per-rsu") for policy in RULES),
    ):
        marks = () if policy == "mix" else pytest.mark.slow
        yield pytest.param(policy, topology, id=f"{policy}-{topology}", marks=marks)


@pytest.mark.parametrize(("policy", "topology"), [*runs()])
def test_a_killed_run_resumes_to_the_bits_and_without_training_everyone_does_the_same(
    policy, topology, cli, recording, scenarios, results_of, tmp_path
):
    whole, stopped, timing = tmp_path / "whole", tmp_path / "stopped", tmp_path / "timing"
    more = options(policy, topology)
    if policy == "multi":  # the shipped discs hardly overlap
        recording = recorded(cli, scenarios, tmp_path / "traffic", "--rsu", "all-signalised:400")
    cli("run", recording, *more, *FEW, "--out", whole, status=0)
    if policy == "multi":
        rows = RunDirectory(whole).read("participations").filter(outcome="committed")
        assert rows.n_unique(["vehicle_id", "start_s"]) < rows.height
        assert (rows.group_by("aggregator", "round").agg(pl.col("weight").sum())["weight"] - 1).abs().max() < 1e-12
    else:
        rows = RunDirectory(whole).read("handovers")
        expected = "drop" if policy == "drop" else "forward" if topology == "single" else policy
        assert expected in set(rows["policy"])
        assert (rows["fate"] == "committed").any() == (policy != "drop")
    with interrupted_at(ClassificationFedAvg, "train", 3):
        assert cli("run", recording, *more, *FEW, "--out", stopped).status == 130
    assert cli("resume", stopped).status == 0
    assert results_of(stopped) == results_of(whole)
    cli("run", recording, *more, "--timing-only", "--out", timing, status=0)
    last = RunDirectory(whole).read("rounds").group_by("aggregator").agg(pl.col("round").max())
    trained, played = (
        RunDirectory(run).read("participations").join(last, on="aggregator", suffix="_last") for run in (whole, timing)
    )
    same = pl.col("round") < pl.col("round_last")  # the last one ends who is in flight
    columns = ("aggregator", "vehicle_id", "start_s", "end_s", "outcome", "download_bytes", "upload_bytes")
    assert trained.filter(same).select(columns).equals(played.filter(same).select(columns))
