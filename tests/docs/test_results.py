"""The tables of the studies' results in the documentation are those that ``docs/results.py`` generates."""

import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from vnetsim.storage.tables import COMPARISON_DIFFERENCES

ROOT = Path(__file__).resolve().parents[2]


RESULTS = SimpleNamespace(**runpy.run_path(str(ROOT / "docs" / "results.py"), run_name="results"))
COLUMNS = (
    *("compared", "within", "first", "second", "metric", "unit"),
    *("seeds", "difference", "low", "high", "resolves", "verdict"),
)
MEASURED = [
    ("arms", "crossing", "FLSimCo", "FedAvg", "accuracy", "%", 10, 0.0214, 0.0051, 0.0377, 0.03, "FLSimCo"),
    ("conditions", "FedAvg", "blurred", "sharp", "accuracy", "%", 10, -0.0002, "", "", "", ""),
    ("arms", "", "CDL", "D-SGD", "rmse", "RMSE", 10, -0.0123, -0.02, -0.0001, 0.01, ""),
]


@pytest.mark.parametrize("name", RESULTS.PAGES)
def test_pages_show_the_tables_as_they_are_generated(name):
    """``python docs/results.py`` writes them."""
    text = (ROOT / name).read_text(encoding="utf-8")
    assert RESULTS.with_tables(text) == text
    assert len(RESULTS.BLOCK.findall(text)) == text.count("results.py: ") >= (name != "README.md")


def test_the_sentences_about_results_have_no_figures_that_could_drift():
    text = (ROOT / "docs" / "explanation" / "results.md").read_text(encoding="utf-8")
    sentences = re.findall(r"^- (.*(?:\n  .*)*)", text, re.MULTILINE)
    assert 0 < len(sentences) <= 10
    assert not re.search(r"\d", " ".join(sentences).replace("CIFAR-10", ""))


def test_a_study_with_a_row_file_has_a_line_for_each_change(tmp_path):
    assert set(COLUMNS) <= {column.name for column in COMPARISON_DIFFERENCES}
    head = "study,asks,arms,size,seeds,network,images,result,resolves,note\n"
    (tmp_path / "results.csv").write_text(f"{head}headline,what decides?,three,labels,,small,GTSRB,,,\n")
    rows = tmp_path / "rows" / "headline-labels.csv"
    with pytest.raises(ValueError, match=r"headline, labels: needs either a result or headline-labels\.csv"):
        RESULTS.results_table(tmp_path)
    rows.parent.mkdir()
    rows.write_text("".join(f"{','.join(map(str, row))}\n" for row in (COLUMNS, *MEASURED)))
    page = "A.\n<!-- results.py: headline -->\nold\n<!-- end -->\nB."
    assert RESULTS.with_tables(page, tmp_path).splitlines() == [
        "A.",
        "<!-- results.py: headline -->",
        "| change | GTSRB, three, 10 seeds |",
        "|---|---|",
        "| FLSimCo | **2.1 (0.5 to 3.8)** |",
        "| sharp - blurred | 0.0 (unbounded to unbounded) |",
        "| CDL | -.012 (-.020 to .000) |",
        "<!-- end -->",
        "B.",
    ]
    (row,) = RESULTS.results_table(tmp_path).splitlines()[2:]
    assert "| small, GTSRB, 10 | table of its page |" in row
    assert "- [`headline.toml`](headline.md): what decides?" in RESULTS.studies_table(tmp_path)
