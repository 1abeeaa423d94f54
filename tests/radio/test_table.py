"""Rates from a CSV file, and the recipe that makes one."""

import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import vnetsim
from vnetsim.coverage.rsu import Rsu
from vnetsim.errors import InputError, RunError
from vnetsim.radio.table import RateTable
from vnetsim.random_streams import Streams
from vnetsim.simulation.links import Radio
from vnetsim.testing import check_plugin

RECIPE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "rates.md"
RSU = Rsu(id="r", x_m=10.0, y_m=0.0, range_m=300.0)
CROSS = [np.array([[-400.0, 0.0], [400.0, 0.0]]), np.array([[10.0, -400.0], [10.0, 400.0]])]
PLAIN = "distance_m, rate_mbps\n50, 60\n100, 40\n200, 0\n"
STATES = "rate_mbps,distance_m,line_of_sight,runs\n60,0,true,3\n6,0,FALSE,3\n40,300,1,3\n4,300,0,3\n"


@pytest.fixture
def table(tmp_path):
    def written(text: str | bytes) -> RateTable:
        file = tmp_path / "rates[1].csv"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return RateTable(file=str(file))

    return written


def rates_mbps(model: RateTable, places, rsu: Rsu = RSU, lanes=CROSS) -> list[float]:
    state = model.draw(np.random.default_rng(0), model.begin([rsu], lanes), (1.6,))
    down = [model.downlink_bps(rsu, place, state) / 1e6 for place in places]
    assert down == [model.uplink_bps(rsu, place, state) / 1e6 for place in places]
    assert down == [model.sidelink_bps(rsu, place, (rsu.x_m, rsu.y_m), state) / 1e6 for place in places]
    return down


def test_rates_are_interpolated_and_nothing_moves_beyond_the_last_row(table):
    places = [(10.0 + m, 0.0) for m in (0, 50, 75, 100, 150, 200, 201)]
    assert rates_mbps(table(PLAIN), places) == pytest.approx([60, 60, 50, 40, 20, 0, 0], abs=1e-12)
    assert rates_mbps(table("distance_m,rate_mbps\n50,7\n"), [(10.0, 50.0), (10.0, 51.0)]) == [7.0, 1e-15]
    assert table(PLAIN + "\n300,1\n\n").cap_bps == table(PLAIN).cap_bps == 60e6


def test_two_curves_differ_by_what_the_streets_hide(table):
    model, corner, ahead = table(STATES), (160.0, 150.0), (160.0, 0.0)
    behind = 6 - 2 * np.hypot(150, 150) / 300
    assert rates_mbps(model, [ahead, corner]) == pytest.approx([50.0, behind])
    highway = Rsu(id="h", x_m=10.0, y_m=0.0, range_m=300.0, environment="highway")
    assert rates_mbps(model, [corner], highway) == pytest.approx([10 * behind])
    assert rates_mbps(model, [corner], lanes=[]) == pytest.approx([10 * behind])
    radio = Radio(model, Streams(seed=0), [RSU], CROSS)
    assert radio.rate_use().notes == ()
    (note,) = Radio(model, Streams(seed=0), [RSU], []).rate_use().notes
    assert note.startswith("No lane of the road net is known, so all links had the rates in line of sight")


@pytest.mark.slow
def test_a_law_abiding_plug_in(table):
    assert len(check_plugin(RateTable, {"radio.file": table(PLAIN).file})) >= 4


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no table of rates, a CSV file with the columns distance_m and rate_mbps: "),
        (b"PK\x03\x04\xff\xfe\x00\n\xff", "no table of rates, "),
        ("distance_m;rate_mbps\n1;2\n", "no table of rates, .*: there is no column distance_m"),
        ("distance_m,rate_bps\n1,2\n", "there is no column rate_mbps"),
        ("distance_m,rate_mbps, distance_m\n1,2,3\n", "there is more than one column distance_m"),
        ("distance_m,rate_mbps,rate_mbps\n1,2,3\n", "there is more than one column rate_mbps"),
        ("distance_m,rate_mbps\n", "a table of rates without rows"),
        (PLAIN + "150,1\n", r"line 5: .*the distance is not larger than in the row before\.$"),
        (PLAIN + "200,1\n", "line 5: "),
        (PLAIN + "-1,1\n", "line 5: a number is missing, negative or not finite"),
        (PLAIN + "300,-1\n", "line 5: "),
        (PLAIN + "300,\n400,x\n", "line 5: "),
        (PLAIN + "\n\n300,x\n", "line 7: "),
        (PLAIN + "300,nan\n", "line 5: "),
        (PLAIN + "inf,1\n", "line 5: "),
        (PLAIN + "300,2e9\n", r"line 5: .* above 1e\+09 Mbit/s"),
        (STATES + "4,400,maybe,3\n", "line 6: .*, or line_of_sight is neither true nor false"),
        ("distance_m,rate_mbps,line_of_sight\n1,1,true\n", "line_of_sight is the same in all rows"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(table, text, says):
    with pytest.raises(InputError, match=rf"rates\[1\]\.csv: .*{says}") as caught:
        table(text).begin([RSU], CROSS)
    assert "\n" not in str(caught.value)


def test_the_recipe_makes_a_table_and_a_run_records_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    seconds = [(m, 5_000_000 if m < 50 else 0 if m % 2 else 1_000_000) for m in range(100)]
    pl.DataFrame(seconds, schema=["distance_m", "bytes"], orient="row").write_csv("trace.csv")
    (code,) = re.findall(r"```python\n(.*?)```", RECIPE.read_text(encoding="utf-8"), re.DOTALL)
    exec(code, {})
    assert pl.read_csv("rates.csv").rows() == [(12.5, 40.0), (37.5, 40.0), (62.5, 13 / 25 * 8), (87.5, 12 / 25 * 8)]
    run = vnetsim.run(
        "gaussian", radio__name="table", radio__file="rates.csv", rounds=1, timing_only=True, progress=False
    )
    assert str(tmp_path / "rates.csv") in run.manifest["inputs"]
    assert run.manifest["radio"]["cap_bps"] == 40e6
    with pytest.raises(InputError, match=r"gone\.csv: no table of rates, .*No such file"):
        vnetsim.run("gaussian", radio__name="table", radio__file="gone.csv", timing_only=True, progress=False)


def test_a_comparison_does_not_keep_cells_of_other_rates(tmp_path):
    file = tmp_path / "rates.csv"
    file.write_text(PLAIN)
    more = {"radio__name": "table", "radio__file": str(file), "rounds": 1, "timing_only": True, "progress": False}

    def compare() -> None:
        vnetsim.compare("gaussian", learners="fedavg", seeds=1, out=tmp_path / "out", **more)

    compare()
    file.write_text(STATES)
    with pytest.raises(RunError, match=r"rates\.csv: changed since the cell ran; delete .*fedavg-seed1-\w+ to run it"):
        compare()
    file.unlink()  # finished cells need no data
    compare()
