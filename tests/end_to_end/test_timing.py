"""Rounds without training: the participations that training has, who could take part, and a schedule to replay."""

import re
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from small_runs import interrupted_at

import vnetsim
from analysis.loading import load
from analysis.report.headline import headline
from analysis.report.possible import needed, survival_panel, vehicles
from analysis.style import styled
from vnetsim.errors import InputError
from vnetsim.runs.round_handler import Untrained

ROUNDS = 3
LEARNED = ("weight", "loss")


@pytest.fixture(scope="module")
def timed(cli, small_timing, scenarios, tmp_path_factory) -> Path:
    """All rounds of a small scenario, by the command line."""
    folder = tmp_path_factory.mktemp("timing") / "timed"
    done = cli("run", scenarios / "gaussian.toml", *small_timing, "--timing-only", "--out", folder)
    assert (done.status, done.err) == (0, "")
    assert "Covered long enough" in done.out
    return folder


def test_it_is_what_training_would_have_been(timed, small_run):
    trained = vnetsim.load(small_run("gaussian.toml")[0])
    run = vnetsim.load(timed)
    assert run.rounds.height > ROUNDS, "all of the traffic, not the rounds of a training run"
    both = [one.participations.filter(pl.col("round") < ROUNDS).drop(LEARNED) for one in (run, trained)]
    assert both[0].equals(both[1])
    assert run.metrics.is_empty()
    assert not (timed / "model.safetensors").exists()


def test_a_part_of_it_goes_on_to_the_same_bits(timed, cli, small_timing, scenarios, tmp_path):
    with interrupted_at(Untrained, "close_round", 3):
        options = (*small_timing, "--timing-only", "--out", tmp_path / "a")
        done = cli("run", scenarios / "gaussian.toml", *options)
    assert done.status == 130
    assert f"interrupted after 3 rounds. Go on with: vnetsim resume {tmp_path / 'a'}" in done.err
    assert cli("resume", tmp_path / "a").status == 0
    for name in ("participations.parquet", "rounds.parquet", "windows.parquet", "schedule.csv"):
        assert (tmp_path / "a" / name).read_bytes() == (timed / name).read_bytes(), name


def test_a_learner_that_replays_it_has_as_many_rounds(timed):
    played = vnetsim.load(timed).rounds.height
    experiment = vnetsim.Experiment(timed, learner="fedavg", settings={"schedule.learner": "flsimco"})
    assert experiment.rounds == played
    assert vnetsim.Experiment(timed, rounds=2).rounds == 2


def test_the_papers_model_on_the_clock_takes_what_training_it_would(cli, small_timing, scenarios, tmp_path):
    """Times, bytes, outcomes and joules are those of the large encoder, while the small one stands there."""
    options = (*small_timing, "--timing-only", "--rounds", "4", "--set", "compute.preset=agx-orin")
    charged_as = ("cost.model=resnet18", "cost.images=8")  # as many as are trained
    for name, settings in (("charged", charged_as), ("trained", ("cost.model=trained", "learning.encoder=resnet18"))):
        given = [word for one in settings for word in ("--set", one)]
        done = cli("run", scenarios / "gaussian.toml", *options, *given, "--out", tmp_path / name, status=0)
        clock = "Timed as resnet18 (45.0 MB, 8 images a local training)."
        told = " ".join(done.out.replace("\u202f", " ").split())
        assert (clock in told) == (name == "charged")
    charged, trained = (vnetsim.load(tmp_path / name) for name in ("charged", "trained"))
    assert charged.participations.equals(trained.participations)
    assert charged.participations["train_j"].max() == pytest.approx(60 * charged.participations["train_s"].max())  # type: ignore[operator,type-var]
    assert charged.learner["encoder"] == "small"


def test_a_model_on_the_clock_without_bytes_or_a_learner_that_says_nothing_of_its_own_is_refused(
    scenarios, tmp_path, toy
):
    def refuse(says: str, learner: str = "flsimco", **cost: Any) -> None:
        given: dict[str, Any] = {"learner": learner, "settings": {"cost": cost}, "out": tmp_path / "a"}
        with pytest.raises(InputError, match=says):
            vnetsim.run(scenarios / "gaussian.toml", timing_only=True, **given)
        assert not (tmp_path / "a" / "participations.parquet").exists()

    refuse(r"cost\.model: 'vgg11' is none of trained, .*, resnet18-half; give its cost\.model_bytes and", model="vgg11")
    refuse(r"cost\.model: 'vgg11' is none of", model="vgg11", model_bytes=500_000_000)
    refuse(r"cost\.model: 'resnet18' brings its own bytes", model="resnet18", image_flop=1e9)
    refuse(r"cost\.model: 'trained' brings its own bytes", model="trained", model_bytes=10)
    refuse(r"cost\.model: the learner toy does not say of what model", toy.name, model="resnet18")


def test_choosing_by_losses_is_refused(scenarios, tmp_path):
    with pytest.raises(InputError, match=r"selection\.name: 'oort' chooses vehicles by their training losses"):
        vnetsim.run(scenarios / "gaussian.toml", timing_only=True, selection="oort", out=tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_the_schedule_has_every_update_once_and_weights_that_sum_to_one(timed, small_run):
    run, trained = vnetsim.load(timed), vnetsim.load(small_run("gaussian.toml")[0])
    committed = run.participations.filter(outcome="committed")
    written = pl.read_csv(timed / "schedule.csv")
    assert written.rows() == run.schedule.rows()
    assert sorted(zip(written["round"], written["vehicle_id"], strict=True)) == sorted(
        zip(committed["round"], committed["vehicle_id"], strict=True)
    )
    sums = written.group_by("round").agg(pl.col("weight").sum())["weight"]
    assert sums.to_numpy() == pytest.approx(np.ones(len(sums)), abs=1e-12)
    learned = trained.participations.filter(outcome="committed").sort("round", "participation")
    assert trained.schedule["weight"].to_list() == learned["weight"].to_list()


def test_the_shipped_function_replays_it(timed, tmp_path):
    schedule = tmp_path / "schedule.csv"
    pl.read_csv(timed / "schedule.csv").filter(pl.col("round") < 12).write_csv(schedule)
    names = runpy.run_path(str(Path(__file__).parents[2] / "scenarios" / "schedules" / "replay.py"))
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(60) % 3
    images = torch.nn.functional.one_hot(labels, 3).float() + 0.1 * torch.randn(60, 3, generator=generator)
    silos = {silo: (images[silo::10], labels[silo::10]) for silo in range(10)}
    start = torch.nn.Linear(3, 3)
    kept = names["replay"](schedule, start, silos, lr=0.0)
    assert torch.allclose(kept["weight"], start.weight, atol=1e-6), "weights sum to 1 in every round"
    model = torch.nn.Linear(3, 3)
    model.load_state_dict(names["replay"](schedule, model, silos, lr=0.5))
    assert (model(images).argmax(1) == labels).float().mean() > 0.95


def test_who_could_take_part_by_hand(timed):
    data = load(timed)
    found = needed(data)
    begun = data.participations.filter(pl.col("outcome") != "not_selected")
    took = sorted(zip(begun["end_s"] - begun["start_s"], begun["outcome"] != "committed", strict=True))
    left, median = 1.0, None
    for place, (seconds, cut) in enumerate(took):  # who is cut at a time is still there at that time
        left *= 1 - (not cut) / (len(took) - place)
        if left <= 0.5 and median is None:
            median = seconds
    assert found.median_s == pytest.approx(median)
    rows = vehicles(data)
    assert rows.height == data.windows["vehicle_id"].n_unique()
    assert int(rows["committed"].sum()) == begun.filter(outcome="committed")["vehicle_id"].n_unique()
    page = (timed / "report.html").read_text()
    assert "Who could take part" in page
    assert 'id="figure-failed"' in page
    assert 'id="figure-survival"' in page
    (share,) = re.findall(r"(\d+)\u202f% of the windows last longer", page)
    assert dict(headline(data))["Covered long enough"].startswith(f"{share}\u202f% (of {rows.height} vehicles")


def test_a_report_needs_no_window_that_was_seen_to_its_end(timed):
    data = load(timed)
    all_cut = replace(data, windows=data.windows.with_columns(exit_cause=pl.lit("end")))
    with styled():
        assert survival_panel(all_cut).caption.startswith("100\u202f% of the windows last longer")
    none_yet = replace(data, windows=data.windows.clear())  # of a run that was stopped before the first closed
    assert "Covered long enough" not in dict(headline(none_yet))
