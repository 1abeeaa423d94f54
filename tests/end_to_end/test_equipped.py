"""``traffic.equipped``: one recording serves every share; page, manifest and terminal say it."""

from __future__ import annotations

from pathlib import Path

import vnetsim
from analysis.loading import load
from analysis.report.headline import headline
from analysis.report.possible import vehicles

STUDY = """
scenario = "gaussian"
seeds = "0:1"
[settings]
traffic = { end_s = 60, repeat = false }
[[arms]]
learner = "fedavg-classification"
[grid]
traffic.equipped = [0.3, 1.0]
"""


def test_a_study_records_once_and_runs_every_share(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY)
    study = vnetsim.compare(tmp_path / "study.toml", timing_only=True, out=tmp_path / "made")
    assert len(list((study.path / "traffic").iterdir())) == 1, "one for all shares"
    runs = [load(cell) for cell in sorted((study.path / "cells").iterdir())]
    assert [run.manifest.traffic.equipped for run in runs] == [0.3, 1.0]
    assert len({run.windows.height for run in runs}) == 1
    took_part = [set(run.participations["vehicle_id"]) for run in runs]
    assert took_part[0] < took_part[1] == set(runs[1].windows["vehicle_id"])
    assert [set(run.equipped["vehicle_id"]) for run in runs] == took_part
    assert [vehicles(run).height for run in runs] == list(map(len, took_part)), "who could take part: they alone"


def test_a_replay_has_the_same_bits_and_may_have_another_share(tmp_path: Path) -> None:
    settings = {"traffic.end_s": 60, "traffic.repeat": False, "traffic.equipped": 0.5}
    live = vnetsim.run(
        "gaussian", learner="fedavg-classification", timing_only=True, out=tmp_path / "live", settings=settings
    )
    again = vnetsim.run(live.path, timing_only=True, out=tmp_path / "again")
    for name in ("windows", "participations", "rounds"):
        assert getattr(live, name).equals(getattr(again, name)), name
    everyone = vnetsim.run(live.path, timing_only=True, out=tmp_path / "all", settings={"traffic.equipped": 1})
    assert everyone.windows.equals(live.windows)
    assert everyone.participations["vehicle_id"].n_unique() == live.windows["vehicle_id"].n_unique()
    assert "Recorded with traffic.equipped = 0.5; here it is 1." in everyone.manifest["traffic"]["notes"]
    count, drove = live.participations["vehicle_id"].n_unique(), live.windows["vehicle_id"].n_unique()
    assert dict(headline(load(live.path)))["Equipped vehicles"] == f"{count} of {drove} (traffic.equipped = 0.5)"
