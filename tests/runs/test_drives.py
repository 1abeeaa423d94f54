"""The recorded drives that a data set is made of: silos by arrival and by place, equipped vehicles, and the net."""

from unittest.mock import Mock

import numpy as np
import pytest

from learners.data.driven import _sample_drives
from vnetsim.coverage.rsu import Rsu
from vnetsim.coverage.windows import VehiclePath
from vnetsim.errors import InputError
from vnetsim.experiment import Experiment
from vnetsim.runs import drives
from vnetsim.runs.assembly import assemble
from vnetsim.runs.manifest import input_hashes
from vnetsim.traffic.gaussian import GaussianSource
from vnetsim.traffic.paths import PathTraffic, source_info

NET = '<net><edge id="e"><lane id="e_0" index="0" speed="9" length="90" shape="0,0 90,0"/></edge></net>'


def passing(vehicle: str, rsu: str, begin_s: float, end_s: float) -> tuple[VehiclePath, str]:
    times = np.arange(begin_s, end_s + 1, 1.0)
    path = VehiclePath(
        vehicle_id=vehicle, vehicle_type="", rsu_id=rsu, entry_cause="crossing", entry_edge="",
        time_s=times.tolist(), x_m=(9 * times).tolist(), y_m=[0.0] * len(times), speed_mps=[9.0] * len(times),
    )  # fmt: skip
    return path, "crossing"


@pytest.fixture
def recorded(monkeypatch, tmp_path):
    (tmp_path / "a.net.xml").write_text(NET)
    rsus = [Rsu(id=name, x_m=0.0, y_m=0.0, range_m=5000.0) for name in ("r", "s")]
    paths = [
        passing("v0", "r", 0, 10), passing("v1", "s", 1, 3), passing("v0", "s", 5, 15), passing("v2", "s", 20, 24),
    ]  # fmt: skip
    info = source_info(GaussianSource(), end_s=30.0, seed=7, inputs=(str(tmp_path / "a.net.xml"),))
    monkeypatch.setattr(drives, "open_traffic", lambda *_, **__: PathTraffic(rsus, info, lambda: paths))

    def record(**changes: object) -> list[tuple[str, float, int]]:
        experiment = Experiment(scenario="gaussian", learner="fedefm").with_values(
            {"data.name": "drive", "silos.count": 4, "silos.approaches": 1, "round.quorum": 1, **changes}
        )
        found = drives.record_drives(assemble(experiment), Mock())
        assert found.net == tmp_path / "a.net.xml"
        record.frames = _sample_drives(found.drives, 1.0)
        return [(one.vehicle_id, one.time_s[0], one.silo) for one in found.drives]

    return record


def test_a_drive_is_of_its_vehicles_silo_or_of_its_place(recorded):
    assert recorded() == [("v0", 0, 0), ("v1", 1, 1), ("v0", 5, 0), ("v2", 20, 2)]
    assert recorded(**{"silos.by": "origin"}) == [("v0", 0, 0), ("v1", 1, 1), ("v0", 5, 0), ("v2", 20, 3)]
    assert recorded(**{"silos.by": "place"}) == [("v0", 0, 0), ("v1", 1, 1), ("v0", 5, 3), ("v2", 20, 1)]
    times = recorded.frames.time_s[np.isin(recorded.frames.drive, [0, 2])]
    assert times.tolist() == list(range(15)), "a frame inside two discs is one frame"


def test_vehicles_without_equipment_see_nothing(recorded):
    share = Experiment(scenario="gaussian").with_values({"traffic.equipped": 0.5}).traffic
    expected = [name for name in ("v0", "v1", "v0", "v2") if share.equips(name, 7)]
    assert [name for name, _, _ in recorded(**{"traffic.equipped": 0.5})] == expected
    assert 0 < len(expected) < 4


def test_a_replay_finds_the_net_of_its_recording_unless_it_changed(tmp_path, monkeypatch):
    net = tmp_path / "b.net.xml"
    net.write_text(NET)
    windows, again = tmp_path / "windows.parquet", tmp_path / "again"
    windows.touch()
    again.mkdir()
    recorded = {tmp_path: {"inputs": input_hashes([str(net)], seen_from=tmp_path)}}
    recorded[again] = {"inputs": input_hashes([str(windows)])}
    monkeypatch.setattr(drives.RunDirectory, "manifest", lambda run: recorded[run.path])
    experiment = Experiment(scenario=str(again)).with_values({"data.name": "drive"})
    assert drives._find_net(experiment, []) == net, "a replay of a replay"
    experiment = experiment.with_values({"scenario": str(tmp_path)})
    assert drives._find_net(experiment, []) == net
    net.write_text(NET.replace("90,0", "91,0"))
    with pytest.raises(InputError, match=r"^data\.name: 'drive': .*b\.net\.xml changed or is gone since the traffic"):
        drives._find_net(experiment, [])
