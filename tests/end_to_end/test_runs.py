"""Whole runs of the shipped scenarios: what they leave, and that the seed alone decides it."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.numpy import load_file

from learners.tasks.contrastive import ContrastiveTask
from vnetsim import __version__
from vnetsim.storage.rows import OUTCOMES
from vnetsim.storage.run_directory import RunDirectory
from vnetsim.storage.tables import TABLES

SHIPPED = ("intersection.sumocfg", "expressway.sumocfg", "gaussian.toml")


@pytest.fixture(params=SHIPPED)
def run(request, small_run) -> RunDirectory:
    return RunDirectory(small_run(request.param)[0])


def test_the_terminal_ends_with_headline_and_report(small_run):
    for scenario in SHIPPED:
        folder, done = small_run(scenario)
        title, *table = done.out.splitlines()
        assert title.startswith(f"flsimco on {'gaussian' if scenario == 'gaussian.toml' else scenario}")
        assert any("Rounds" in line and "3 of 3" in line for line in table)
        assert any("kNN accuracy" in line and "%" in line for line in table)
        assert table[-1] == f"report: {folder / 'report.html'}"
        assert (folder / "report.html").read_text().startswith("<!DOCTYPE html>")
        assert done.err == ""


def test_every_table_is_there_with_its_columns(run):
    assert not run.has("exchanges")  # this learner's vehicles have none
    where_any = {"exchanges", "handovers", "merges", "hostile"}
    tables = {name: run.read(name) for name in TABLES if name not in where_any}  # a missing or foreign column raises
    assert all(tables[name].height for name in tables if name != "map")
    assert tables["map"].is_empty() == (run.manifest()["traffic"]["kind"] == "gaussian")


def test_participations_rounds_and_windows_agree(run):
    parts, rounds, windows = (run.read(name) for name in ("participations", "rounds", "windows"))
    assert rounds["round"].to_list() == [0, 1, 2]
    assert set(parts["outcome"]) <= set(OUTCOMES)
    committed = parts.filter(pl.col("outcome") == "committed")
    assert committed.height == rounds["committed"].sum() > 0
    assert (rounds["rejected"] == 0).all()
    assert parts["participation"].to_list() == list(range(parts.height))
    invited = parts.filter(pl.col("outcome") != "not_selected")
    assert invited.height == rounds["invited"].sum()
    assert committed["weight"].is_not_null().all()
    assert parts.filter(pl.col("outcome") != "committed")["weight"].is_null().all()
    sums = committed.group_by("round").agg(pl.col("weight").sum(), pl.col("loss").mean()).sort("round")
    np.testing.assert_allclose(sums["weight"], 1, atol=1e-12)
    np.testing.assert_allclose(sums["loss"], rounds["loss"], rtol=1e-12)
    key = ["vehicle_id", "rsu_id", "enter_s"]
    assert parts.join(windows, on=key, how="anti").is_empty()
    assert windows.join(parts, on=key, how="anti").is_empty()


def test_metrics_are_of_the_declared_series_and_begin_with_the_untrained_model(run):
    metrics = run.read("metrics")
    assert set(metrics["name"]) == {series["name"] for series in run.manifest()["series"]}
    assert metrics.filter(pl.col("name") == "knn_accuracy")["round"].to_list() == [0, 1, 2, 3]
    assert metrics.filter(pl.col("name") == "loss")["value"].to_list() == pytest.approx(run.read("rounds")["loss"])


def test_the_manifest_says_what_made_the_run(run):
    manifest = run.manifest()
    assert (manifest["kind"], manifest["status"], manifest["ended_by"]) == ("run", "finished", "rounds")
    assert (manifest["vnetsim"], manifest["seed"]) == (__version__, 0)
    assert manifest["learner"]["name"] == "flsimco"
    assert manifest["learner"]["encoder"] == "small"
    assert manifest["learner"]["settings"]["lr"] == 0.06
    assert manifest["device"]["name"] == "cpu"
    assert {"torch", "numpy", "eclipse-sumo"} <= manifest["packages"].keys()
    assert manifest["rsus"][0]["range_m"] > 0
    assert manifest["radio"]["cap_bps"] == 102e6
    assert 0 < manifest["radio"]["links"]["capped"] <= manifest["radio"]["links"]["looked_up"]
    assert manifest["radio"]["sidelinks"]["looked_up"] == 0
    assert manifest["wall_s"].keys() >= {"data", "training", "writing"}
    assert manifest["time_s"] == run.read("rounds")["close_s"][-1]
    if manifest["traffic"]["kind"] == "sumo":
        assert manifest["traffic"]["command"][:2] == ["sumo", "-c"]
        assert manifest["traffic"]["version"].startswith("SUMO ")
        assert {Path(name).suffixes[-2:][0] for name in manifest["inputs"]} == {".sumocfg", ".net", ".rou", ".add"}


def test_the_weights_are_those_of_the_last_checkpoint(run):
    model = load_file(run.path / "model.safetensors")
    state = load_file(next((run.path / "checkpoint").glob("state-*.safetensors")))
    assert sum(values.size for values in model.values()) >= run.manifest()["learner"]["parameters"]
    assert all(np.isfinite(values).all() for values in model.values())
    assert all(np.array_equal(values, state[f"model.{name}"]) for name, values in model.items())


def test_samples_and_silos(run):
    with np.load(run.path / "samples.npz", allow_pickle=False) as samples:
        assert samples["images"].shape == (4, 8, 32, 32, 3)
        assert samples["kernels_px"][0] == 0
        assert (np.diff(samples["speeds_mps"]) >= 0).all()
    assert run.read("silos")["images"].sum() == 400


def test_the_end_of_the_traffic_is_said(cli, toy, tmp_path):
    once = ("--set", "traffic.repeat=false", "--set", "traffic.end_s=30", "--set", "round.invited=20")
    once += ("--set", "round.quorum=3", "--set", "evaluate_every=400")
    done = cli("run", "gaussian", "--learner", toy.name, "--rounds", "500", *once, "--out", tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    finished = run.read("rounds").height
    assert done.status == 0
    assert done.err == f"vnetsim: the traffic ended after {finished} of 500 rounds.\n"
    assert 0 < finished < 500
    assert (run.manifest()["ended_by"], run.manifest()["status"]) == ("traffic", "finished")
    assert run.read("rounds")["closed_by"][-1] != "traffic_end", "the last round was not known to be the last"
    assert run.read("metrics").filter(name="distance")["round"].to_list() == [0, finished]


def test_a_partition_file_gives_the_bits_of_the_run_that_wrote_it(
    small_run, results_of, cli, small, scenarios, tmp_path
):
    first, again = small_run("gaussian.toml")[0], tmp_path / "again"
    (tmp_path / "mine.csv").write_bytes((first / "partition.csv").read_bytes())
    given = ("--set", f"data.partition={tmp_path / 'mine.csv'}")
    assert cli("run", scenarios / "gaussian.toml", *small, *given, "--out", again).status == 0
    expected, found = results_of(first), results_of(again)
    assert {name for name in expected | found if expected.get(name) != found.get(name)} == {"experiment.toml"}
    inputs = RunDirectory(again).manifest()["inputs"]
    assert inputs[str(tmp_path / "mine.csv")] == hashlib.sha256(expected["partition.csv"]).hexdigest()
    (tmp_path / "mine.csv").write_text("split,image,label,class,silo\ntrain,0,,,10\n")
    refused = cli("run", scenarios / "gaussian.toml", *small, *given, "--out", tmp_path / "none")
    assert (refused.status, refused.err.count("\n")) == (2, 1)
    assert f"{tmp_path / 'mine.csv'}:2: silo is '10', expected 0 to 9" in refused.err
    assert not (tmp_path / "none").exists()


def test_the_seed_leaves_the_scenarios_own_traffic_alone(small_run):
    """A .sumocfg has a seed of its own: --seed 1 draws other radio and silos on the same traffic."""
    first, other = (RunDirectory(small_run("intersection.sumocfg", *seed)[0]) for seed in ((), ("--seed", "1")))
    shared = ["vehicle_id", "enter_s", "entry_speed_mps", "entry_edge"]
    end_s = min(run.manifest()["time_s"] for run in (first, other))
    windows = [
        run.read("windows").filter(pl.col("enter_s") < end_s).select(shared).sort(shared) for run in (first, other)
    ]
    assert windows[0].height > 3
    assert windows[0].equals(windows[1])
    assert not first.read("participations").equals(other.read("participations"))
    assert other.manifest()["seed"] == 1


@pytest.mark.slow
def test_arithmetic_is_set_for_the_run_recorded_and_put_back(small_run, monkeypatch):
    seen: list[bool] = []
    evaluate = ContrastiveTask.evaluate

    def watched(self: Any, state: Any, *, final: bool) -> Any:
        seen.append(torch.are_deterministic_algorithms_enabled() and torch.backends.cuda.matmul.allow_tf32)
        return evaluate(self, state, final=final)

    monkeypatch.setattr(ContrastiveTask, "evaluate", watched)
    both = ("--set", "arithmetic.deterministic=true", "--set", "arithmetic.tf32=true")
    plain, changed = (small_run("gaussian.toml", *options)[0] for options in ((), both))
    assert seen[-4:] == [True] * 4
    assert not any(seen[:-4])
    assert not torch.are_deterministic_algorithms_enabled()
    assert not torch.backends.cuda.matmul.allow_tf32
    devices = [json.loads((run / "manifest.json").read_text())["device"] for run in (plain, changed)]
    assert devices[0] == {**devices[1], "tf32": False, "deterministic": False}
    assert devices[1]["tf32"] is devices[1]["deterministic"] is True
    models = [(run / "model.safetensors").read_bytes() for run in (plain, changed)]
    assert models[0] == models[1], "on a CPU neither changes a bit"
