"""The gallery's pictures: ``python docs/gallery.py [PAGE ...]`` runs the command of each page and writes its picture.

Runs are below ``runs/gallery``; a second call continues there.
"""

from __future__ import annotations

import csv
import re
import shlex
import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[1]
PICTURES = {
    "crossing": "figures/outcomes.svg",
    "learner": "figures/differences-all.svg",
    "blur": "accuracy",
    "places": "map.svg",
    "compression": "figures/overview-accuracy.svg",
    "handover": "committed_invited",
    "speed": "committed_invited",
    "equipped": "commits",
}
"""Page, and the figure that its command writes, or the metric of its comparison that is drawn here."""
LABELS = {"accuracy": "accuracy (%)", "committed_invited": "invitations that committed (%)", "commits": "commits"}


def command(page: str) -> list[str]:
    """Return the words of a page's command after ``vnetsim``."""
    text = (ROOT / "docs" / "gallery" / f"{page}.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^    vnetsim (.*)$", text, re.MULTILINE)
    return shlex.split(line)


def seeds_drawn(table: Path, metric: str, to: Path) -> None:
    """Draw a metric of ``comparison.csv``: a dot per seed and the mean, a row per condition and arm."""
    values: dict[str, list[float]] = {}
    with table.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["metric"] == metric]
    several = len({row["arm"] for row in rows}) > 1
    for row in rows:
        name = f"{row['condition']}, {row['arm']}" if several else row["condition"]
        values.setdefault(name, []).append(float(row["value"]) * (100 if row["unit"] == "%" else 1))
    figure = Figure(figsize=(6.4, 0.8 + 0.4 * len(values)), layout="constrained")
    axes = figure.subplots()
    for place, found in enumerate(values.values()):
        axes.plot(found, [place] * len(found), "o", color="#0072b2", alpha=0.4, markersize=4)
        axes.plot(sum(found) / len(found), place, "D", color="#111111", markersize=5)
    axes.set_yticks(range(len(values)), list(values))
    axes.set_ylim(len(values) - 0.4, -0.6)
    axes.set_xlim(left=0)
    axes.set_xlabel(f"{LABELS[metric]}; dots: seeds, diamond: mean")
    axes.grid(axis="x", color="#dddddd", linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": metric}), to.open("wb") as drawn:
        figure.savefig(drawn, format="svg", metadata={"Date": None})


def _rounded(number: re.Match[str]) -> str:
    """Return a coordinate with fewer digits; numbers below 1 may be scales and are not matched."""
    value = float(number[0])
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def main(names: list[str]) -> None:
    """Run the commands of the pages and write their pictures."""
    for page in names or PICTURES:
        folder, picture = ROOT / "runs" / "gallery" / page, PICTURES[page]
        source = folder / (picture if picture.endswith(".svg") else "comparison.csv")
        if not source.is_file():
            words = [sys.executable, "-m", "vnetsim", *command(page), "--out", str(folder)]
            subprocess.run(words, cwd=ROOT, check=True)  # noqa: S603 - a command of our own pages
        to = ROOT / "docs" / "assets" / "gallery" / f"{page}.svg"
        if picture in LABELS:
            seeds_drawn(source, picture, to)
            continue
        drawn = re.sub(r"(?<![\w.#])[1-9]\d*\.\d+", _rounded, source.read_text(encoding="utf-8"))
        to.write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
