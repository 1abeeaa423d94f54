"""Event files of TensorBoard: metrics by round, at simulated time, and settings with the last metrics."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from analysis.export.paper import refuse_what_is_there
from analysis.loading import load
from vnetsim.storage.event_files import COMMITTED, EventFile, require_tensorboard
from vnetsim.storage.records import COMPARISON
from vnetsim.storage.run_directory import RunDirectory


def export_tensorboard(folder: Path, to: Path) -> Path:
    """Write event files of a run, or of each cell of a comparison that has begun, and return ``to``.

    The step is the number of rounds aggregated, the wall time the simulated time (s).

    Raises:
        InputError: neither a run nor a comparison, damaged, ``to`` holds something, or tensorboardX is not installed.
    """
    require_tensorboard()
    refuse_what_is_there(to)
    source = RunDirectory(folder)
    runs = {to: folder}
    if source.holds(COMPARISON):
        names = [Path(cell.folder).name for cell in source.comparison_record().cells]
        begun = [name for name in names if name != ".." and (folder / "cells" / name / "manifest.json").is_file()]
        runs = {to / name: folder / "cells" / name for name in begun}
    for place, path in runs.items():
        run = load(path)
        closed = run.rounds.group_by("round").agg(pl.col("close_s").max(), pl.col(COMMITTED).sum()).sort("round")
        events = EventFile(place)
        events.append((*row, "") for row in run.metrics.select("round", "time_s", "name", "value").iter_rows())
        events.append((round_ + 1, time_s, COMMITTED, number, "") for round_, time_s, number in closed.iter_rows())
        events.close(RunDirectory(path).settings())
    return to
