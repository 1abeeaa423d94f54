"""Kinds of traffic: told by the scenario, in one place for all that treats them differently."""

from __future__ import annotations

from pathlib import Path

import pytest

from vnetsim.errors import InputError
from vnetsim.experiment import Experiment, TrafficSettings
from vnetsim.scenario.kinds import RECORDINGS, TRAFFIC_KINDS, is_sumo, kind_of
from vnetsim.traffic import open_traffic


def kind_name(scenario: Path | str) -> str:
    kind = kind_of(str(scenario))
    return "" if kind is None else kind.name


def test_kinds_by_name(tmp_path: Path) -> None:
    assert kind_name("gaussian") == kind_name(f"{tmp_path}/mine.py:Source") == "traffic source"
    assert kind_name(tmp_path) == kind_name(tmp_path / "windows.parquet") == "replay"
    assert {kind_name(tmp_path / f"gone{suffix}") for suffix in RECORDINGS} == {"fcd"}
    assert kind_name(tmp_path / "gone.sumocfg") == kind_name("erlangen.sumo.cfg") == "sumo"
    assert kind_name(tmp_path / "gone.cfg") == ""


def test_every_kind_says_what_it_accepts(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file or folder; accepted are") as caught:
        open_traffic(Experiment(scenario=str(tmp_path / "gone.cfg")))
    assert all(kind.accepts() in str(caught.value) for kind in TRAFFIC_KINDS)
    with pytest.raises(InputError, match=r"gone\.xml: no such file\.$"):
        open_traffic(Experiment(scenario=str(tmp_path / "gone.xml"), traffic=TrafficSettings(rsu=("0,0",))))
    (tmp_path / "it.cfg").touch()
    with pytest.raises(InputError, match="unknown kind of scenario; accepted are"):
        open_traffic(Experiment(scenario=str(tmp_path / "it.cfg")))


def test_what_another_traffic_takes() -> None:
    assert {kind.name: kind.seeded_by for kind in TRAFFIC_KINDS if kind.seeded_by} == {
        "traffic source": "seed",
        "sumo": "traffic.seed",
    }
    assert [is_sumo(name) for name in ("gaussian", "it.xml", "it.sumocfg", "it.sumo.cfg")] == [False, False, True, True]
