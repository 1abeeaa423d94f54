import json
from functools import partial

import polars as pl
import pytest
from received import reseal

from analysis.loading import load, select_for_page
from analysis.report.page import build_report
from vnetsim.errors import InputError


@pytest.fixture
def run(tmp_path, make_run):
    return make_run(tmp_path / "run", vehicles=12, rounds=2)


def test_not_a_run_directory(tmp_path):
    with pytest.raises(InputError, match=r"not a run directory, it has no manifest\.json"):
        build_report(tmp_path)


def test_of_each_window_little_is_in_memory(make_run, tmp_path):
    windows = load(make_run(tmp_path / "run", vehicles=3000)).windows
    assert windows.height == 3000
    assert windows.estimated_size() < 90 * windows.height


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
        ("experiment.toml", partial(filled, content=b"scenario = "), "not valid TOML"),
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


def test_what_is_measured_of_all_rsus_whenever_one_closes_a_round_counts_once_a_round():
    rows = [(1, 5.0, "spread", 0.1, ""), (1, 9.0, "spread", 0.3, ""), (2, 12.0, "spread", 0.2, "")]
    rows += [(1, 5.0, "knn", 0.4, "a"), (1, 9.0, "knn", 0.6, "b"), (2, 7.0, "knn", 0.8, "a")]
    found = select_for_page(pl.DataFrame(rows, schema=["round", "time_s", "name", "value", "aggregator"], orient="row"))
    assert found.filter(name="spread").select("round", "time_s", "value").rows() == [(1, 9.0, 0.3), (2, 12.0, 0.2)]
    means = found.filter(name="knn").select("round", "time_s", "value", "low", "high").rows()
    assert means == [(1, 9.0, 0.5, 0.4, 0.6), (2, 9.0, pytest.approx(0.7), 0.6, 0.8)], "b's was not there at 7 s"
