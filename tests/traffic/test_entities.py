"""XML entities never reach SUMO, whichever file declares them: its parser would expand them without end."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from vnetsim.errors import InputError
from vnetsim.experiment import Experiment
from vnetsim.traffic import open_traffic
from vnetsim.traffic.sumo.entities import refuse_entities

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"
# nine levels of ten: two gigabytes if expanded, and SUMO does expand it
BOMB = (
    '<?xml version="1.0"?>\n<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">'
    + "".join(f'<!ENTITY {chr(98 + k)} "{f"&{chr(97 + k)};" * 10}">' for k in range(9))
    + "]>\n<x>&j;</x>"
)


@pytest.mark.parametrize("what", ["configuration", "net", "rou", "add", "gz"])
def test_a_bomb_in_any_file_of_a_scenario_is_refused(what: str, tmp_path: Path) -> None:
    config = tmp_path / "bomb.sumocfg"
    bomb = tmp_path / ("bomb.xml.gz" if what == "gz" else "bomb.xml")
    bomb.write_bytes(gzip.compress(BOMB.encode()) if what == "gz" else BOMB.encode())
    text = (SCENARIOS / "urban.sumocfg").read_text()
    text = text.replace('value="intersection/', f'value="{SCENARIOS}/intersection/')
    name = {"add": "urban.add", "net": "intersection.net"}.get(what, "intersection.rou")
    text = text.replace(f"{SCENARIOS}/intersection/{name}.xml", str(bomb))
    config.write_text(BOMB if what == "configuration" else text)
    named = "bomb.sumocfg" if what == "configuration" else bomb.name
    with pytest.raises(InputError, match=rf"{named}:2: the file declares XML entities"):
        open_traffic(Experiment(scenario=str(config)))


@pytest.mark.parametrize("text", ["", "no XML", '<configuration><net-file value="', "<a/><b/>"])
def test_other_faults_are_left_to_sumo(text: str, tmp_path: Path) -> None:
    config = tmp_path / "x.sumocfg"
    config.write_text(text)
    refuse_entities(config)
    with pytest.raises(InputError, match=r"x\.sumocfg"):
        open_traffic(Experiment(scenario=str(config)))
