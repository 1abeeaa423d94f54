"""What differs between the arms of the shipped studies, and what their page says: held to the files and to itself."""

import csv
import dataclasses
import functools
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from vnetsim.experiment import Experiment, ScheduleSettings
from vnetsim.learning.kinds import LEARNERS
from vnetsim.scenario.settings_file import to_plain
from vnetsim.study.plan import Plan
from vnetsim.study.request import plan_of

FOLDER = Path(__file__).parents[2] / "scenarios" / "studies"
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md") if path.stem != "README"}
FILES: dict[str, dict[str, Any]] = {
    path.stem: tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.toml"))
}
SIZES = [
    pytest.param(name, size, marks=[pytest.mark.slow] * (size != next(iter(file["sizes"]))))
    for name, file in FILES.items()
    for size in file["sizes"]
]
"""The quick suite has the default size of each study."""


@functools.cache
def planned(name: str, size: str) -> Plan:
    return plan_of(str(FOLDER / f"{name}.toml"), [], size=size, yes=True)[0]


def beside(experiment: Experiment, keys: Sequence[str]) -> dict[str, Any]:
    """Return the settings but those of the learner, of an equal schedule, and ``keys``."""
    plain = to_plain(dataclasses.replace(experiment, learner="", learning={}, schedule=ScheduleSettings()))
    for key in keys:
        *tables, last = key.split(".")
        functools.reduce(lambda table, name: table.get(name, {}), tables, plain).pop(last, None)
    return {key: value for key, value in plain.items() if value != {}}


def named(name: str, size: str, label: str) -> set[str]:
    """Return the learner's settings that the file gives the arm of a label: its own, and those of a grid."""
    file = FILES[name]
    grids = (file.get("grid", {}), file["sizes"][size].get("grid", {}))
    arms = [*file.get("arms", ()), *file["sizes"][size].get("arms", ())]
    of_arms = {arm["name"]: set(arm.get("learning", {})) for arm in arms if label.startswith(arm["name"])}
    return of_arms[max(of_arms, key=len)].union(*(grid.get("learning", {}) for grid in grids))


@pytest.mark.parametrize(("name", "size"), SIZES)
def test_arms_differ_in_the_learner_and_what_the_file_names_and_in_nothing_else(name, size):
    """Also not by the defaults that learners bring along: participation, data, radio, computers, blur, evaluation."""
    plan = planned(name, size)
    cells = [cell for cell in plan.cells if cell.experiment.seed == 0]
    firsts = {cell.condition: cell for cell in reversed(cells)}
    pairs = [(firsts[cell.condition], cell) for cell in cells if cell is not firsts[cell.condition]]
    assert pairs
    for one, other in pairs:
        assert beside(one.experiment, plan.arm_settings) == beside(other.experiment, plan.arm_settings)
        mine, theirs = (
            {**dataclasses.asdict(LEARNERS.find(cell.experiment.learner).Settings()), **cell.experiment.learning}
            for cell in (one, other)
        )
        differ = {key for key in mine.keys() & theirs.keys() if mine[key] != theirs[key]}
        assert differ <= named(name, size, one.arm) | named(name, size, other.arm), (one.arm, other.arm)


NUMBER = r"-?(?:\d+(?:\.\d+)?|\.\d+)"
INTERVAL = rf"({NUMBER}) \(({NUMBER}) to ({NUMBER})\)"
CELL = re.compile(rf"(\*\*)?{INTERVAL}(?(1)\*\*)")
"""A difference and its interval; bold where p <= .05."""


def resolution(written: str) -> float:
    """Return half of the last digit of a number as it is written."""
    return 0.5 * 10.0 ** -len(written.partition(".")[2])


@pytest.mark.parametrize("name", [name for name in PAGES if name.startswith(("cdl-", "fedefm-", "flsimco-"))])
def test_differences_and_intervals_on_the_page_agree(name):
    """An interval holds its difference, and leaves 0 out exactly where the cell is bold."""
    cells = [cell.strip() for line in PAGES[name].splitlines() if line.startswith("| ") for cell in line.split("|")]
    found = [match.groups() for cell in cells if (match := CELL.fullmatch(cell))]
    assert len(found) >= 2
    for bold, difference, low, high in found:
        assert float(low) <= float(difference) <= float(high)
        margin = max(resolution(low), resolution(high))
        outside = max(float(low), -float(high))
        assert outside >= -margin if bold else outside <= margin, (difference, low, high)


def test_the_results_of_all_studies_are_those_of_their_pages():
    """Every difference and interval, the seeds, and what would have been resolved; each page has its row."""
    with (FOLDER / "results.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        page = " ".join(PAGES[row["study"]].split())
        assert row["size"].removesuffix(" for 400 s") in FILES[row["study"]]["sizes"]
        if not row["result"]:
            continue  # its row file has the figures
        assert f"{row['seeds']} seeds" in page
        found = re.findall(INTERVAL, row["result"])
        assert found
        for difference, low, high in found:
            assert f"{difference} ({low} to {high})" in page or f"({difference}, {low} to {high}" in page, difference
        for number in re.findall(NUMBER, row["resolves"]):
            assert re.search(rf"(?<![\d.]){re.escape(number)}(?![\d.]*\d)", page), (row["study"], number)
    listed = {row["study"] for row in rows}
    assert listed == PAGES.keys() == {path.stem for path in FOLDER.glob("*.toml")}
