"""The gallery's pages: their commands run at a tiny size and leave what the pictures are drawn from."""

import runpy
from pathlib import Path

import pytest
from small_runs import execute

ROOT = Path(__file__).resolve().parents[2]
GALLERY = runpy.run_path(str(ROOT / "docs" / "gallery.py"), run_name="gallery")
ONE_SEED = ("--seeds", "0:1", "--workers", "1")
FEW = (
    *("--device", "cpu", "--yes", "--time", "12", "--set", "learning.steps=1"),
    *("--set", "data.train_images=190", "--set", "data.test_images=40"),
)
SECONDS = {
    **dict.fromkeys(("blur", "compression", "learner"), (*ONE_SEED, *FEW)),
    **dict.fromkeys(("handover", "speed", "equipped"), (*ONE_SEED, "--set", "traffic.warmup_s=0", "--end", "40")),
    "crossing": ("--end", "40"),
    "places": ("--end", "100"),
}
"""Options that make the command of a page short."""
SLOW = ("blur", "compression", "learner")


def test_each_page_has_its_picture():
    pages = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "gallery").glob("*.md")}
    assert pages.keys() == GALLERY["PICTURES"].keys()
    for name, text in pages.items():
        assert f"](../assets/gallery/{name}.svg)" in text
        assert (ROOT / "docs" / "assets" / "gallery" / f"{name}.svg").stat().st_size < 60_000
    assert {f"scenarios/gallery/{path.name}" for path in (ROOT / "scenarios" / "gallery").glob("*.toml")} <= {
        word for name in pages for word in GALLERY["command"](name)
    }


@pytest.mark.parametrize("page", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in SECONDS])
@pytest.mark.all_only
def test_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    words = [word for word in GALLERY["command"](page) if word not in ("--workers", "2")]
    execute(*words, *SECONDS[page], "--out", tmp_path / "out", status=0)
    picture = GALLERY["PICTURES"][page]
    if picture.endswith(".svg"):
        assert (tmp_path / "out" / picture).is_file()
    else:
        GALLERY["seeds_drawn"](tmp_path / "out" / "comparison.csv", picture, tmp_path / "drawn.svg")
        assert (tmp_path / "drawn.svg").is_file()
