"""Counts of vehicles on edges are read from the user's cache as long as all that SUMO reads is the same."""

from __future__ import annotations

import gzip
from pathlib import Path
from unittest.mock import Mock

import pytest
from coverage_laws import open_scenario

from vnetsim.traffic.sumo import counts

CONFIG = """<configuration>
  <net-file value="a.net.xml"/><route-files value="a.rou.xml, b.rou.xml.gz"/>
  <additional-files value="a.add.xml"/><load-state value="state"/><log value="log.txt"/>{}
</configuration>"""


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def config(tmp_path):
    (tmp_path / "more").mkdir()
    (tmp_path / "scenario.sumocfg").write_text(CONFIG.format(""))
    (tmp_path / "a.net.xml").write_text(f"<net>{' ' * counts._CHUNK}</net>")
    (tmp_path / "a.rou.xml").write_text("<routes><include href='more/types.xml'/></routes>")
    (tmp_path / "b.rou.xml.gz").write_bytes(gzip.compress(b'<routes><include href="more/types.xml"/></routes>'))
    (tmp_path / "a.add.xml").write_text(
        '<additional><rerouter id="r" file="more/r.xml"/><e1Detector id="d" lane="l" file="out.xml"/></additional>'
    )
    for name in ("more/types.xml", "more/r.xml", "state", "log.txt", "out.xml"):
        (tmp_path / name).write_text("<a/>")
    return tmp_path / "scenario.sumocfg"


INPUTS = ["a.net.xml", "a.rou.xml", "b.rou.xml.gz", "a.add.xml", "state", "more/types.xml", "more/r.xml"]


def count(config: Path, monkeypatch: pytest.MonkeyPatch, *options: str, until_s: float = 9, version: str = "1") -> int:
    """Return how often SUMO ran for one look-up."""
    run = Mock(return_value={"edge": 7})
    monkeypatch.setattr(counts, "_run", run)
    assert counts.count_leaving(config, options, until_s, version) == {"edge": 7}
    return run.call_count


@pytest.mark.parametrize("name", [*INPUTS, "scenario.sumocfg"])
def test_changed_inputs_are_counted_anew(config, name, monkeypatch):
    file = config.parent / name
    content = file.read_bytes()
    changed = gzip.compress(b"<routes/>") if name.endswith("gz") else content.replace(b"><", b"> <")
    changed = content + b"<!---->" if changed == content else changed
    if name == "scenario.sumocfg":
        changed = CONFIG.format('<seed value="2"/>').encode()
    assert [count(config, monkeypatch) for _ in range(2)] == [1, 0]
    file.write_bytes(changed)
    assert [count(config, monkeypatch) for _ in range(2)] == [1, 0]
    file.write_bytes(content)
    assert count(config, monkeypatch) == 0


def test_other_options_are_counted_anew_and_other_outputs_are_not(config, monkeypatch):
    assert count(config, monkeypatch) == 1
    assert count(config, monkeypatch, "--seed", "3") == 1
    assert count(config, monkeypatch, "--end", "5") == 0  # the end of the run is not that of the count
    assert count(config, monkeypatch, until_s=8) == 1
    assert count(config, monkeypatch, version="2") == 1
    for name in ("log.txt", "out.xml"):
        config.with_name(name).write_text("another run of SUMO")
    assert count(config, monkeypatch) == 0


@pytest.mark.parametrize("more", ['<random value="true"/>', '<weight-files value="${HOME}/w.xml"/>'])
def test_traffic_that_may_differ_is_always_counted(config, more, monkeypatch):
    config.write_text(CONFIG.format(more))
    assert [count(config, monkeypatch) for _ in range(2)] == [1, 1]


def test_a_run_that_failed_is_not_stored(config, monkeypatch):
    monkeypatch.setattr(counts, "_run", lambda *_: {})
    assert counts.count_leaving(config, (), 9, "1") == {}
    assert count(config, monkeypatch) == 1


@pytest.mark.parametrize("damage", ["missing", "home", "file"])
def test_without_a_cache_vehicles_are_counted(config, damage, monkeypatch, tmp_path):
    if damage == "missing":
        (tmp_path / "b.rou.xml.gz").write_text("not gzipped; SUMO says so")
    elif damage == "home":
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    else:
        (tmp_path / "cache").write_text("a file where the folder should be")
    assert [count(config, monkeypatch) for _ in range(2)] == [1, 1]


def test_the_rsu_is_the_same_counted_and_read(make_scenario, tmp_path, monkeypatch):
    config, found = make_scenario(tmp_path, end=60), []
    for _ in range(2):
        traffic = open_scenario(config)
        traffic.close()
        found.append((traffic.rsus, traffic.info.notes))
        monkeypatch.setattr(counts, "_run", lambda *_: pytest.fail("SUMO ran again"))
    assert found[0] == found[1]
    assert "counted in a run of SUMO" in " ".join(found[0][1])
