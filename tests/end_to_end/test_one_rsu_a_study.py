"""A study whose scenarios have no RSU chooses one, for all its traffic: differences are those of one place."""

import json
from pathlib import Path

import polars as pl
import pytest
import sumo

import vnetsim
from vnetsim.experiment import Experiment, TrafficSettings
from vnetsim.traffic import open_traffic

HOME = Path(sumo.SUMO_HOME)
SQUARE = HOME / "tools" / "game" / "square.sumocfg"
STUDY = """
scenario = "{scenario}"
seeds = "0:2"
traffic_seeds = "0:3"
settings.rounds = 1
settings.traffic.end_s = 180
[[arms]]
name = "all"
learner = "toy"
[[arms]]
name = "two"
learner = "toy"
settings.round.quorum = 2
"""


def busiest(seed: int) -> str:
    settings = TrafficSettings(repeat=False, seed=seed, end_s=180)
    traffic = open_traffic(Experiment(scenario=str(SQUARE), traffic=settings))
    traffic.close()
    return traffic.info.chosen_rsu


def places(folder: Path) -> list[str]:
    manifests = [json.loads(path.read_text()) for path in folder.glob("traffic/*/manifest.json")]
    return [rsu["id"] for manifest in manifests for rsu in manifest["rsus"]]


@pytest.mark.usefixtures("toy")
def test_seeds_share_the_rsu_of_the_first(cli, tmp_path):
    alone = [busiest(seed) for seed in range(2)]
    assert alone[0] != alone[1], "each by itself chooses its own"
    study, out = tmp_path / "study.toml", tmp_path / "out"
    study.write_text(STUDY.format(scenario=SQUARE))
    done = cli("compare", study, "--out", out, status=0)
    assert places(out) == [alone[0]] * 2
    told = f"The scenario has no RSU; took junction '{alone[0]}'"
    assert told in done.err
    assert "All traffic of this comparison has it." in done.err
    page = (out / "comparison.html").read_text()
    assert told.replace("'", "&#39;") in page
    assert page.count(f"{alone[0]} (") == 2, "the table of recorded traffic names it for both"
    vnetsim.compare(study, seeds=[1, 2], out=out, progress=False)  # the first traffic is now another
    assert places(out) == [alone[0]] * 3
    assert pl.read_parquet(out / "comparison.parquet")["cell"].n_unique() == 4
