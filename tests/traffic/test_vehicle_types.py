"""Which vehicles take part: motor vehicles unless the user says otherwise, and what they were not is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import sumo
import traci
from coverage_laws import open_scenario

from vnetsim.coverage.windows import Left, Window
from vnetsim.display import progress_display
from vnetsim.errors import InputError
from vnetsim.experiment import ComputeSettings, Experiment, TrafficSettings
from vnetsim.runs.traffic_recording import record_mobility
from vnetsim.traffic import open_traffic
from vnetsim.traffic.vehicle_types import CAR_M, CLASSES, HEIGHTS_M, class_of_name

RSU = ("300,300:60",)


def _types(windows: list[Window]) -> set[str]:
    return {window.vehicle_type for window in windows}


CASES: list[tuple[dict[str, object], set[str]]] = [
    ({}, {"car", "bus"}),
    ({"vehicle_types": ("all",)}, {"car", "bus", "bike"}),
    ({"vehicle_types": ("bicycle",)}, {"bike"}),
    ({"vehicle_types": ("bike", "car")}, {"bike", "car"}),
    ({"vehicle_types": ("truck",)}, set()),
]


@pytest.mark.parametrize("index", range(len(CASES)))
def test_types_and_classes(mixed_scenario, windows_of, index):
    chosen, expected = CASES[index]
    assert _types(windows_of(mixed_scenario, rsu=RSU, end_s=90.0, **chosen)) == expected


def test_vehicles_of_a_saved_state(mixed_scenario, windows_of, sumo_tool, tmp_path):
    """They departed before SUMO was asked anything."""
    saving = ("--save-state.times", "40", "--save-state.files", tmp_path / "state.xml", "--end", "41")
    sumo_tool("sumo", "-c", mixed_scenario, *saving, cwd=tmp_path)
    config = mixed_scenario.parent / "loaded.sumocfg"
    loading = f'<load-state value="{tmp_path / "state.xml"}"/></input>'
    config.write_text(
        mixed_scenario.read_text().replace("</input>", loading).replace('begin value="0"', 'begin value="40"')
    )
    wide = ("300,300:250",)
    for chosen, names in (("motor", {"w": "car", "bus": "bus"}), ("bicycle", {"b": "bike"})):
        windows = windows_of(config, rsu=wide, end_s=60.0, vehicle_types=(chosen,))
        there = {w.vehicle_id.partition(".")[0]: w.vehicle_type for w in windows if w.entry_cause == "begin"}
        assert there == names


def test_who_was_left_out_is_said(mixed_scenario):
    traffic = open_scenario(mixed_scenario, rsu=RSU)
    assert traffic.info.vehicles == "motor vehicles"
    assert not any("do not take part" in note for note in traffic.info.notes)
    left = {e.path.vehicle_id for e in traffic.events() if isinstance(e, Left)}
    traffic.close()
    assert traffic.info.notes[-1].startswith(
        "Of the vehicles near the RSUs these do not take part: 7 of type bike (bicycle)."
    )
    assert not any(name.startswith("b.") for name in left)


def test_the_record_says_who_takes_part(mixed_scenario, tmp_path, windows_of):
    settings = TrafficSettings(rsu=RSU, vehicle_types=("car", "bicycle"))
    with progress_display() as progress:
        run = record_mobility(
            Experiment(scenario=str(mixed_scenario), traffic=settings), tmp_path / "run", command=(), progress=progress
        )
    assert '"vehicles": "car, bicycle"' in (run / "manifest.json").read_text()
    recorded = {"vehicle_types": ("car", "bicycle")}
    assert _types(windows_of(run, **recorded)) == {"car", "bike"}


def _recorded(folder: Path, sumo_tool: Callable[..., None], scenario: Path, *attributes: str) -> Path:
    path = folder / "fcd.csv"
    chosen = ("--fcd-output.attributes", ",".join(attributes)) if attributes else ()
    sumo_tool("sumo", "-c", scenario, "--end", 90, "--fcd-output", path, *chosen, cwd=folder)
    return path


def test_a_recording_knows_types_but_no_classes(mixed_scenario, windows_of, sumo_tool, tmp_path):
    path = _recorded(tmp_path, sumo_tool, mixed_scenario)
    assert _types(windows_of(path, rsu=RSU, vehicle_types=("car",))) == {"car"}
    with pytest.raises(InputError, match=r"fcd\.csv: no vehicle .* of the types lorry .*; there are bike, bus, car\."):
        windows_of(path, rsu=RSU, vehicle_types=("lorry",))


def test_of_a_recording_without_types_all_take_part(mixed_scenario, windows_of, sumo_tool, tmp_path):
    path = _recorded(tmp_path, sumo_tool, mixed_scenario, "x", "y", "speed", "lane")
    assert {w.vehicle_id.split(".")[0] for w in windows_of(path, rsu=RSU)} == {"w", "b", "bus"}
    with pytest.raises(InputError, match=r"fcd\.csv:\d+: vehicle '.*' has no type in this recording"):
        windows_of(path, rsu=RSU, vehicle_types=("car",))


def test_vehicles_are_as_high_as_sumo_says_and_in_a_recording_as_their_class(mixed_scenario, sumo_tool, tmp_path):
    routes = (mixed_scenario.parent / "mixed.rou.xml").read_text()
    (tmp_path / "mixed.rou.xml").write_text(routes.replace('<vType id="car"', '<vType id="car" height="1.43"'))
    config = tmp_path / "mixed.sumocfg"
    net = mixed_scenario.parent / "mixed.net.xml"
    config.write_text(mixed_scenario.read_text().replace("mixed.net.xml", str(net)))
    recording = _recorded(tmp_path, sumo_tool, config)
    chosen = TrafficSettings(rsu=RSU, vehicle_types=("all",), end_s=90.0)
    with progress_display() as progress:
        run = record_mobility(
            Experiment(scenario=str(config), traffic=chosen), tmp_path / "run", command=(), progress=progress
        )
    for scenario, settings, car_m in ((run, TrafficSettings(), 1.43), (recording, chosen, 1.5)):
        traffic = open_traffic(Experiment(scenario=str(scenario), traffic=settings))
        assert list(traffic.events())
        traffic.close()
        assert traffic.info.heights_m == {"bike": 1.7, "bus": 3.4, "car": car_m}


def test_default_heights_are_sumos(grid_net, tmp_path):
    types = "".join(f'<vType id="of_{name}" vClass="{name}"/>' for name in sorted(CLASSES))
    file = tmp_path / "types.add.xml"
    file.write_text(f"<additional>{types}</additional>")
    traci.start([sumo.SUMO_HOME + "/bin/sumo", "-n", str(grid_net), "-a", str(file), "--no-step-log"])
    told = {name: traci.vehicletype.getHeight(f"of_{name}") for name in CLASSES}
    traci.close()
    assert {name: HEIGHTS_M.get(name, CAR_M) for name in CLASSES} == told


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tram", "tram"),
        ("pt_tram", "tram"),
        ("bike_bicycle", "bicycle"),
        ("rail_urban", "rail_urban"),
        ("DEFAULT_BIKETYPE", "bicycle"),
        ("DEFAULT_VEHTYPE", ""),
        ("motorbike", ""),
        ("rail_replacement_bus", "bus"),
        ("bus_for_train", ""),
        ("car", ""),
        ("veh_passenger", "passenger"),
    ],
)
def test_classes_that_names_give_away(name, expected):
    assert class_of_name(name) == expected
    assert not expected or expected in CLASSES


def test_the_model_has_no_types():
    with pytest.raises(InputError, match=r"gaussian: this traffic does not read traffic\.vehicle_types"):
        open_traffic(Experiment(scenario="gaussian", traffic=TrafficSettings(vehicle_types=("bus",))))
    with pytest.raises(InputError, match=r"gaussian: the model does not know compute\.by_type"):
        open_traffic(Experiment(scenario="gaussian", compute=ComputeSettings(by_type={"bus": "ecu"})))
