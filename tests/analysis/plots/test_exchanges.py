"""The report's section on exchanges between vehicles."""

import dataclasses

import numpy as np
import polars as pl
import pytest
from matplotlib.axes import Axes
from small_runs import UNDRAWN, figures, write_table

from analysis.formatting import si
from analysis.loading import load
from analysis.plots.exchanges import EXCHANGE_PANELS, group_by_pair
from analysis.plots.participation import phases
from analysis.report.headline import headline
from analysis.report.page import build_report
from analysis.report.record import record
from analysis.style import styled
from vnetsim.storage.run_directory import RunDirectory
from vnetsim.storage.tables import TABLES


def row(sender, receiver, **fields):
    """A completed exchange in round 0; vehicle ``k`` stands at x = 400 + 20 k."""
    base = {
        "exchange": 0, "round": 0, "sender_id": f"v{sender}", "receiver_id": f"v{receiver}", "sender_silo": sender,
        "receiver_silo": receiver, "via": "sidelink", "outcome": "completed", "start_s": 10.0, "end_s": 12.0,
        "contact_s": 2.0, "bytes": 1e6, "sender_x_m": 400.0 + 20 * sender, "sender_y_m": 500.0,
        "receiver_x_m": 400.0 + 20 * receiver, "receiver_y_m": 500.0, "value": 0.5,
    }  # fmt: skip
    return base | fields


@pytest.fixture
def exchanged(exchange_run):
    """Return the made-up run with other exchanges, no finished round, and perhaps another figure or plan of them."""
    data = load(exchange_run)

    def make(rows, *, figure=data.manifest.exchange, plan=None, **fields):
        frame = pl.DataFrame(rows, schema={column.name: column.dtype for column in TABLES["exchanges"]})
        learner = data.manifest.learner
        cost = dataclasses.replace(learner.cost, exchange=dataclasses.replace(learner.cost.exchange, **(plan or {})))
        manifest = dataclasses.replace(data.manifest, exchange=figure, learner=dataclasses.replace(learner, cost=cost))
        return dataclasses.replace(data, exchanges=frame, rounds=data.rounds.clear(), manifest=manifest, **fields)

    return make


def panels(run):
    with styled():
        return {panel.name: panel for panel in (draw(run) for draw in EXCHANGE_PANELS)}


def plain(text):
    return text.replace("\u202f", " ")


def test_pairs_count_directions():
    rows = [
        row(0, 1), row(1, 0, contact_s=3.0),
        row(2, 0, outcome="cut"), row(0, 2),
        row(1, 2, outcome="cut", via=""), row(2, 1, outcome="cut", via=""),
        row(3, 1, via="relay", round=7), row(1, 3, via="sidelink", round=7),
    ]  # fmt: skip
    table = group_by_pair(pl.DataFrame(rows))
    assert table["state"].to_list() == ["both", "one", "none", "both"]
    assert table["round"].to_list() == [0, 0, 0, 7]
    assert table["relayed"].to_list() == [False, False, False, True]
    assert table["met"].to_list() == [True, True, False, True]
    assert table["contact_s"].to_list()[:2] == [3.0, 2.0]
    assert table["bytes"].to_list() == [2e6, 2e6, 2e6, 2e6]


def test_captions_and_headline_hold_the_numbers(exchanged):
    rows = [row(0, 1), row(1, 0), row(0, 2, outcome="cut", via="relay", bytes=2e6, contact_s=7.0, value=None)]
    run = exchanged(rows)
    captions = {name: plain(panel.caption) for name, panel in panels(run).items()}
    expected = (
        "Round 1: 2 pairs (1 both ways, 1 cut; 1 relayed); in contact for 4.50 s in the median; 4.00 MB over the air."
    )
    assert expected in captions["contacts"]
    assert "3 exchanges, each from one vehicle to another, 67 % completed" in captions["exchange-rounds"]
    assert "4.00 MB over the air, 4.00 MB per round on average, 2.00 MB of it" in captions["exchange-rounds"]
    assert captions["exchange-contact"] == "n = 3. Completed: 2.00 s in the median. Cut: 7.00 s in the median."
    assert " of 2 exchanges: mean 0.500, from 0.500 to 0.500." in captions["exchange-rounds"]
    numbers = {label: plain(value) for label, value in headline(run)}
    assert numbers["Exchanges completed"] == "67 % (2 of 3)"
    assert numbers["Data over sidelinks"] == "2.00 MB"
    links = run.participations.select(pl.col("download_bytes", "upload_bytes").sum()).sum_horizontal().item()
    assert numbers["Data over RSU links"] == f"{plain(si(links + 2e6, 'B'))} (2.00 MB of it relayed)"
    assert "Data moved" not in numbers


def test_bars_of_a_long_run_are_means_over_rounds(exchanged, monkeypatch):
    run = exchanged([row(0, 1, round=index) for index in (0, 1, 4, 5, 241)])
    drawn, stairs = [], Axes.stairs

    def noted(ax, values, edges, **how):
        drawn.append((values, edges))
        return stairs(ax, values, edges, **how)

    monkeypatch.setattr(Axes, "stairs", noted)
    panel = panels(run)["exchange-rounds"]
    assert " Bars are means over 5 rounds. " in panel.caption
    values, edges = drawn[0]  # of the completed
    assert values.tolist() == pytest.approx([3 / 5, 1 / 5, *[0] * 46, 1 / 2])
    assert edges.tolist() == [*np.arange(0.5, 241, 5), 242.5]


def test_no_exchange_no_section_but_a_warning(tmp_path, make_run):
    run = make_run(tmp_path / "run", vehicles=40, rounds=4, exchange=True)
    write_table(RunDirectory(run), "exchanges", [])
    with figures(UNDRAWN):
        numbers = dict(build_report(run).headline)
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "<h2>Exchange between vehicles</h2>" not in page
    assert "No exchange between vehicles took place" in page
    assert "Exchanges completed" not in numbers
    assert "Data moved" in numbers


def test_phases_of_a_participation(exchange_run, learning_run, exchanged):
    page, other = ((run / "report.html").read_text(encoding="utf-8") for run in (exchange_run, learning_run))
    assert "separate download, training, waiting (pale), exchange and upload" in page
    assert "left in exchange" in page
    assert "were exchanged between vehicles" in page
    assert "separate download, training and upload" in other
    assert "xchange" not in other[: other.rindex("<script>")]
    run = exchanged([row(0, 1)], plan={"before_training": True})
    assert [phase.words for phase in phases(run)] == ["download", "waiting", "exchange", "training", "upload"]


def facts(run):
    return {name: plain(value) for table in record(run) for name, value, _ in table.rows}


def test_the_record_says_what_is_exchanged(exchanged, learning_run):
    run = exchanged([row(0, 1)])
    assert facts(run)["exchange between vehicles"] == (
        "1.26 MB to each neighbour, after its own training; counts only when both directions completed"
    )
    assert "topology = contact, range_m = 150.0" in facts(run)["its settings"]
    plan = {"before_training": True, "mutual": False, "work_flop": 2.1e12, "return_bytes": 5_000_000}
    assert facts(exchanged([row(0, 1)], plan=plan))["exchange between vehicles"] == (
        "1.26 MB to each neighbour, 2.10 TFLOP there, 5.00 MB back, before its own training; counts each way on its own"
    )
    assert not {"exchange between vehicles", "its settings"} & set(facts(load(learning_run)))
