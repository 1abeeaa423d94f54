"""A page that plays two runs in step and names the settings in which they differ."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from analysis.formatting import clean, count, percent, plural
from analysis.loading import WINDOW_KEY, RunData, load
from analysis.plots.place import map_panel
from analysis.report.page import environment
from analysis.report.playback import playback
from analysis.style import styled
from vnetsim.errors import InputError
from vnetsim.storage.folder import Folder
from vnetsim.storage.structure import flat

_NAME = "beside.html"
_MOST_NAMED = 3
"""Most differing settings in a title."""


def build_side_by_side(left: Path, right: Path) -> Path:
    """Write ``beside.html``, which plays two runs in step, into the folder of the first; return its path.

    InputError if a folder is no run directory, is damaged, or has no vehicle in coverage; RunError if writing fails.
    """
    runs = load(left), load(right)
    differing = _find_differences(*(flat(tomllib.loads(run.experiment_text)) for run in runs))
    sides: list[dict[str, object]] = []
    for place, (folder, run) in enumerate(zip((left, right), runs, strict=True)):
        played = playback(run)
        if played is None:
            raise InputError(f"{folder}: nobody was in coverage: there is nothing to play.")
        with styled():
            still = map_panel(run, f"map-{place}").svg
        named = ", ".join(f"{key} = {clean(values[place], 40)}" for key, values in differing.items())
        title = named or clean(folder.name, 60)
        sides.append({"title": title, "facts": _describe_run(run), "played": played, "still": still})
    page = (
        environment()
        .get_template("play.html.j2")
        .render(
            title=f"{runs[0].scenario}: two runs in step",
            subtitle=f"seeds {runs[0].manifest.seed} and {runs[1].manifest.seed}, vnetsim {runs[0].manifest.vnetsim}",
            warnings=[] if _saw_same_traffic(*runs) else ["The two runs saw different traffic: their vehicles differ."],
            sides=sides,
        )
    )
    Folder(left).write_output(_NAME, page.encode("utf-8", "replace"))
    return left / _NAME


def _describe_run(run: RunData) -> str:
    """Return a sentence on a run's commits, rounds and handovers; those of policy "drop" do not count as handovers."""
    invited = run.invited
    committed = invited.filter(outcome="committed").height
    share = ""
    if total := invited.height:
        share = f", {percent(committed / total, 0)} of {plural(total, 'invitation')}"
    kept = run.handovers.filter(pl.col("policy") != "drop").height
    handed = f", {plural(kept, 'handover')}" if kept else ""
    return f"{count(committed)} committed{share}, in {plural(run.rounds.height, 'round')}{handed}."


def _saw_same_traffic(left: RunData, right: RunData) -> bool:
    """Return whether both runs have equal windows, of those that ended while both lasted and that no end cut off."""
    end_s = min(run.windows["exit_s"].max() or 0.0 for run in (left, right))
    ended = [
        run.windows.filter((pl.col("exit_s") < end_s) & (pl.col("exit_cause") != "end")).select(*WINDOW_KEY, "exit_s")
        for run in (left, right)
    ]
    return ended[0].sort(WINDOW_KEY).equals(ended[1].sort(WINDOW_KEY))


def _find_differences(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the first three settings that differ, by dotted key, as (left, right) values; "-" for a missing one."""
    keys = dict.fromkeys((*left, *right))
    found = {key: (left.get(key, "-"), right.get(key, "-")) for key in keys if left.get(key) != right.get(key)}
    return dict(list(found.items())[:_MOST_NAMED])
