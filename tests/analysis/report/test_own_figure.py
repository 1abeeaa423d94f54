"""The two figures of docs/how-to/figure.md are drawn as that page says."""

import dataclasses
import re
from pathlib import Path

import polars as pl

from analysis.loading import load
from analysis.report.page import environment
from analysis.style import styled

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "figure.md"
TABLES, REPORT = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def test_the_figure_of_the_tables(tmp_path, make_run, monkeypatch):
    make_run(tmp_path / "first", vehicles=60)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    made = {}
    exec(TABLES, made)
    assert (tmp_path / "entry.png").read_bytes().startswith(b"\x89PNG")
    run = made["run"]
    assert made["rows"].height == run.participations.height > 0
    assert made["rows"]["entry_speed_mps"].equals(made["rows"]["speed_mps"].rename("entry_speed_mps"))


def test_the_figure_of_the_report(tmp_path, make_run):
    made = {}
    exec(REPORT, made)
    data = load(make_run(tmp_path / "first", vehicles=60))
    with styled():
        panel = made["entry_panel"](data)
        nothing = made["entry_panel"](dataclasses.replace(data, participations=data.participations.clear()))
    assert panel.svg.count("<use ") > data.participations.filter(pl.col("speed_mps").is_finite()).height
    assert f"{data.participations.height} participations" in panel.caption.replace("\u202f", " ")
    assert environment().filters["inline_svg"](panel.svg).startswith("<svg")
    assert (nothing.svg, nothing.caption) == ("", "Not drawn: no participation was recorded.")
