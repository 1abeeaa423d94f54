"""Each kind of broken scenario, given to the real SUMO: one line that names the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from coverage_laws import open_scenario

from vnetsim.errors import InputError, RunError


def _write(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(text) and None


def _edit(old: str, new: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        config = folder / "scenario.sumocfg"
        assert old in config.read_text()
        config.write_text(config.read_text().replace(old, new, 1))

    return edit


BROKEN = {
    "missing config": (lambda folder: (folder / "scenario.sumocfg").unlink(), "scenario.sumocfg: no such file"),
    "empty config": (_write("scenario.sumocfg", ""), "scenario.sumocfg: SUMO refuses the scenario"),
    "text for a config": (_write("scenario.sumocfg", "hello"), "invalid document structure"),
    "cut config": (_write("scenario.sumocfg", "<configuration><inp"), "unexpected end of input"),
    "unknown option": (_edit("<begin", "<beginn"), "No option with the name 'beginn'"),
    "bad number": (_edit('step-length value="0.5"', 'step-length value="abc"'), "abc"),
    "missing net": (_edit("grid.net.xml", "nope.net.xml"), "nope.net.xml"),
    "missing routes": (_edit("routes.rou.xml", "nope.rou.xml"), "nope.rou.xml"),
    "missing additional": (
        _edit("</input>", '<additional-files value="nope.add.xml"/></input>'),
        "nope.add.xml",
    ),
    "cut routes": (_write("routes.rou.xml", '<routes><vehicle id="a" depart="0">'), "routes.rou.xml"),
    "entities in the config": (
        _edit("<configuration>", '<!DOCTYPE c [<!ENTITY a "0"><!ENTITY b "&a;&a;">]><configuration>'),
        "scenario.sumocfg:1: the file declares XML entities",
    ),
    "entities in the routes": (
        _write("routes.rou.xml", '<!DOCTYPE r [<!ENTITY a "0">]><routes/>'),
        "routes.rou.xml:1: the file declares XML entities",
    ),
    "entities of another file": (
        _write("routes.rou.xml", '<!DOCTYPE routes SYSTEM "routes.dtd"><routes/>'),
        "routes.rou.xml:1: the file declares XML entities",
    ),
    "unknown edge": (
        _write("routes.rou.xml", '<routes><vehicle id="a" depart="0"><route edges="zz"/></vehicle></routes>'),
        "edge 'zz'",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_one_line_names_the_fault(make_scenario, windows_of, tmp_path, capfd, case):
    config = make_scenario(tmp_path, end=5)
    damage, expected = BROKEN[case]
    damage(tmp_path)
    with pytest.raises(InputError, match=r"(scenario\.sumocfg: |:1: the file declares)") as caught:
        windows_of(config, rsu=("B1",))
    message = str(caught.value)
    assert expected in message
    assert "\n" not in message
    out, err = capfd.readouterr()
    assert (out, err) == ("", ""), "SUMO must not write on the user's terminal"
    # The failure leaves nothing behind that would disturb the next simulation.
    good = make_scenario(tmp_path / "good", end=5)
    assert windows_of(good, rsu=("B1",))


def test_what_was_read_before_a_failure_is_played(make_scenario, tmp_path, monkeypatch):
    """SUMO reads routes as it goes, so a fault in a late one shows late."""
    for limit in ("_STEPS", "_BYTES", "_WAIT_S"):  # all steps are looked at together
        monkeypatch.setattr(f"vnetsim.traffic.sumo.steps.{limit}", 1 << 60)
    late = "".join(
        f'<vehicle id="{k}" depart="{400 * k}"><route edges="{edges}"/></vehicle>'
        for k, edges in enumerate(("A1B1 B1C1", "A1B1 B1C1", "zz"))
    )
    config = make_scenario(tmp_path, routes=f"<routes>{late}</routes>", end=2000)
    traffic = open_scenario(config, rsu=("B1:100",))
    events = traffic.events()
    seen = [next(events).path.vehicle_id, next(events).path.vehicle_id]
    assert seen == ["0", "0"], "one window, entered and left"
    with pytest.raises(RunError, match=r"scenario\.sumocfg: SUMO failed while running: .*edge 'zz'") as caught:
        list(events)
    assert "\n" not in str(caught.value)
    traffic.close()


def test_a_verbose_scenario_leaves_the_terminal_alone(make_scenario, windows_of, tmp_path, capfd):
    config = make_scenario(tmp_path)
    report = '<report><verbose value="true"/><duration-log.statistics value="true"/></report>'
    config.write_text(config.read_text().replace("</configuration>", f"{report}</configuration>"))
    assert windows_of(config, rsu=("B1",))
    assert capfd.readouterr() == ("", "")


def test_a_mesoscopic_scenario_is_refused(make_scenario, tmp_path):
    config = make_scenario(tmp_path)
    text = config.read_text()
    config.write_text(text.replace("<processing>", '<mesoscopic><mesosim value="on"/></mesoscopic><processing>'))
    with pytest.raises(InputError, match=r"mesosim: SUMO's mesoscopic model .* set it to false"):
        open_scenario(config)


@pytest.mark.parametrize(
    ("suffix", "says"),
    [
        *((suffix, r":\d+: recorded with SUMO's mesoscopic model") for suffix in ("xml", "xml.gz")),
        *((suffix, r": no row has a lane: .*--mesosim") for suffix in ("csv", "parquet")),
    ],
)
def test_a_mesoscopic_recording_is_refused(suffix, says, make_scenario, sumo_tool, tmp_path):
    config, recording = make_scenario(tmp_path), tmp_path / f"fcd.{suffix}"
    sumo_tool("sumo", "-c", config, "--mesosim", "--fcd-output", recording, cwd=tmp_path)
    with pytest.raises(InputError, match=rf"fcd\.{suffix}{says}"):
        list(open_scenario(recording, rsu=("300,200",)).events())
