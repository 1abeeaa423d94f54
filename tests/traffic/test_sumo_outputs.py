"""What a scenario has SUMO write never lands on the user's files, whatever path it names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from coverage_laws import open_scenario

from vnetsim.display import progress_display
from vnetsim.errors import InputError
from vnetsim.experiment import Experiment, TrafficSettings
from vnetsim.runs.traffic_recording import record_mobility

MINE = "what the user had\n"

ADDITIONAL = """<additional>
  <inductionLoop id="e1" lane="A1B1_0" pos="10" period="10" file="{user}/e1.xml"/>
  <instantInductionLoop id="ei" lane="A1B1_0" pos="10" file="../user/instant.xml"/>
  <laneAreaDetector id="e2" lane="A1B1_0" pos="10" endPos="50" period="10" file="below/e2.xml"/>
  <entryExitDetector id="e3" period="10" file="e3.xml">
    <detEntry lane="A1B1_0" pos="10"/><detExit lane="A1B1_0" pos="90"/>
  </entryExitDetector>
  <edgeData id="edges" file="{user}/edges.xml"/>
  <laneData id="lanes" period="20" file="lanes.csv"/>
  <routeProbe id="probe" edge="A1B1" period="10" file="probe.xml"/>
  <calibrator id="calibrated" edge="A1B1" pos="0" output="calibrator.xml"/>
  <timedEvent type="SaveTLSStates" source="B1" dest="lights.xml"/>
  <vType id="watched"><param key="has.ssm.device" value="true"/>
    <param key="device.ssm.file" value="{user}/ssm.xml"/></vType>
</additional>"""

OUTPUTS = {
    "tripinfo-output": "{user}/tripinfos.xml",
    "fcd-output": "../user/fcd.xml.gz",
    "summary-output": "summary.xml",
    "summary": "",
    "vehroute-output": "{user}/routes.xml",
    "netstate-dump": "{user}/net.csv",
    "vtk-output": "{user}/vtk",
    "save-state.times": "5,10",
    "save-state.prefix": "{user}/state",
    "log": "{user}/sumo.log",
    "error-log": "errors.log",
    "message-log": "../user/messages.log",
    "statistic-output": "{user}/statistics.xml",
    "emission-output": "emissions.parquet",
}


@pytest.fixture
def scenario_with_outputs(make_scenario, tmp_path):
    """A scenario that writes all over the folder ``user``, whose files are ``MINE``, and beside itself."""
    user, own = tmp_path / "user", tmp_path / "scenario"
    (own / "below").mkdir(parents=True)
    user.mkdir()
    options = "".join(f'<{name} value="{text.format(user=user)}"/>' for name, text in OUTPUTS.items() if text)
    routes = '<routes><vehicle id="v" type="watched" depart="0"><route edges="A1B1 B1C1"/></vehicle></routes>'
    more = '<additional-files value="detectors.add.xml"/>'
    config = make_scenario(own, routes=routes, end=30, step=1.0, more=more)
    (own / "detectors.add.xml").write_text(ADDITIONAL.format(user=user))
    config.write_text(config.read_text().replace("<time>", f"<output>{options}</output><time>"))
    for name in (
        "tripinfos.xml",
        "fcd.xml.gz",
        "routes.xml",
        "e1.xml",
        "edges.xml",
        "ssm.xml",
        "sumo.log",
        "vtk_0.vtp",
    ):
        (user / name).write_text(MINE)
    return config


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


WRITTEN = {
    *("tripinfos.xml", "fcd.xml.gz", "summary.xml", "routes.xml", "net.csv", "vtk_0.vtp", "vtk_29.vtp", "sumo.log"),
    *("state_5.00.xml.gz", "errors.log", "messages.log", "statistics.xml", "emissions.parquet"),
    *("e1.xml", "instant.xml", "e2.xml", "e3.xml", "edges.xml", "lanes.csv", "probe.xml", "calibrator.xml"),
    *("lights.xml", "ssm.xml"),
}


def test_outputs_go_below_the_run_directory(scenario_with_outputs, tmp_path):
    before = _files(tmp_path)
    settings = TrafficSettings(rsu=("B1:120",))  # type: ignore[arg-type]
    experiment = Experiment(scenario=str(scenario_with_outputs), traffic=settings)
    with progress_display() as progress:
        run = record_mobility(experiment, tmp_path / "TIME" / "a run", command=(), progress=progress)
    after = {name: data for name, data in _files(tmp_path).items() if not name.startswith("TIME")}
    assert after == before
    written = {path.name for path in (run / "sumo").iterdir()}
    assert written >= WRITTEN
    # whole, not cut short where the run directory was read
    assert b"</tripinfos>" in (run / "sumo" / "tripinfos.xml").read_bytes()
    outcomes = json.loads((run / "manifest.json").read_text())["traffic_outcomes"]
    assert outcomes["trips_arrived"] == 0
    assert outcomes["edge_speed_kmh.edges"] > 0
    (note,) = (note for note in (run / "manifest.json").read_text().splitlines() if "has SUMO write" in note)
    assert str(run / "sumo") in note


def test_a_configuration_that_only_writes_a_file_is_refused(make_scenario, windows_of, tmp_path):
    config = make_scenario(tmp_path)
    mine = tmp_path / "mine.xml"
    mine.write_text(MINE)
    config.write_text(config.read_text().replace("<time>", f'<o><save-configuration value="{mine}"/></o><time>'))
    with pytest.raises(InputError, match=r"scenario\.sumocfg: option 'save-configuration' has SUMO write a file"):
        windows_of(config, rsu=("B1",))
    assert mine.read_text() == MINE


def test_without_a_run_directory_they_are_discarded(scenario_with_outputs, windows_of, tmp_path):
    before = _files(tmp_path)
    assert windows_of(scenario_with_outputs, rsu=("B1:120",))
    assert _files(tmp_path) == before


def test_a_scenario_without_outputs_leaves_no_folder(scenario, tmp_path):
    experiment = Experiment(scenario=str(scenario), traffic=TrafficSettings(rsu=("B1:120",), end_s=20.0))
    with progress_display() as progress:
        run = record_mobility(experiment, tmp_path / "run", command=(), progress=progress)
    assert not (run / "sumo").exists()
    assert "has SUMO write" not in (run / "manifest.json").read_text()


def test_a_link_among_the_outputs_is_not_followed(make_scenario, tmp_path):
    config = make_scenario(tmp_path / "scenario", end=20)
    config.write_text(config.read_text().replace("<time>", '<o><tripinfo-output value="mine.xml"/></o><time>'))
    mine, folder = tmp_path / "pictures" / "mine.xml", tmp_path / "sumo"
    mine.parent.mkdir()
    mine.write_text(MINE)

    def refused(message: str) -> None:
        with pytest.raises(InputError, match=message):
            open_scenario(config, outputs=folder)

    folder.symlink_to(mine.parent)
    refused(r"sumo: a symbolic link; .*\. Remove it\.")
    folder.unlink()
    folder.write_text(MINE)
    refused("sumo: a file, where the folder of SUMO's outputs is to be")
    folder.unlink()
    folder.mkdir()
    (folder / "mine.xml").symlink_to(mine)
    refused(r"sumo/mine\.xml: a symbolic link")
    assert mine.read_text() == MINE


def test_files_of_the_users_beside_the_outputs_stay(make_scenario, tmp_path):
    config = make_scenario(tmp_path / "scenario", end=60)
    config.write_text(config.read_text().replace("<time>", '<o><tripinfo-output value="trips.xml"/></o><time>'))
    folder = tmp_path / "sumo"
    folder.mkdir()
    (folder / "notes.txt").write_text(MINE)
    (folder / "trips.xml").write_text("<half")
    traffic = open_scenario(config, rsu=("B1:120",), outputs=folder)
    list(traffic.events())
    traffic.close()
    assert (folder / "notes.txt").read_text() == MINE
    assert (folder / "trips.xml").read_text().rstrip().endswith("</tripinfos>")
    assert "<half" not in (folder / "trips.xml").read_text()
