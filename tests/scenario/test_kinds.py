"""Kinds of traffic: told by the scenario, in one place for all that treats them differently."""

from pathlib import Path

import pytest

from vnetsim.errors import InputError
from vnetsim.experiment import Experiment, TrafficSettings
from vnetsim.scenario.kinds import RECORDINGS, TRAFFIC_KINDS, is_sumo, kind_of
from vnetsim.traffic import open_traffic


def kind_name(scenario: Path | str) -> str:
    kind = kind_of(str(scenario))
    return "" if kind is None else kind.name


def test_kinds_by_name(tmp_path):
    assert kind_name("gaussian") == kind_name(f"{tmp_path}/mine.py:Source") == "traffic source"
    assert kind_name(tmp_path) == kind_name(tmp_path / "windows.parquet") == "replay"
    assert {kind_name(tmp_path / f"gone{suffix}") for suffix in RECORDINGS} == {"fcd"}
    assert kind_name(tmp_path / "gone.sumocfg") == kind_name("erlangen.sumo.cfg") == "sumo"
    assert kind_name(tmp_path / "gone.cfg") == ""


def test_every_kind_says_what_it_accepts(tmp_path):
    with pytest.raises(InputError, match="no such file or folder; accepted are") as caught:
        open_traffic(Experiment(scenario=str(tmp_path / "gone.cfg")))
    assert all(kind.accepts() in str(caught.value) for kind in TRAFFIC_KINDS)
    with pytest.raises(InputError, match=r"gone\.xml: no such file\.$"):
        open_traffic(Experiment(scenario=str(tmp_path / "gone.xml"), traffic=TrafficSettings(rsu=("0,0",))))
    (tmp_path / "it.cfg").touch()
    with pytest.raises(InputError, match="unknown kind of scenario; accepted are"):
        open_traffic(Experiment(scenario=str(tmp_path / "it.cfg")))


def test_what_another_traffic_takes():
    assert {kind.name: kind.seeded_by for kind in TRAFFIC_KINDS if kind.seeded_by} == {
        "traffic source": "seed",
        "sumo": "traffic.seed",
    }
    assert [is_sumo(name) for name in ("gaussian", "it.xml", "it.sumocfg", "it.sumo.cfg")] == [False, False, True, True]


OWN = """
from dataclasses import dataclass
from vnetsim.coverage.rsu import Rsu
from vnetsim.coverage.windows import TrafficInfo, VehiclePath
from vnetsim.traffic.paths import PathTraffic


@dataclass(frozen=True, kw_only=True)
class Own:
    name = source = "own"
    exit_s: float = 1.0

    def open(self, request):
        path = VehiclePath(
            vehicle_id="v", vehicle_type="", rsu_id="r", entry_cause="crossing", entry_edge="",
            time_s=[0.0, self.exit_s], x_m=[0.0, 1.0], y_m=[0.0, 0.0], speed_mps=[1.0, 1.0],
        )
        info = TrafficInfo(kind="own", begin_s=0.0, end_s=1.0, step_s=None, seed=None)
        return PathTraffic([Rsu(id="r", x_m=0.0, y_m=0.0, range_m=9.0)], info, lambda: [(path, "crossing")])
"""
ALL = {
    "begin_s": 1.0, "end_s": 9.0, "warmup_s": 1.0, "vehicle_types": ("bus",), "rsu": ("1,1",), "rsu_spacing_m": 1.0,
    "range_m": 9.0, "net": "x.net.xml", "gui": True, "seed": 1,
}  # fmt: skip


@pytest.mark.parametrize(
    ("scenario", "unread"),
    [
        ("access-log", ALL.keys() - {"range_m"}),
        ("jumps", ALL.keys() - {"range_m"}),
        ("gaussian", ALL.keys() - {"range_m", "end_s"}),
        ("gone.xml", {"gui", "seed"}),
        ("gone.sumocfg", {"net"}),
    ],
)
def test_settings_that_traffic_does_not_read_are_refused(scenario, unread):
    source = {"file": "log.csv"} if scenario == "access-log" else {}
    for name, value in ALL.items():
        asked = Experiment(scenario=scenario, source=source, traffic=TrafficSettings(**{name: value}))
        told = ""
        try:
            open_traffic(asked).close()
        except InputError as error:  # also that the file is missing
            told = str(error)
        assert (f"this traffic does not read traffic.{name}: leave" in told) == (name in unread), name


def test_an_own_source_says_what_it_reads(tmp_path):
    asked = Experiment(scenario=f"{tmp_path}/own.py:Own", traffic=TrafficSettings(end_s=9.0))
    (tmp_path / "own.py").write_text(OWN)
    with pytest.raises(InputError, match=r"own: this traffic does not read traffic\.end_s: .* it reads nothing\."):
        open_traffic(asked)
    (tmp_path / "own.py").write_text(OWN.replace("    exit_s", '    traffic_settings = ("rsu",)\n    exit_s'))
    with pytest.raises(InputError, match=r"own: this traffic does not read traffic\.end_s: .* it reads traffic\.rsu\."):
        open_traffic(asked)
    for exit_s in (0.0, 1e308):
        asked = Experiment(scenario=f"{tmp_path}/own.py:Own", source={"exit_s": exit_s})
        with pytest.raises(InputError, match=r"traffic: the path of v must have .* none beyond 1e\+10"):
            list(open_traffic(asked).events())


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "    def open",
            "    def __post_init__(self): raise ValueError('odd\\nly')\n    def open",
            "source: ValueError: odd ly.",
        ),
        ("exit_s: float", "exit_s: complex", "source: Own has a setting of type complex, which no TOML gives: "),
    ],
)
def test_what_is_wrong_with_settings_of_an_own_source_is_said(old, new, said, tmp_path):
    (tmp_path / "own.py").write_text(OWN.replace(old, new))
    with pytest.raises(InputError) as caught:
        open_traffic(Experiment(scenario=f"{tmp_path}/own.py:Own", source={"exit_s": 2.0}))
    assert str(caught.value).startswith(said)
