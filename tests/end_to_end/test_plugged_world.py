"""A radio model and a traffic source from files, through the command line."""

import shutil
from pathlib import Path

import pytest

from vnetsim.storage.run_directory import RunDirectory

FOLDER = Path(__file__).resolve().parents[2] / "scenarios" / "plugins"
ONCE = (
    *("--device", "cpu", "--rounds", "1", "--set", "silos.count=6", "--set", "learning.steps=2"),
    *("--set", "learning.batch=8", "--set", "data.train_images=120", "--set", "data.test_images=40"),
    *("--set", "compute.median_flops=4e9"),
)


def test_a_radio_model(cli, tmp_path, monkeypatch):
    """Named beside its TOML file, from elsewhere; recorded, hashed, and refused to who only received the folder."""
    text = (FOLDER / "two_ray.py").read_text()
    (tmp_path / "two_ray.py").write_text(text.replace("permittivity: A", 'file: str = ""\n    permittivity: A'))
    (tmp_path / "map.csv").write_text("1,2\n")
    (tmp_path / "mine.toml").write_text(
        'scenario = "gaussian"\nradio.name = "two_ray.py:TwoRay"\nradio.permittivity = 1.1\nradio.file = "map.csv"\n'
    )
    learner = ("--learner", f"{FOLDER / 'rotation.py'}:RotNet", *ONCE)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    done = cli("run", "../mine.toml", *learner, "--out", "run")
    assert (done.status, done.err) == (0, "")
    run = RunDirectory(Path("run"))
    manifest = run.manifest()
    assert manifest["plugins"]["radio"]["name"] == "two-ray"
    settings = manifest["plugins"]["radio"]["settings"]
    assert (settings["file"], settings["permittivity"]) == (str(tmp_path / "map.csv"), 1.1)
    assert {str(tmp_path / "two_ray.py"), str(tmp_path / "map.csv")} <= manifest["inputs"].keys()
    assert manifest["radio"] == {}
    plain = cli("run", "gaussian", *learner, "--out", "plain")
    assert plain.status == 0
    took = [RunDirectory(Path(name)).read("participations")["download_s"].to_list() for name in ("run", "plain")]
    assert took[0] != took[1]
    received = cli("run", "run", *learner, "--out", "other")
    assert received.status == 2
    assert "radio.name: the folder wants the code of" in received.err
    study = 'seeds = [0]\nscenario = "gaussian"\n[settings]\nradio.name = "tworay.py:TwoRay"\n'
    arms = [f'[[arms]]\nname = "{name}"\nlearner = "{FOLDER / "rotation.py"}:RotNet"\n' for name in "ab"]
    (tmp_path / "study.toml").write_text(study + "".join(arms))
    compared = cli("compare", "../study.toml", "--out", "compared")
    assert compared.status == 2
    assert f"radio.name: {tmp_path / 'tworay.py'}: no such file." in compared.err.replace("elsewhere/../", "")
    assert not Path("compared").exists()


@pytest.fixture
def passages(tmp_path, monkeypatch) -> Path:
    """A folder with an experiment that names the source and its file as they lie beside it; called from elsewhere."""
    for name in ("passages.py", "passages.csv"):
        shutil.copy(FOLDER / name, tmp_path)
    (tmp_path / "mine.toml").write_text(
        'scenario = "passages.py:Passages"\nsource = { file = "passages.csv", range_m = 200.0 }\n'
    )
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path


LEARNER = ("--learner", f"{FOLDER / 'rotation.py'}:RotNet", *ONCE)


def test_a_traffic_source_is_recorded_and_replayed_without_its_code(cli, passages, results_of):
    done = cli("run", "../mine.toml", *LEARNER, "--out", "live")
    assert (done.status, done.err) == (0, "")
    manifest = RunDirectory(Path("live")).manifest()
    assert manifest["traffic"]["kind"] == "passages"
    assert manifest["traffic"]["plugin"] == {
        "name": "passages",
        "source": "counted at the roadside",
        "settings": {"file": str(passages / "passages.csv"), "range_m": 200.0},
    }
    assert {str(passages / "passages.py"), str(passages / "passages.csv")} <= set(manifest["inputs"])
    assert [rsu["range_m"] for rsu in manifest["rsus"]] == [200.0]
    assert cli("run", "../mine.toml", *LEARNER, "--out", "again").status == 0
    first, again = (results_of(Path(name)) for name in ("live", "again"))
    assert {name for name in first if first[name] != again[name]} == set()
    assert cli("mobility", "../mine.toml", "--no-report", "--out", "traffic").status == 0
    windows = RunDirectory(Path("traffic")).read("windows")
    assert windows.height == 40
    assert windows["exit_s"].to_list() == sorted(windows["exit_s"].to_list())
    (passages / "passages.py").write_text("raise SystemExit('run')\n")
    for recorded in ("traffic", "live"):
        name = f"replay-of-{recorded}"
        done = cli("run", recorded, *LEARNER, "--out", name)
        assert (done.status, done.err) == (0, "")
        for table in ("windows", "participations", "rounds", "metrics"):
            assert RunDirectory(Path(name)).read(table).equals(RunDirectory(Path("live")).read(table)), table


def test_resuming_a_source_asks_for_trust_and_compare_records_it_once(cli, passages):
    assert cli("mobility", "../mine.toml", "--no-report", "--out", "traffic").status == 0
    run = RunDirectory(Path("traffic"))
    run.write_json("manifest.json", run.manifest() | {"status": "interrupted"})
    refused = cli("resume", "traffic")
    assert refused.status == 2
    assert "scenario: the folder wants the code of" in refused.err
    assert "add --trust" in refused.err
    done = cli("resume", "traffic", "--trust")
    assert (done.status, done.err) == (0, "")
    (passages / "study.toml").write_text(
        'scenario = "passages.py:Passages"\nseeds = [0, 1]\n'
        '[settings]\nsource.file = "passages.csv"\nrounds = 1\nsilos.count = 6\n'
        "data.train_images = 120\ndata.test_images = 40\n"
        + "".join(
            f'[[arms]]\nname = "{steps}"\nlearner = "{FOLDER / "rotation.py"}:RotNet"\n'
            f"learning = {{ steps = {steps}, batch = 8 }}\n"
            for steps in (1, 2)
        )
    )
    cli("compare", "../study.toml", "--out", "compared", status=0)
    kinds = [
        RunDirectory(path.parent).manifest()["traffic"]["kind"]
        for path in Path("compared").glob("cells/*/manifest.json")
    ]
    assert kinds == ["replay"] * 4
    traffics = {path.parent for path in Path("compared/traffic").glob("*/manifest.json")}
    assert {RunDirectory(path).manifest()["traffic"]["kind"] for path in traffics} == {"passages"}


def test_a_line_that_is_no_passage_and_a_source_that_fails_are_named(cli, passages):
    (passages / "passages.csv").write_text("vehicle,enter_s,speed_mps,bearing_deg,offset_m\na,0,ten,0,0\n")
    done = cli("mobility", "../mine.toml", "--out", "out")
    assert done.status == 2
    assert "passages.csv: line 2: not a passage: ValueError" in done.err
    file = passages / "passages.py"
    file.write_text(file.read_text().replace("paths = []", "paths = [] + 1"))
    done = cli("mobility", "../mine.toml", "--out", "out")
    assert done.status == 1
    assert "traffic source 'passages' failed in open: TypeError" in done.err
    line = file.read_text().partition("paths = [] + 1")[0].count("\n") + 1
    assert f" See line {line} of {file}." in " ".join(done.err.split())
    file.write_text(file.read_text().replace("paths = [] + 1", "paths = []").replace("lambda: paths)", "paths)"))
    (passages / "passages.csv").write_text("vehicle,enter_s,speed_mps,bearing_deg,offset_m\n")
    done = cli("mobility", "../mine.toml", "--out", "out")
    assert "TypeError: 'list' object is not callable" in done.err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("half_m = math", "half_m = 1.1 * math"), "leads 219.994 m away from RSU"),
        (("file: str\n", "file: str\n    more: int\n"), "source.more: it has no default and must be given."),
    ],
    ids=str,
)
def test_a_path_that_is_no_stay_in_the_disc_is_refused(change, message, cli, passages):
    file = passages / "passages.py"
    assert change[0] in file.read_text()
    file.write_text(file.read_text().replace(*change))
    done = cli("mobility", "../mine.toml", "--out", "out")
    assert done.status == 2
    assert message in " ".join(done.err.split())
