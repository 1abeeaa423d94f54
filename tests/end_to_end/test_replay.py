"""Recorded traffic gives the run that recorded it; another learner meets the same vehicles."""

from pathlib import Path

import polars as pl
import pytest
from received import reseal

from vnetsim.storage.run_directory import RunDirectory

LEARNT = ("weight", "loss")


def tables(run: Path, *names: str) -> list[pl.DataFrame]:
    return [RunDirectory(run).read(name) for name in names]


@pytest.mark.parametrize("named", ["", "windows.parquet"])
def test_a_replay_is_the_run_again(named, cli, small, small_run, results_of, tmp_path):
    live = small_run("gaussian.toml")[0]
    # the directory brings its settings, the table alone does not
    options = small if named else ()
    cli("run", live / named, *options, "--out", tmp_path / "replay", status=0)
    first, again = results_of(live), results_of(tmp_path / "replay")
    assert {name for name in first if first[name] != again[name]} == {"experiment.toml"}  # it names the replayed run
    manifest = RunDirectory(tmp_path / "replay").manifest()
    assert manifest["traffic"]["kind"] == "replay"
    assert list(manifest["inputs"]) == [str(live / "windows.parquet")]


def test_recorded_traffic_gives_the_live_run(cli, small, small_run, scenarios, tmp_path):
    """`vnetsim mobility` once, `vnetsim run` on its directory: as if the run had driven the traffic itself."""
    scenario, end = "intersection.sumocfg", next(option for option in small if option.startswith("traffic.end_s="))
    recorded = cli("mobility", scenarios / scenario, "--set", end, "--no-report", "--out", tmp_path / "traffic")
    assert recorded.out.splitlines()[-1] == str(tmp_path / "traffic")
    cli("run", tmp_path / "traffic", *small, "--out", tmp_path / "run", status=0)
    names = ("participations", "rounds", "metrics", "silos", "map")
    live, replayed = tables(small_run(scenario)[0], *names), tables(tmp_path / "run", *names)
    assert all(a.equals(b) for a, b in zip(live, replayed, strict=True))


def test_another_learner_meets_the_same_vehicles(cli, small_run, tmp_path):
    live = small_run("expressway.sumocfg")[0]
    cli("run", live, "--learner", "discard", "--out", tmp_path / "discard", status=0)
    names = ("participations", "rounds", "silos")
    first, other = tables(live, *names), tables(tmp_path / "discard", *names)
    assert first[0].drop(LEARNT).equals(other[0].drop(LEARNT))
    assert first[1].drop("loss").equals(other[1].drop("loss"))
    assert first[2].equals(other[2])
    fast = other[0].filter(pl.col("outcome") == "committed", pl.col("speed_mps") > 100 / 3.6)
    assert fast.height > 0
    assert (fast["weight"] == 0).all()


def test_a_larger_payload_meets_the_same_windows_but_not_the_same_fates(cli, toy, tmp_path):
    """Windows are traffic's, participations the learner's: only the first are common to all learners."""
    traffic = ("--set", "traffic.end_s=60", "--set", "traffic.repeat=false")
    for name, size in (("light", 10_000), ("heavy", 30_000_000)):
        payload = ("--set", f"learning.payload_bytes={size}")
        scenario = tmp_path / "light" if name == "heavy" else "gaussian"
        options = (*payload, *traffic, "--learner", toy.name, "--rounds", "50", "--set", "round.deadline_s=10")
        assert cli("run", scenario, *options, "--out", tmp_path / name).status == 0
    (light, light_windows), (heavy, heavy_windows) = (
        tables(tmp_path / name, "participations", "windows") for name in ("light", "heavy")
    )
    key = ["vehicle_id", "enter_s", "exit_s", "entry_speed_mps"]
    assert light_windows.select(key).equals(heavy_windows.select(key))
    assert (light["outcome"] == "committed").sum() > (heavy["outcome"] == "committed").sum()
    assert {"left_download", "deadline"} & set(heavy["outcome"])


def test_a_damaged_recording_is_refused(refused, small_run, toy, tmp_path):
    live = small_run("gaussian.toml")[0]
    copy = tmp_path / "copy"
    copy.mkdir()
    command = ("run", copy, "--learner", toy.name, "--out", tmp_path / "run")
    assert f"{copy}: not a run directory, it has no manifest.json" in refused(*command)
    (copy / "manifest.json").write_bytes((live / "manifest.json").read_bytes())
    windows = copy / "windows.parquet"
    windows.write_bytes((live / "windows.parquet").read_bytes())
    windows.write_bytes(windows.read_bytes()[:-10])
    assert f"{copy / 'checksums.sha256'}: missing" in refused(*command)
    reseal(copy)
    assert f"{windows}: unreadable" in refused(*command)
    (copy / "manifest.json").write_text("{}")
    reseal(copy)
    assert f"{copy / 'manifest.json'}: written by another version in another format" in refused(*command)
    (copy / "manifest.json").unlink()
    assert f"{copy / 'manifest.json'}: gone since it was written" in refused(*command)
    assert not (tmp_path / "run").exists()
