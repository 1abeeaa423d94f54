"""From what was simulated to the rows of the tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from vnetsim.coverage.windows import TrafficInfo, Window
from vnetsim.experiment.camera import Camera
from vnetsim.learning import Description
from vnetsim.storage.tables import REALS, WINDOWS


def windows_frame(windows: Sequence[Window], camera: Camera, first: int = 0) -> pl.DataFrame:
    """Return rows of the ``windows`` table, one a window, in the order given; ``first`` is the index of the first."""
    columns: dict[str, object] = {"window": range(first, first + len(windows))}
    for column in WINDOWS[1:]:
        if column.name == "level_px":
            columns[column.name] = [camera.level_px(window.entry_speed_mps) for window in windows]
        elif column.dtype == REALS:
            columns[column.name] = pl.Series(
                column.name, [getattr(window, column.name) for window in windows], dtype=REALS
            )
        else:
            columns[column.name] = [getattr(window, column.name) for window in windows]
    return pl.DataFrame(columns, schema_overrides={column.name: column.dtype for column in WINDOWS})


def map_rows(info: TrafficInfo) -> list[tuple[object, ...]]:
    """Return the ``map`` table: the lanes near the RSUs."""
    return [(index, lane[:, 0].tolist(), lane[:, 1].tolist()) for index, lane in enumerate(info.lanes)]


def images_of(description: Description) -> dict[int, int]:
    """Return the number of images by silo; empty for a task that does not tell."""
    counts = np.asarray(description.silo_label_counts)
    return {silo: int(row.sum()) for silo, row in enumerate(counts)} if counts.size else {}


def silo_rows(description: Description) -> list[tuple[object, ...]]:
    """Return the ``silos`` table: images per silo and class; empty for a task without classes."""
    counts = np.asarray(description.silo_label_counts)
    return [
        (silo, label, name, int(counts[silo, label]))
        for silo in range(counts.shape[0])
        for label, name in enumerate(description.class_names)
    ]
