"""Writes the tables of a run from the simulation's log into the run directory; makes the schedule."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from arro3.core import Array, list_array

from vnetsim.coverage.windows import Floats, TrafficInfo, Window
from vnetsim.experiment.camera import Camera
from vnetsim.learning import Description
from vnetsim.storage.run_directory import RunDirectory, TablePieces
from vnetsim.storage.tables import REALS, WINDOWS

if TYPE_CHECKING:
    from vnetsim.experiment import Experiment
    from vnetsim.simulation.backhaul import RsuWire
    from vnetsim.simulation.log import SimulationLog

MetricRow = tuple[int, float, str, float, str]
"""Row of the table ``metrics``: round, time (s), name, value, aggregator."""
WHERE_ANY = ("exchanges", "handovers", "merges")
"""Tables that are written only if they have rows."""
SCHEDULE = "schedule.csv"
COLUMNS = (
    "round", "base_round", "vehicle_id", "rsu_id", "silo", "images", "weight", "start_s", "end_s", "download_s",
    "train_s", "upload_s", "work_share", "speed_mps", "level_px", "aggregator", "base_aggregator",
)  # fmt: skip
"""Columns of the schedule: those of the table ``participations``, and the silo's number of images. Without training,
the weight is that of FedAvg: the silo's share of the round's images."""


class RunTables:
    """The tables that grow during a run; ``entry_speeds_mps`` has the speed at entry (m/s) of each appended window."""

    def __init__(self, run: RunDirectory, experiment: Experiment) -> None:
        self._run = run
        self._windows = window_pieces(run, experiment)
        names = ("participations", "exchanges", "handovers", "merges", "metrics", "rounds")
        self._others: dict[str, TablePieces[Any]] = {name: TablePieces(run, name) for name in names}
        self.entry_speeds_mps = array("d")

    @property
    def _tables(self) -> list[TablePieces[Any]]:
        """The tables to write: ``windows``, then the others; exchanges, handovers and merges only if they have rows."""
        written = [table for name, table in self._others.items() if name not in WHERE_ANY or table.rows]
        return [self._windows, *written]

    def append(self, log: SimulationLog, metrics: Sequence[MetricRow], *, last: bool = False) -> None:
        """Append new rows of the log, and let it forget windows, participations, exchanges and handovers.

        Participations, exchanges and handovers of an open round wait until it has closed, or for the ``last`` call.
        ``metrics`` are all rows of that table so far. RunError if the disk is full.
        """
        finished = Counter(closed.aggregator for closed in log.rounds)
        for name, rows in (("rounds", log.rounds), ("merges", log.merges), ("metrics", metrics)):
            table = self._others[name]
            for row in rows[table.rows :]:
                table.append(row)
        for window in log.windows.since(self._windows.rows):
            self.entry_speeds_mps.append(window.entry_speed_mps)
            self._windows.append(window)
        log.windows.forget(self._windows.rows)
        for name in ("participations", "exchanges", "handovers"):
            table, growing = self._others[name], getattr(log, name)
            for row in growing.since(table.rows):
                if not last and row.round >= finished[row.aggregator]:
                    break  # keeps the order of the table
                table.append(row)
            growing.forget(table.rows)

    def save(self) -> None:
        """Write appended rows that are not on the disk yet; RunError if the disk is full or the folder not writable."""
        self._run.put({name: content for table in self._tables for name, content in table.unsaved().items()})

    def join(self) -> None:
        """Replace each table's pieces by one file; raises like ``save``, and InputError for a damaged piece."""
        joined = [table.joined() for table in self._tables]
        files = {name: content for whole, _ in joined for name, content in whole.items()}
        self._run.put(files, remove=[piece for _, pieces in joined for piece in pieces])


def window_pieces(run: RunDirectory, experiment: Experiment) -> TablePieces[Window]:
    """Return the growing table ``windows`` of a run, without rows."""
    return TablePieces(
        run,
        "windows",
        lambda rows, first: windows_frame(rows, experiment.camera, first),
        lambda window: 4 * len(window.path_time_s),  # values in the lists of a row
    )


def windows_frame(windows: Sequence[Window], camera: Camera, first: int = 0) -> pl.DataFrame:
    """Return windows as rows of the table ``windows``, numbered from ``first``; ``camera`` gives their blur level."""
    columns: dict[str, object] = {"window": range(first, first + len(windows))}
    for column in WINDOWS[1:]:
        if column.name == "level_px":
            columns[column.name] = [camera.level_px(window.entry_speed_mps) for window in windows]
        elif column.dtype == REALS:
            columns[column.name] = _list_column([getattr(window, column.name) for window in windows])
        else:
            columns[column.name] = [getattr(window, column.name) for window in windows]
    return pl.DataFrame(columns, schema_overrides={column.name: column.dtype for column in WINDOWS})


def _list_column(rows: Sequence[Floats]) -> pl.Series:
    """Return a column whose values are lists, one for each array; faster than polars, which converts one by one."""
    ends = np.cumsum([0, *map(len, rows)], dtype=np.int32)
    return pl.Series(list_array(Array.from_numpy(ends), Array.from_numpy(np.concatenate([[], *rows]))))


def map_rows(info: TrafficInfo) -> list[tuple[object, ...]]:
    """Return the rows of the table ``map``, one for each lane: index, x and y of its points (two lists, m)."""
    return [(index, lane[:, 0].tolist(), lane[:, 1].tolist()) for index, lane in enumerate(info.lanes)]


def backhaul_rows(wires: Mapping[str, RsuWire]) -> list[tuple[object, ...]]:
    """Return the rows of the table ``backhaul``: RSU, then bytes, messages and busy time (s), each down and up."""
    return [
        (rsu_id, one.down_bytes, one.up_bytes, one.down_messages, one.up_messages, one.down.busy_s, one.up.busy_s)
        for rsu_id, one in wires.items()
    ]


def images_of(description: Description) -> dict[int, int]:
    """Return the number of images by silo; {} if the task does not declare it."""
    counts = np.asarray(description.silo_label_counts)
    return {silo: int(row.sum()) for silo, row in enumerate(counts)} if counts.size else {}


def silo_rows(description: Description) -> list[tuple[object, ...]]:
    """Return the rows of the table ``silos``: silo, class, its name, number of images; empty without classes."""
    counts = np.asarray(description.silo_label_counts)
    names = [*enumerate(description.class_names)]
    return [(silo, label, name, int(row[label])) for silo, row in enumerate(counts) for label, name in names]


def schedule(participations: pl.DataFrame, rounds: pl.DataFrame, images: Mapping[int, int]) -> pl.DataFrame:
    """Return the columns ``COLUMNS`` of committed participations, in the order of their ``rounds``, then by index.

    A null weight becomes the silo's number of images divided by the sum over the round's commits; if ``images``
    (number by silo) is empty, 1 / number of commits.
    """
    order = rounds.select("aggregator", "round", closed=pl.int_range(pl.len()))
    committed = participations.filter(outcome="committed").join(order, on=("aggregator", "round"))
    committed = committed.sort("closed", "participation")
    counts = pl.col("silo").replace_strict(dict(images), default=None, return_dtype=pl.Int64)
    share = counts / counts.sum().over("closed") if images else 1 / pl.len().over("closed")
    return committed.with_columns(images=counts, weight=pl.coalesce("weight", share)).select(COLUMNS)
