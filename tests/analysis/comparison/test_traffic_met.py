"""Whether runs met the traffic, and what is said and withheld where they did not, from made-up cells."""

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from made_cells import TRAFFIC, cell, comparison, condition

from analysis.comparison.data import ComparisonData
from analysis.comparison.measures import measure_table
from analysis.comparison.sections import Compared
from analysis.comparison.tables import terminal_tables
from analysis.comparison.traffic_met import arm_runs, decided_table, not_met, what_decided, who_drove_past
from analysis.report.invitations import Invitations, invitations_of
from analysis.statistics.windows import Dwell

CROSSES = Dwell(windows=100, cut=10, begun=0, median_s=30.0, at_least_s=28.0)
STANDS = Dwell(windows=100, cut=100, begun=0, median_s=np.inf, at_least_s=900.0)
LOSES = {"committed": 60, "left_training": 30, "stale": 10}
LATE = {"committed": 40, "stale": 56, "left_upload": 4}
HANDED = {"committed": 100}


def compared(
    *arms: dict[str, int], lasted_s: float = 100.0, dwell: Dwell = CROSSES, handed: int = 0, **more: Any
) -> ComparisonData:
    """Arms x, y, ... of which each is better than the one before at six seeds, with these outcomes in each cell."""
    cells = []
    for seed in range(6):
        for place, (name, outcomes) in enumerate(zip("xyz", arms, strict=False)):
            kernels_px = np.array([0.5, 1.5, 2.5])
            made = Invitations(outcomes=Counter(outcomes), handed_over=handed, kernels_px=kernels_px, image_px=32)
            figures = {"commits": float(outcomes.get("committed", 0))}
            given = {"invitations": made, "figures": figures, "traffic": replace(TRAFFIC, dwell=dwell), **more}
            values = [0.1, 0.2 + 0.1 * place + seed / 1000]
            cells.append(cell(name, seed, values, simulated_s=lasted_s, vehicles=80 + seed, **given))
    return comparison(condition(cells))


@pytest.mark.parametrize(
    ("data", "said", "verdict"),
    [
        (compared(LOSES, LOSES), "", "y higher"),
        (compared(LATE, LATE), "This comparison did not meet the traffic: x (4\u202f% of 600 inv", "withheld"),
        (compared(LOSES, LATE), "1 of 2 learners did not meet the traffic: y (4\u202f% of", "y higher"),
        (compared(LOSES, LOSES, lasted_s=7.5), "x (runs of 7.50\u202fs, median dwell 30.0\u202fs)", "withheld"),
        (compared(HANDED, HANDED, handed=12), "", "y higher"),
        (compared(LATE, LATE, dwell=STANDS), "Nobody leaves coverage in the recorded traffic", "y higher"),
        (compared({}, {}), "", "y higher"),
        (compared(LATE, LATE, settings={"schedule.learner": "x"}), "verdicts are given, and are on", "y higher"),
    ],
)  # fmt: skip
def test_whether_the_traffic_was_met(data, said, verdict):
    found = Compared(data)
    assert said in " ".join(found.unmet())
    assert bool(found.unmet()) == bool(said)
    ((pair,),) = [one.pairs for one in found.in_metrics]
    assert pair.verdict.startswith(verdict)
    assert pair.resolved == (0 if verdict == "withheld" else -1)
    assert any("has no verdict" in line for line in found.verdicts()) == (verdict == "withheld")
    assert found.tables()["comparison_differences"]["verdict"].to_list() == ["" if verdict == "withheld" else "y"]


def test_nothing_is_withheld_where_nobody_was_to_learn():
    data = compared(LATE, LATE)
    timed = replace(data, record=replace(data.record, timing_only=True))
    assert Compared(timed).unmet() == []
    assert "blurred" not in " ".join(Compared(timed).first_words())


def test_the_settings_that_would_change_it():
    (line,) = not_met(data := compared(LATE, LATE, settings={"round.max_staleness": 1}), arm_runs(data))
    for cure in ("--time in place of --rounds (now 100", "round.max_staleness (now 1)", "cost.model", "bandwidth_hz"):
        assert cure in line
    assert "round.invited" not in line, "with more at once more would be too late"
    assert "cost.images" not in line, "it does nothing for the model that is trained"
    (line,) = not_met(data := compared(HANDED, HANDED, lasted_s=7.5, ended_by="time"), arm_runs(data))
    assert "--time (now 7.50" in line
    assert "round.invited" in line


def test_the_first_words():
    data = compared(LOSES, LATE)
    assert who_drove_past(data) == "80 to 85 vehicles drove past in a run, in range for 30.0\u202fs in the median."
    first, _ = what_decided(arm_runs(data), learning=True)
    assert first.replace("\u202f", " ") == (
        "x: of 600 invitations 60 % ended in a committed update, 30 % were lost because the vehicle left coverage, "
        "10 % were ended by a rule of the round (too late, or its deadline); the images of 12 of 18 committed updates "
        "were blurred, by 2.00 px of 32 in the median."
    )
    assert what_decided(arm_runs(compared(HANDED)), learning=False) == [
        "x: of 600 invitations all ended in a committed update."
    ]
    many = comparison(*(replace(data.conditions[0], name=name) for name in "abc"))
    (line,) = what_decided(arm_runs(many), learning=True)
    assert "40\u202f% to 60\u202f% ended in a committed update, 4\u202f% to 30\u202f% were lost because" in line
    assert Compared(many).first_words()[1] == line


def test_the_table_of_what_decided_leads_the_terminal():
    data = compared(LOSES, {**LATE, "left_exchange": 100}, handed=50)
    table = decided_table(arm_runs(data), "t", "arm", learning=True)
    assert table.head == ("arm", "invited", "committed", "left", "exchange", "rule", "handed over", "blurred", "px")
    assert table.rows[1][:7] == ("y", "1\u202f200", *(f"{share}\u202f%" for share in (20, 2, 50, 28, 25)))
    assert table.rows[0][7:] == ("12 of 18", "2.00")
    found = Compared(short := compared(LATE, LATE))
    first = terminal_tables(short, found.in_metrics, found.runs, found.unmet())[0]
    assert first.title.startswith("80 to 85 vehicles drove past")
    assert first.note == found.unmet()[0]


def test_commits_of_short_runs_are_counted_and_not_extrapolated():
    (data,) = compared(LOSES, LATE).conditions
    table = measure_table(data, [], "arm")
    assert table.head == ("arm", "Commits")
    assert table.rows[0][1] == "60.0 \u00b1 0"
    long = replace(data, cells=tuple(replace(one, figures={**one.figures, "commits_per_h": 6.0}) for one in data.cells))
    table = measure_table(long, [], "arm")
    assert table.head == ("arm", "Commits per hour (1/h)")


def test_invitations_of_a_run():
    """Two commits at 20 and 40 m/s, a vehicle that left, one handed over and done, one handed over and lost."""
    names = ["committed", "committed", "left_training", "not_selected"]
    parts = pl.DataFrame({"outcome": names, "speed_mps": [20.0, 40.0, 30.0, 30.0]})
    fates = pl.DataFrame({"participation": [1, 1, 2], "fate": ["committed", "committed", "left_training"]})
    camera = SimpleNamespace(kernel_px=lambda speed_mps, _: 0.05 * speed_mps)
    run: Any = SimpleNamespace(
        participations=parts, invited=parts.head(3), handovers=fates, image_px=32,
        experiment=SimpleNamespace(camera=camera, blur=SimpleNamespace(threshold_kmh=80.0, fraction=1.0)),
    )  # fmt: skip
    found = invitations_of(run)
    assert (found.total, found.handed_over, found.road_share) == (3, 1, pytest.approx(2 / 3))
    assert found.kernels_px.tolist() == [0.0, 2.0]
    run.experiment.blur.fraction = 0.0
    assert invitations_of(run).how_blurred == "the images of all committed updates were sharp"
    assert np.isnan(Invitations().road_share)
    hardly = Invitations(outcomes=Counter(committed=299, left_upload=1))
    assert "under 1\u202f% were lost because the vehicle left coverage" in hardly.what_decided
    assert Invitations().how_blurred == ""
