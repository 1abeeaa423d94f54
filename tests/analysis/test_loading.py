import json

import pytest
from received import reseal

from analysis.loading import load
from analysis.report.page import build_report
from vnetsim.errors import InputError
from vnetsim.storage.run_directory import RunDirectory


@pytest.fixture
def run(tmp_path, make_run):
    return make_run(tmp_path / "run", vehicles=12, rounds=2)


def test_not_a_run_directory(tmp_path):
    with pytest.raises(InputError, match=r"not a run directory, it has no manifest\.json"):
        build_report(tmp_path)


@pytest.mark.parametrize("name", ["windows", "metrics", "map"])
def test_damaged_table(run, name):
    path = run / f"{name}.parquet"
    path.write_bytes(path.read_bytes()[:40])
    reseal(run)
    with pytest.raises(InputError, match=rf"{name}\.parquet: unreadable"):
        build_report(run)
    assert not (run / "report.html").exists()


def test_a_table_of_other_columns_or_none(run):
    (run / "rounds.parquet").write_bytes((run / "silos.parquet").read_bytes())
    reseal(run)
    with pytest.raises(InputError, match=r"rounds\.parquet: columns differ"):
        build_report(run)
    (run / "windows.parquet").unlink()
    reseal(run)
    with pytest.raises(InputError, match=r"windows\.parquet: missing"):
        build_report(run)


@pytest.mark.parametrize("content", [b"PK\x03\x04 broken", b""])
def test_damaged_samples(run, content):
    (run / "samples.npz").write_bytes(content)
    reseal(run)
    with pytest.raises(InputError, match=r"samples\.npz: unreadable"):
        build_report(run)


def test_damaged_experiment(run):
    (run / "experiment.toml").write_text("scenario = ")
    reseal(run)
    with pytest.raises(InputError, match=r"experiment\.toml: unreadable"):
        build_report(run)
    (run / "experiment.toml").unlink()
    reseal(run)
    with pytest.raises(InputError, match=r"experiment\.toml: missing"):
        build_report(run)


def test_manifest_without_an_rsu(run):
    path = run / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"rsus": []}))
    reseal(run)
    with pytest.raises(InputError, match=r"manifest\.json: damaged: it records no RSU"):
        load(run)


def test_camera_of_another_version(run):
    with (run / "experiment.toml").open("a") as file:
        file.write("\nlens = 1\n")  # lands in [camera], the last table
    text = (run / "experiment.toml").read_text()
    assert text.index("[camera]") < text.index("lens")
    reseal(run)
    with pytest.raises(InputError, match=r"\[camera\] is not of this version"):
        load(run)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("rounds = 1979-05-27", "rounds: expected a whole number"),
        ("rounds = 'many'", "rounds: expected a whole number"),
        ("scenario = []", "scenario: expected a string, got []."),
        ("camera.exposure_s = 'x'", "camera.exposure_s: expected a number, got 'x'."),
        ("blur = 1", "blur: expected a table, got 1."),
        ("rounds = 99999999999999999999", "more than 64 bits"),
    ],
)
def test_settings_of_another_type_than_is_read_are_told(line, words, tmp_path):
    run = RunDirectory(tmp_path)
    run.put({"experiment.toml": f"{line}\n".encode()})
    with pytest.raises(InputError, match=r"experiment\.toml: ") as caught:
        run.settings()
    assert words in str(caught.value)
