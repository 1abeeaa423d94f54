"""vnetsim place: RSUs on a grid that reach most vehicles, from one recording; what it writes is read again."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import polars as pl
import pytest
from coverage_laws import open_scenario

import vnetsim
import vnetsim.study.place
import vnetsim.study.traffic
from vnetsim.cli.commands import main
from vnetsim.coverage.windows import Window

RANGE_M = 30.0
Windows = Callable[..., list[Window]]


@pytest.fixture(scope="module")
def made(scenario, tmp_path_factory):
    out = tmp_path_factory.mktemp("place") / "out"
    return vnetsim.place(scenario, budget=3, by="covered", traffic__range_m=RANGE_M, out=out)


@pytest.fixture(scope="module")
def windows(scenario, windows_of):
    """The windows of RSUs at all signalised junctions, recorded as for a run."""
    return windows_of(scenario, rsu=("all-signalised",), range_m=RANGE_M)


@pytest.mark.parametrize("by", ["covered", "commits"])
def test_it_counts_the_vehicles_of_runs_with_these_rsus(by, scenario, made, windows, monkeypatch):
    monkeypatch.setattr(vnetsim.study.place, "participation_s", lambda *_: 12.0)
    monkeypatch.setattr(vnetsim.study.place, "_WINDOWS", 7)
    found = vnetsim.place(scenario, budget=3, by=by, traffic__range_m=RANGE_M, out=made.file.parent)
    least_s = 12.0 if by == "commits" else 0.0
    at = {window.rsu_id: set[str]() for window in windows}
    for window in windows:
        if window.exit_s - window.enter_s >= least_s:
            at[window.rsu_id].add(window.vehicle_id)
    together = [len(set().union(*(at[rsu] for rsu in found.rsus["id"][:rank]))) for rank in (1, 2, 3)]
    assert found.rsus["reached"].to_list() == together
    best = [max(len(set().union(*(at[rsu] for rsu in some))) for some in combinations(at, rank)) for rank in (1, 3)]
    assert together[0] == best[0]
    assert together[2] == best[1] if by == "covered" else together[2] >= 0.63 * best[1]
    assert found.rsus["share"][-1] == pytest.approx(together[2] / found.vehicles)


def test_all_traffic_is_the_whole_net_s(made, scenario, windows_of):
    everywhere = {window.vehicle_id for window in windows_of(scenario, rsu=("B1:2000",))}
    assert made.vehicles == len(everywhere)


def test_runs_and_sumo_read_the_file(made, scenario, make_scenario, tmp_path):
    made = vnetsim.place(scenario, budget=3, by="covered", traffic__range_m=RANGE_M, out=made.file.parent)
    own = make_scenario(tmp_path, more=f'<additional-files value="{made.file}"/>')
    expected = {(row["id"], row["x_m"], row["y_m"], RANGE_M) for row in made.rsus.iter_rows(named=True)}
    for config, rsu in ((scenario, (str(made.file),)), (own, ())):
        traffic = open_scenario(config, rsu=rsu)
        traffic.close()
        assert {(one.id, one.x_m, one.y_m, one.range_m) for one in traffic.rsus} == expected
    names = ", ".join(sorted(made.rsus["id"]))
    (note,) = (one for one in vnetsim.place(own, budget=1, out=tmp_path / "out").page.notes if "Left out" in one)
    assert note.startswith(f"Left out: the scenario's own RSUs ({names}). Places are chosen as if there were none")
    again = vnetsim.place(own, budget=1, candidates=str(made.file), out=tmp_path / "again")
    assert not any("Left out" in one for one in again.page.notes)


def place(*arguments: object, status: int = 0) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["place", *map(str, arguments)])
    assert stopped.value.code == status


def test_a_second_call_does_not_record_again_and_page_and_terminal_name_the_rsus(
    made, scenario, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(vnetsim.study.traffic, "record_mobility", None)
    out = made.file.parent
    place(scenario, "--budget", 2, "--candidates", "junctions", "--set", "traffic.range_m=200", "--out", out)
    printed, page = capsys.readouterr().out, (out / "place.html").read_text()
    table = pl.read_csv(out / "place.csv")
    assert table.columns == ["id", "x_m", "y_m", "range_m", "adds", "reached", "share"]
    assert all(f" {name} " in printed and f">{name}<" in page for name in table["id"])
    assert "an estimate, not a run" in printed
    known = {"radio.name": "constant", "radio.rate_bps": 20e6, "compute.spread": 0, "cost.images": 100}
    notes = vnetsim.place(scenario, budget=1, out=out, settings=known).page.notes
    takes_s = 2 * 8 * 22_488_272 / 20e6 + 6 * 100 * 1_110_966_272 / 5e11  # down and up, three passes of two views
    assert f"at least {takes_s:.3g} s at a time" in notes[1]
    place(scenario, "--budget", 2, "--end", 60, "--out", out, status=2)
    assert "of other settings; name a new folder" in capsys.readouterr().err
    (tmp_path / "place.json").write_text("{")
    place(scenario, "--budget", 2, "--out", tmp_path, status=2)
    assert "place.json: damaged; name a new folder" in capsys.readouterr().err


def test_an_interrupted_recording_is_made_again(scenario, tmp_path, monkeypatch):
    def stop(*_: object, **__: object) -> None:
        (tmp_path / "out" / "traffic").mkdir()
        (tmp_path / "out" / "traffic" / "half").touch()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(vnetsim.study.traffic, "record_mobility", stop)
        with pytest.raises(KeyboardInterrupt):
            vnetsim.place(scenario, budget=1, out=tmp_path / "out")
    assert vnetsim.place(scenario, budget=1, out=tmp_path / "out", by="covered").rsus.height == 1


def test_a_recording_needs_no_net_if_a_file_has_the_candidates(tmp_path, capsys):
    rows = [f"{t},{name},{x + 10 * t},{y},10" for t in range(20) for name, x, y in (("a", 0, 0), ("b", 500, 0))]
    fcd, pois = tmp_path / "fcd.csv", tmp_path / "pois.add.xml"
    fcd.write_text("\n".join(("timestep_time,vehicle_id,vehicle_x,vehicle_y,vehicle_speed", *rows)))
    places = (("west", 100, 50), ("east", 600, 60), ("far", 9000, 50))
    poi = '<poi id="{}" type="rsu" x="{}" y="0"><param key="range" value="{}"/></poi>'
    pois.write_text(f"<additional>{''.join(poi.format(*one) for one in places)}</additional>")
    found = vnetsim.place(fcd, budget=3, candidates=str(pois), by="covered", out=tmp_path / "out")
    assert set(found.rsus["id"]) == {"west", "east"}
    assert dict(found.rsus.select("id", "range_m").iter_rows()) == {"west": 50, "east": 60}
    assert any("3 were asked for" in note for note in found.page.notes)
    firsts = {
        vnetsim.place(fcd, budget=1, candidates=str(pois), by="covered", seed=seed, out=tmp_path / "out").rsus["id"][0]
        for seed in range(4)
    }
    assert firsts == {"west", "east"}  # they tie, and the seed draws
    place(fcd, "--budget", 1, "--out", tmp_path / "out", status=2)
    assert "no road net with junctions is known (a recording's is named with --net)" in capsys.readouterr().err


def test_vehicles_of_a_recording_count_beyond_its_net(grid_net, tmp_path):
    rows = [f"{t},{name},{x + 10 * t},300,10" for t in range(60) for name, x in (("a", 0), ("b", 9000))]
    (tmp_path / "fcd.csv").write_text("\n".join(("timestep_time,vehicle_id,vehicle_x,vehicle_y,vehicle_speed", *rows)))
    options = {"by": "covered", "traffic__net": str(grid_net), "out": tmp_path / "out"}
    found = vnetsim.place(tmp_path / "fcd.csv", budget=1, **options)
    assert (found.vehicles, found.rsus["share"].to_list()) == (2, [0.5])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--budget", 0], "--budget: expected 1 to 21, the number of candidates, got 0."),
        (["--budget", 22], "--budget: expected 1 to 21, the number of candidates, got 22."),
        (["--budget", 1, "--candidates", "nowhere.xml"], "nowhere.xml: no such file."),
        (["--budget", 1, "--candidates", "signalized"], "unknown candidates 'signalized'. Did you mean 'signalised'?"),
        (["--budget", 1, "--rsu", "B1"], "leave out --rsu and --rsu-spacing (traffic.rsu and"),
        (["--budget", 1, "--set", "cost.model=trained"], "how long a participation takes is unknown before a run"),
        (["--budget", 1, "--out", "."], "the output directory is not empty"),
        (["--budget", 1, "--end", "-1"], "traffic.end_s must be between"),
        (["--budget", 1, "--warmup", "900", "--out", "new"], "it ends at 150 s, before a warm-up of 900 s"),
    ],
)
def test_a_slip_is_one_line_and_writes_nothing(arguments, message, scenario, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").touch()
    place(scenario, *arguments, status=2)
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_net_or_vehicles_that_are_missing_are_named(made, scenario, tmp_path, capsys):
    for name in ("gaussian", made.file.parent / "traffic"):
        place(name, "--budget", 1, status=2)
        assert "needs all traffic of a road net" in capsys.readouterr().err
    place("nowhere.sumocfg", "--budget", 1, status=2)
    assert "nowhere.sumocfg: no such file." in capsys.readouterr().err
    rates = tmp_path / "rates.csv"
    rates.write_text("distance_m,rate_mbps\n50,50\n")
    table = "--set", "radio.name=table", "--set", f"radio.file={rates}"
    for more, cure in (("--set", "cost.images=10000"), "take a larger"), (table, "see the settings cost"):
        place(scenario, "--budget", 1, *more, "--out", made.file.parent, status=2)
        error = capsys.readouterr().err
        assert "vehicles stays in range of a candidate for the" in error
        assert f"that a participation takes; {cure}" in error
    place(scenario, "--budget", 1, "--end", 0.5, "--out", tmp_path / "out", status=2)
    assert "none of the 0 vehicles stays in range of a candidate; take" in capsys.readouterr().err


def test_a_participation_is_timed_at_the_range_of_the_candidates(made, scenario):
    out, own = made.file.parent, str(made.file)
    notes = vnetsim.place(scenario, budget=1, traffic__range_m=RANGE_M, out=out).page.notes
    others = vnetsim.place(scenario, budget=1, traffic__range_m=80, out=out, candidates=own).page.notes
    assert others[1] == notes[1]
    assert any(note.startswith("traffic.range_m = 80 has no effect") for note in others)
    assert not any("no effect" in note for note in notes)


RADIO = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Silent:
    name, source, update_s = "silent", "a test", None
    def downlink_bps(self, rsu, vehicle_m, state): return 1e6
    def uplink_bps(self, rsu, vehicle_m, state): return 0.0
    def sidelink_bps(self, rsu, sender_m, receiver_m, state): return 1e6
"""


def test_an_impossible_rate_is_refused_as_in_a_run(made, scenario, tmp_path, capsys):
    (tmp_path / "silent.py").write_text(RADIO)
    place(
        scenario, "--budget", 1, "--set", f"radio.name={tmp_path}/silent.py:Silent", "--out", made.file.parent, status=1
    )
    assert "'silent' failed in uplink_bps: it returned 0" in capsys.readouterr().err
