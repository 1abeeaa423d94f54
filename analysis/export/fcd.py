"""Export of vehicle positions in coverage as floating-car data, in SUMO's formats."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.sax.saxutils import quoteattr

import polars as pl

from analysis.formatting import clean
from vnetsim.errors import InputError
from vnetsim.storage.folder import Folder
from vnetsim.storage.run_directory import RunDirectory

_ON_TIME_S = 1e-6
_COLUMNS = {
    "timestep_time": "path_time_s",
    "vehicle_id": "vehicle_id",
    "vehicle_speed": "path_speed_mps",
    "vehicle_type": "vehicle_type",
    "vehicle_x": "path_x_m",
    "vehicle_y": "path_y_m",
}
"""SUMO's column names, and the columns of the table ``windows`` that they come from."""


def export_fcd(folder: Path, to: Path) -> Path:
    """Write the positions of vehicles in coverage at every step of the traffic to ``to``, and return ``to``.

    Columns are named as in SUMO. Positions outside coverage, lanes and angles are not known. Entry and exit lie between
    steps and are not written; neither are windows that contain no step. InputError: ``folder`` is no run, is damaged,
    or has no steps; ``to`` exists, or has another suffix than ``.xml``, ``.csv``, ``.parquet``. RunError: it cannot be
    written.
    """
    if to.suffix not in _WRITERS:
        raise InputError(f"{to}: expected a file that ends in {', '.join(_WRITERS)}.")
    if to.exists():
        raise InputError(f"{to}: is there already; name a new file.")
    samples = _samples(folder)
    Folder(to.parent).write_output(to.name, _WRITERS[to.suffix](samples))
    return to


def _samples(folder: Path) -> pl.DataFrame:
    """Return a row per vehicle and step, by time, columns ``_COLUMNS``; InputError if the traffic has no steps."""
    run = RunDirectory(folder)
    traffic = run.manifest_record().traffic
    if not traffic.step_s:
        raise InputError(f"{folder}: traffic of {traffic.kind} has no steps, and so no floating-car data.")
    paths = ["path_time_s", "path_x_m", "path_y_m", "path_speed_mps"]
    points = run.scan("windows").collect(lambda rows: rows.select("vehicle_id", "vehicle_type", *paths).explode(paths))
    steps = (pl.col("path_time_s") - traffic.begin_s) / traffic.step_s
    return (
        points.filter((steps - steps.round()).abs() * traffic.step_s < _ON_TIME_S)
        .unique(["path_time_s", "vehicle_id"], keep="first", maintain_order=True)
        .sort("path_time_s", maintain_order=True)
        .select(pl.col(column).alias(name) for name, column in _COLUMNS.items())
    )


def _xml(samples: pl.DataFrame) -> bytes:
    """Return samples as SUMO's FCD output in XML."""

    def lines() -> Iterator[str]:
        yield '<?xml version="1.0" encoding="UTF-8"?>\n<fcd-export>\n'
        for (time_s,), rows in samples.group_by("timestep_time", maintain_order=True):
            yield f'    <timestep time="{time_s:.10g}">\n'
            for _, vehicle, speed, kind, x, y in rows.iter_rows():
                names = f"id={quoteattr(clean(vehicle, 1000))} type={quoteattr(clean(kind, 1000))}"
                yield f'        <vehicle {names} x="{x}" y="{y}" speed="{speed}"/>\n'
            yield "    </timestep>\n"
        yield "</fcd-export>\n"

    return "".join(lines()).encode("utf-8", "replace")


def _parquet(samples: pl.DataFrame) -> bytes:
    """Return samples as a Parquet file."""
    samples.write_parquet(buffer := io.BytesIO())
    return buffer.getvalue()


_WRITERS: dict[str, Callable[[pl.DataFrame], bytes]] = {
    ".xml": _xml,
    ".csv": lambda samples: samples.write_csv(separator=";").encode(),
    ".parquet": _parquet,
}
