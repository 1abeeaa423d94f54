import json
from functools import partial

import pytest
from received import reseal

from analysis.report.page import build_report
from vnetsim.errors import InputError
from vnetsim.storage.run_directory import RunDirectory


@pytest.fixture
def run(tmp_path, make_run):
    return make_run(tmp_path / "run", vehicles=12, rounds=2)


def test_not_a_run_directory(tmp_path):
    with pytest.raises(InputError, match=r"not a run directory, it has no manifest\.json"):
        build_report(tmp_path)


def cut(run, name):
    (run / name).write_bytes((run / name).read_bytes()[:40])


def filled(run, name, content):
    (run / name).write_bytes(content)


def of_silos(run, name):
    filled(run, name, (run / "silos.parquet").read_bytes())


def removed(run, name):
    (run / name).unlink()


def without_rsus(run, name):
    (run / name).write_text(json.dumps(json.loads((run / name).read_text()) | {"rsus": []}))


def another_camera(run, name):
    text = (run / name).read_text() + "\nlens = 1\n"  # lands in [camera], the last table
    assert text.index("[camera]") < text.index("lens")
    (run / name).write_text(text)


@pytest.mark.parametrize(
    ("name", "damage", "words"),
    [
        ("windows.parquet", cut, "unreadable"),
        ("metrics.parquet", cut, "unreadable"),
        ("map.parquet", cut, "unreadable"),
        ("rounds.parquet", of_silos, "columns differ"),
        ("windows.parquet", removed, "missing"),
        ("samples.npz", partial(filled, content=b"PK\x03\x04 broken"), "unreadable"),
        ("samples.npz", partial(filled, content=b""), "unreadable"),
        ("experiment.toml", partial(filled, content=b"scenario = "), "unreadable"),
        ("experiment.toml", removed, "missing"),
        ("manifest.json", without_rsus, "damaged: it records no RSU"),
    ],
)
def test_a_damaged_file_is_named(run, name, damage, words):
    damage(run, name)
    reseal(run)
    with pytest.raises(InputError, match=rf"{name}: {words}"):
        build_report(run)
    assert not (run / "report.html").exists()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("rounds = 1979-05-27", "rounds: expected a whole number"),
        ("scenario = []", "scenario: expected a string, got []."),
        ("camera.exposure_s = 'x'", "camera.exposure_s: expected a number, got 'x'."),
        ("blur = 1", "blur: expected a table, got 1."),
    ],
)
def test_settings_of_another_type_than_is_read_are_told(line, words, tmp_path):
    run = RunDirectory(tmp_path)
    run.put({"experiment.toml": f"{line}\n".encode()})
    with pytest.raises(InputError, match=r"experiment\.toml: ") as caught:
        run.settings()
    assert words in str(caught.value)
