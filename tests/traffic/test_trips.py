"""Means of SUMO's own tripinfo and edge data: read, recorded, and compared between conditions."""

import gzip
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

import vnetsim
from vnetsim.traffic.sumo.trips import traffic_outcomes

TRIPS = """<tripinfos>
  <tripinfo id="a" arrival="30" duration="20" waitingTime="1" timeLoss="3" departDelay="0.5" vaporized=""/>
  <tripinfo id="b" arrival="1:00:00:50.5" duration="00:00:40" waitingTime="3" timeLoss="00:00:07" departDelay="x"/>
  <tripinfo id="under way" arrival="-1.00" duration="900" waitingTime="900" timeLoss="900"/>
  <tripinfo id="removed" arrival="40" duration="900" waitingTime="900" timeLoss="900" vaporized="collision"/>
  <personinfo id="p" arrival="40" duration="900"/>
</tripinfos>"""
EDGES = """<meandata>
  <interval begin="0" end="9" id="all"><edge id="e" sampledSeconds="30" speed="10"/>
  <edge id="empty" sampledSeconds="0"/></interval>
  <interval begin="9" end="18" id="all"><edge id="e" sampledSeconds="10" speed="2"/><edge id="f" waitingTime="0"/>
  </interval>
  <interval begin="0" end="9" id="bus"><edge id="e" sampledSeconds="1" speed="5"><lane id="e_0" speed="9"/></edge>
  </interval>
</meandata>"""


def test_what_is_read(tmp_path):
    assert traffic_outcomes(tmp_path / "none") == ({}, [])
    (tmp_path / "trips.info").write_text(TRIPS)
    (tmp_path / "folder.xml").mkdir()
    (tmp_path / "edges.xml.gz").write_bytes(gzip.compress(EDGES.encode()))
    (tmp_path / "half.xml").write_text(EDGES.replace('id="all"', 'id="half"')[:-20])
    (tmp_path / "summary.xml").write_text('<summary><step time="0"/></summary>')
    (tmp_path / "log.xml").write_text("no XML")
    found, (note,) = traffic_outcomes(tmp_path)
    assert found == {
        "trips_arrived": 2, "trip_duration_s": 30.0, "trip_waiting_s": 2.0, "trip_time_loss_s": 5.0,
        "edge_speed_kmh.all": pytest.approx(3.6 * (300 + 20) / 40), "edge_speed_kmh.bus": pytest.approx(18.0),
    }  # fmt: skip
    assert note.endswith("(the file seems cut off). It is left out of what comparisons compare.")
    (tmp_path / "trips.info").write_text("<tripinfos/>")
    assert traffic_outcomes(tmp_path)[0]["trips_arrived"] == 0
    assert "trip_duration_s" not in traffic_outcomes(tmp_path)[0]


@pytest.mark.slow
def test_conditions_are_compared_in_what_sumo_wrote(make_scenario, tmp_path):
    config = make_scenario(tmp_path / "scenario", more='<additional-files value="edges.add.xml"/>')
    (config.parent / "edges.add.xml").write_text('<additional><edgeData id="all" file="edges.xml"/></additional>')
    config.write_text(config.read_text().replace("<time>", '<o><tripinfo-output value="trips.xml"/></o><time>'))
    text = config.read_text().replace("<processing>", '<processing><scale value="0.3"/>')
    config.with_name("sparse.sumocfg").write_text(text)
    names = ("scenario", "sparse")
    conditions = "".join(f'[[conditions]]\nname = "{one}"\nscenario = "{one}.sumocfg"\n' for one in names)
    study = config.with_name("study.toml")
    study.write_text(f'seeds = "0:2"\nsettings.traffic.rsu = ["B1:120"]\nsettings.traffic.end_s = 100\n{conditions}')
    done = vnetsim.compare(study, timing_only=True, rounds=1, out=tmp_path / "out", progress=False)
    for name in names:
        lost = done.values.filter(metric="trip_time_loss_s", condition=name)["value"].to_list()
        recorded = [one for one in done.record["traffic"] if Path(one["settings"]["scenario"]).stem == name]
        trips = [ET.parse(tmp_path / "out" / one["folder"] / "sumo" / "trips.xml").getroot() for one in recorded]
        means = [np.mean([float(trip.attrib["timeLoss"]) for trip in one]) for one in trips]
        assert sorted(lost) == pytest.approx(sorted(means))
    of_sumo = {"trip_duration_s", "trip_waiting_s", "trip_time_loss_s", "edge_speed_kmh.all"}
    assert of_sumo <= set(done.differences["metric"])
