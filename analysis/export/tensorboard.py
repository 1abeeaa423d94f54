"""Event files of TensorBoard: metrics by round, at simulated time, and settings with the last metrics."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from analysis.export.paper import refuse_what_is_there
from analysis.loading import flat, load
from vnetsim.errors import InputError
from vnetsim.storage.records import COMPARISON
from vnetsim.storage.run_directory import RunDirectory


def export_tensorboard(folder: Path, to: Path) -> Path:
    """Write event files of a run, or of each cell of a comparison that has begun, and return ``to``.

    The step is the number of rounds aggregated, the wall time the simulated time (s).

    Raises:
        InputError: neither a run nor a comparison, damaged, ``to`` holds something, or tensorboardX is not installed.
    """
    try:
        from tensorboardX import SummaryWriter  # noqa: PLC0415 - optional
    except ImportError:
        raise InputError("--tensorboard needs the package tensorboardX: pip install 'vnetsim[tensorboard]'.") from None
    refuse_what_is_there(to)
    source = RunDirectory(folder)
    runs = {to: folder}
    if source.holds(COMPARISON):
        names = [Path(cell.folder).name for cell in source.comparison_record().cells]
        begun = [name for name in names if name != ".." and (folder / "cells" / name / "manifest.json").is_file()]
        runs = {to / name: folder / "cells" / name for name in begun}
    for place, path in runs.items():
        run = load(path)
        last = {
            str(name): float(value) for name, value in run.metrics.sort("round").select("name", "value").iter_rows()
        }
        settings = flat(RunDirectory(path).settings()[0])
        committed = run.rounds.group_by("round").agg(pl.col("close_s").max(), pl.col("committed").sum()).sort("round")
        with SummaryWriter(logdir=str(place)) as writer:
            for round_, time_s, name, value in run.metrics.select("round", "time_s", "name", "value").iter_rows():
                writer.add_scalar(name, value, global_step=round_, walltime=time_s)
            for round_, time_s, number in committed.iter_rows():
                writer.add_scalar("committed", number, global_step=round_ + 1, walltime=time_s)
            _write_settings(writer, settings, last)
    return to


def _write_settings(writer: Any, settings: Mapping[str, Any], last: Mapping[str, float]) -> None:
    from tensorboardX.summary import hparams  # noqa: PLC0415 - optional

    shown = {
        key: value if isinstance(value, bool | int | float | str) else str(value) for key, value in settings.items()
    }
    for summary in hparams(shown, dict(last)):
        writer.file_writer.add_summary(summary)
