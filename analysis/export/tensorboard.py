"""Export to TensorBoard event files: metrics by round and simulated time, and settings with final metrics."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from analysis.export.paper import require_empty
from analysis.loading import load
from vnetsim.errors import InputError
from vnetsim.storage.records import COMPARISON
from vnetsim.storage.run_directory import RunDirectory
from vnetsim.storage.structure import flat

_SHOWN = (bool, int, float, str)
"""Types of settings that TensorBoard accepts; others are written as text."""


def export_tensorboard(folder: Path, to: Path) -> Path:
    """Write event files of a run, or of each started cell of a comparison into its own folder, and return ``to``.

    The step is the number of aggregated rounds, the wall time the simulated time (s). InputError: ``folder`` is no run
    or comparison or is damaged, ``to`` is not empty, or tensorboardX is not installed.
    """
    try:
        import tensorboardX  # noqa: F401, PLC0415 - optional
    except ImportError:
        raise InputError("--tensorboard needs the package tensorboardX: pip install 'vnetsim[tensorboard]'.") from None
    require_empty(to)
    source = RunDirectory(folder)
    runs = {to: folder}
    if source.holds(COMPARISON):
        names = [Path(cell.folder).name for cell in source.comparison_record().cells]
        cell_names = [name for name in names if name != ".." and (folder / "cells" / name / "manifest.json").is_file()]
        runs = {to / name: folder / "cells" / name for name in cell_names}
    for place, path in runs.items():
        _write_events(place, path)
    return to


def _write_events(to: Path, run_folder: Path) -> None:
    """Write metrics and commits by round, and settings with final metrics, of a run into the folder ``to``."""
    from tensorboardX import SummaryWriter  # noqa: PLC0415 - optional
    from tensorboardX.summary import hparams  # noqa: PLC0415 - optional

    run = load(run_folder)
    closed = run.rounds.group_by("round").agg(pl.col("close_s").max(), pl.col("committed").sum()).sort("round")
    settings = {
        key: value if isinstance(value, _SHOWN) else str(value)
        for key, value in flat(RunDirectory(run_folder).settings()).items()
    }
    last: dict[str, float] = {}
    writer = SummaryWriter(logdir=str(to))
    for round_, time_s, name, value in run.metrics.select("round", "time_s", "name", "value").iter_rows():
        writer.add_scalar(name, value, global_step=round_, walltime=time_s)
        last[name] = float(value)
    for round_, time_s, committed in closed.iter_rows():
        writer.add_scalar("committed", committed, global_step=round_ + 1, walltime=time_s)
    for summary in hparams(settings, last):
        writer.file_writer.add_summary(summary)
    writer.close()
