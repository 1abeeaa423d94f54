"""Runs whose images are what their vehicles see: silos of live traffic and of its replay, and traffic without a net."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from own_frames import PLUGIN, own_frames

from learners.data.driven import Driven
from vnetsim.storage.run_directory import RunDirectory

__all__ = ["own_frames"]

DRIVE = ("--set", "data.name=drive")


@pytest.fixture(scope="module")
def live(cli, small_timing, scenarios, tmp_path_factory):
    folder = tmp_path_factory.mktemp("driven") / "live"
    options = (*small_timing, *DRIVE, "--learner", "fedefm", "--timing-only", "--out", folder)
    done = cli("run", scenarios / "intersection.sumocfg", *options)
    assert done.status == 0, done.err
    return folder


def test_a_silo_is_what_the_vehicles_that_carry_it_saw(live):
    seen = pl.read_csv(live / "partition.csv").filter(split="train")
    assert seen.height == 400
    assert seen["silo"].null_count() == 0
    carried = pl.read_parquet(live / "participations.parquet").select("vehicle_id", "silo").unique()
    both = seen.with_columns(vehicle_id=pl.col("image").str.extract("(.*)@")).join(carried, on="vehicle_id")
    assert both.height > 300
    assert both["silo"].equals(both["silo_right"], check_dtypes=False)
    windows = pl.read_parquet(live / "windows.parquet").select("vehicle_id", "enter_s", "exit_s")
    times = both.with_columns(time_s=pl.col("image").str.extract("@(.*)").cast(pl.Float64)).join(
        windows, on="vehicle_id"
    )
    assert times.filter(pl.col("time_s").is_between("enter_s", "exit_s"))["image"].n_unique() == both.height


def test_a_run_without_training_draws_nothing(live):
    assert not (live / "samples.npz").exists()
    assert 'type="application/json">' not in (live / "report.html").read_text()


def test_a_replay_sees_the_same_and_trains(live, cli, small, tmp_path):
    options = (*small[: small.index("traffic.end_s=120") - 1], *DRIVE, "--set", "rounds=1", "--learner", "fedefm")
    options = (*options, "--set", "cost.model=trained", "--set", "compute.preset=ecu")
    done = cli("run", live, *options, "--out", tmp_path / "b")
    assert done.status == 0, done.err
    assert (tmp_path / "b" / "partition.csv").read_bytes() == (live / "partition.csv").read_bytes()
    text = (tmp_path / "b" / "report.html").read_text()
    assert 'id="figure-paths"' in text
    assert 'id="figure-seen"' in text
    with np.load(tmp_path / "b" / "samples.npz") as arrays:
        assert len(arrays["place_label"]) == 400
        shown, times = set(arrays["path_vehicles"].tolist()), arrays["path_time_s"]
    part = pl.read_parquet(tmp_path / "b" / "participations.parquet")
    invited = part.filter(pl.col("outcome") != "not_selected")["vehicle_id"]
    assert len(set(invited) & shown) >= min(len(set(invited)), 24) - 2 > 0, "but for those that hardly moved"
    assert times.max() <= json.loads((tmp_path / "b" / "manifest.json").read_text())["time_s"]


def test_a_run_trains_on_pictures_of_ones_own_by_edge_and_position(live, own_frames, cli, small, tmp_path):
    own = ("--data", PLUGIN, "--set", f"data.file={own_frames}", "--set", "data.partition=vehicle")
    options = (*small[: small.index("traffic.end_s=120") - 1], *own, "--set", "rounds=1", "--learner", "fedefm")
    options = (*options, "--set", "cost.model=trained", "--set", "compute.preset=ecu")
    done = cli("run", live, *options, "--out", tmp_path / "b")
    assert done.status == 0, done.err
    dealt = pl.read_csv(tmp_path / "b" / "partition.csv")
    assert set(dealt["class"]) == {"blue", "green", "red"}
    seen, drawn = (
        set(pl.read_csv(run / "partition.csv")["image"].str.extract("(.*)@")) for run in (tmp_path / "b", live)
    )
    assert len(seen & drawn) > 0.7 * len(seen), "the same vehicles"
    inputs = RunDirectory(tmp_path / "b").manifest()["inputs"]
    assert {Path(name).name for name in inputs} >= {"index.csv", "own_frames.py", "intersection.net.xml"}


def test_a_run_whose_frames_to_show_fail_ends_all_the_same(live, own_frames, cli, small, tmp_path, monkeypatch):
    def fail(*_):
        raise ValueError("a view's fault")

    monkeypatch.setattr(Driven, "_make_film", fail)
    own = ("--data", PLUGIN, "--set", f"data.file={own_frames}", "--set", "data.partition=vehicle")
    options = (*small[: small.index("traffic.end_s=120") - 1], *own, "--set", "rounds=1", "--learner", "fedefm")
    options = (*options, "--set", "cost.model=trained", "--set", "compute.preset=ecu")
    done = cli("run", live, *options, "--out", tmp_path / "b")
    assert done.status == 0, done.err
    assert "The page shows no frames of vehicles: data set 'own-frames' failed for the frames of" in done.err
    assert "ValueError: a view's fault" in done.err
    assert (tmp_path / "b" / "model.safetensors").exists()
    assert 'id="figure-seen"' in (tmp_path / "b" / "report.html").read_text()


def test_traffic_without_a_net_is_refused_in_one_line(cli, small, scenarios, tmp_path):
    done = cli("run", scenarios / "gaussian.toml", *small, *DRIVE, "--out", tmp_path / "a")
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("vnetsim: data.name: 'drive' is drawn from the roads on which vehicles drive, and this ")
    assert len(done.err.splitlines()) == 1
    assert not (tmp_path / "a").exists()
