"""Comparisons without training: conditions compared in who could take part, with every figure recomputed by hand."""

import itertools
import math
import re
from typing import Any

import numpy as np
import polars as pl
import pytest

import vnetsim
from vnetsim.errors import InputError
from vnetsim.runs.round_handler import Untrained

SEEDS = 6
STUDY = f"""
scenario = "gaussian"
seeds = "0:{SEEDS}"

[settings]
rounds = 1
silos.count = 10
data = {{ train_images = 400, test_images = 50 }}
traffic.end_s = 60

[[arms]]
learner = "fedavg-classification"

[grid]
traffic.range_m = [100, 250]
"""
ARM, NEAR, FAR = "fedavg-classification", "range_m=100", "range_m=250"


@pytest.fixture(scope="module")
def compared(cli, tmp_path_factory) -> tuple[vnetsim.Study, str]:
    """Two ranges, six seeds; stopped in the second cell, and gone on with."""
    folder = tmp_path_factory.mktemp("timing")
    (folder / "study.toml").write_text(STUDY)
    close_round, learners = Untrained.close_round, []

    def interrupted(self: Untrained, *arguments: Any) -> Any:
        learners.extend([self] * (self not in learners))
        if len(learners) == 2:
            raise KeyboardInterrupt
        return close_round(self, *arguments)

    command = ("compare", folder / "study.toml", "--timing-only", "--out", folder / "made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Untrained, "close_round", interrupted)
        stopped = cli(*command)
    assert stopped.status == 130
    assert "Go on with the same command" in stopped.err
    done = cli(*command, status=0)
    study = vnetsim.load(folder / "made")
    return study, done.out


def kaplan_meier_median(lasted_s: list[float], cut: list[bool]) -> float:
    """Return the median of durations of which some were cut, the last first among equals."""
    left = 1.0
    for place, (seconds, was_cut) in enumerate(sorted(zip(lasted_s, cut, strict=True))):
        left *= 1 - (not was_cut) / (len(lasted_s) - place)
        if left <= 0.5 + 1e-12:
            return seconds
    return math.inf


def by_hand(run: vnetsim.Run) -> dict[str, float]:
    """Return what is compared of a cell, from its tables."""
    windows, parts = run.windows, run.participations
    whole = windows.filter(pl.col("entry_cause") != "begin")
    lasted = (whole["exit_s"] - whole["enter_s"]).to_list()
    return {
        "covered": windows["vehicle_id"].n_unique(),
        "commits": parts.filter(outcome="committed").height,
        "dwell_s": kaplan_meier_median(lasted, (whole["exit_cause"] == "end").to_list()),
        "moved_bytes": sum(parts["download_bytes"]) + sum(parts["upload_bytes"]),
    }


def test_every_seed_has_traffic_of_its_own_and_every_range_its_windows(compared):
    study, _ = compared
    entries = {entry["folder"]: entry for entry in study.record["traffic"]}
    assert len({entry["sha256"] for entry in entries.values()}) == 2 * SEEDS
    for cell in study.record["cells"]:
        traffic = vnetsim.load(study.path / cell["traffic"])
        run = study.runs[cell["arm"], cell["condition"], cell["seed"]]
        assert entries[cell["traffic"]]["settings"]["seed"] == cell["seed"]
        assert f"range_m={traffic.manifest['rsus'][0]['range_m']:g}" == cell["condition"]
        assert run.windows.equals(traffic.windows), "all of it was played"


def test_differences_are_paired_by_seed_and_tested_by_sign_flips(compared):
    study, _ = compared
    cells = {(name, seed): by_hand(run) for (_, name, seed), run in study.runs.items()}
    for metric in cells[NEAR, 0]:
        apart = np.array([cells[NEAR, seed][metric] - cells[FAR, seed][metric] for seed in range(SEEDS)])
        flips = [abs(np.mean(apart * signs)) for signs in itertools.product((1, -1), repeat=SEEDS)]
        p_value = np.mean([one >= abs(apart.mean()) * (1 - 1e-9) for one in flips])
        (row,) = study.differences.filter(metric=metric).to_dicts()
        assert (row["compared"], row["within"], row["first"], row["second"]) == ("conditions", ARM, NEAR, FAR)
        assert row["difference"] == pytest.approx(apart.mean(), rel=1e-12)
        assert row["p"] == pytest.approx(p_value)
        assert row["verdict"] == (FAR if p_value <= 0.05 and apart.mean() < 0 else "")
        assert row["low"] <= apart.mean() <= row["high"]


def test_the_page_and_the_terminal_say_it(compared):
    study, out = compared
    page = (study.path / "comparison.html").read_text()
    assert re.search(rf"Median dwell: {FAR} is higher than {NEAR} by [\d.]+ s \(95 % interval", page)
    assert "Every seed has traffic of its own" in page
    assert re.findall(r'id="figure-((?:conditions|differences)[^"]*)"', page)[:2] == [
        "differences-all",  # of commits
        "conditions-1-committed-vehicles",
    ]
    assert "Differences in commits" in page.partition('id="overview"')[0], "what was asked leads"
    for words in ("Round by round", "untrained", "of 1,000,000", "ended before all rounds"):
        assert words not in page, words
    assert "Vehicles that committed (%): mean" in out
    assert "Differences are paired by seed" in out


def test_one_learner_under_one_condition_is_compared_only_without_training(tmp_path):
    (tmp_path / "study.toml").write_text(STUDY)
    (tmp_path / "one.toml").write_text(STUDY.partition("[grid]")[0])
    with pytest.raises(InputError, match="name at least two"):
        vnetsim.compare(tmp_path / "one.toml", out=tmp_path / "made")
    with pytest.raises(InputError, match=r"selection\.name: 'oort' chooses vehicles by their training losses"):
        vnetsim.compare(tmp_path / "study.toml", timing_only=True, selection="oort", out=tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_without_training_images_need_not_be_there(cli, tmp_path):
    """Training without them is refused once, before any traffic is recorded."""
    text = STUDY.partition("[grid]")[0].replace(f"0:{SEEDS}", "0:1")
    text = text.replace("train_images = 400, test_images = 50", 'name = "folder"')
    (tmp_path / "study.toml").write_text(text + f"[[arms]]\nname = 'b'\nlearner = '{ARM}'\nlearning.steps = 3\n")
    command = ("compare", tmp_path / "study.toml", "--out", tmp_path / "made")
    refused = cli(*command)
    assert refused.err.startswith("vnetsim: data.root: folder needs a folder")
    assert (refused.status, refused.err.count("\n"), (tmp_path / "made").exists()) == (2, 1, False)
    cli(*command, "--timing-only", status=0)
    page = (tmp_path / "made" / "comparison.html").read_text()
    assert "no image of folder was read; payload and work are those of an assumed 10,000 images of 10 classes" in page
    assert not list(tmp_path.rglob("partition.csv"))
