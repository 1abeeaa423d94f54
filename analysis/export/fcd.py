"""Export of vehicle positions in coverage as floating-car data, in SUMO's XML."""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import quoteattr

import polars as pl

from analysis.formatting import clean
from vnetsim.errors import InputError
from vnetsim.storage.folder import Folder
from vnetsim.storage.run_directory import RunDirectory

_ON_TIME_S = 1e-6


def export_fcd(folder: Path, to: Path) -> Path:
    """Write the positions of vehicles in coverage at every step of the traffic to ``to``, and return ``to``.

    Positions outside coverage, lanes and angles are unknown; positions between steps are not written. InputError:
    ``folder`` is no run, is damaged, or its traffic has no steps; ``to`` exists, or does not end in ``.xml``. RunError:
    ``to`` cannot be written.
    """
    if to.suffix != ".xml":
        raise InputError(f"{to}: expected a file that ends in .xml.")
    if to.exists():
        raise InputError(f"{to}: is there already; name a new file.")
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', "<fcd-export>"]
    for (time_s,), rows in _samples(folder).group_by("path_time_s", maintain_order=True):
        lines.append(f'    <timestep time="{time_s:.10g}">')
        for vehicle, kind, _, x_m, y_m, speed_mps in rows.iter_rows():
            names = f"id={quoteattr(clean(vehicle, 1000))} type={quoteattr(clean(kind, 1000))}"
            lines.append(f'        <vehicle {names} x="{x_m}" y="{y_m}" speed="{speed_mps}"/>')
        lines.append("    </timestep>")
    lines += ["</fcd-export>", ""]
    Folder(to.parent).write_output(to.name, "\n".join(lines).encode("utf-8", "replace"))
    return to


def _samples(folder: Path) -> pl.DataFrame:
    """Return vehicle, type, time, x, y and speed per vehicle and step, by time; InputError if traffic has no steps."""
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
    )
