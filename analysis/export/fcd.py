"""What vehicles did in coverage, as floating-car data in the forms that SUMO writes."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.sax.saxutils import quoteattr

import numpy as np
import polars as pl

from analysis.formatting import clean
from vnetsim.errors import InputError
from vnetsim.storage.folder import Folder
from vnetsim.storage.run_directory import RunDirectory

STEP_S = 1.0
"""Between samples of traffic that has no steps of its own."""

_ON_TIME_S = 1e-6


def export_fcd(folder: Path, to: Path) -> Path:
    """Write where vehicles were at every step of the traffic while an RSU covered them, and return ``to``.

    The names are SUMO's. Nothing is known of vehicles outside of coverage, nor of lanes and angles. Entry and exit,
    which lie between steps, are not written, nor is a window in which no step falls.

    Raises:
        InputError: no run, or damaged; another ending than ``.xml``, ``.csv`` or ``.parquet``; ``to`` is there.
        RunError: ``to`` cannot be written.
    """
    if to.suffix not in _WRITERS:
        raise InputError(f"{to}: expected a file that ends in {', '.join(_WRITERS)}.")
    if to.exists():
        raise InputError(f"{to}: is there already; name a new file.")
    samples = _samples(folder)
    Folder(to.parent).write_output(to.name, _WRITERS[to.suffix](samples))
    return to


def _samples(folder: Path) -> pl.DataFrame:
    """Return a row a vehicle and step, in order of time; a vehicle that several RSUs cover is there once."""
    run = RunDirectory(folder)
    traffic = run.manifest_record().traffic
    step_s = traffic.step_s or STEP_S
    paths = ("path_time_s", "path_x_m", "path_y_m", "path_speed_mps")
    windows = run.scan("windows").collect(lambda rows: rows.select("vehicle_id", "vehicle_type", *paths))
    found = []
    for vehicle, kind, *path in windows.iter_rows():
        times, x, y, speed = (np.asarray(values) for values in path)
        first, last = (times[0] - traffic.begin_s) / step_s, (times[-1] - traffic.begin_s) / step_s
        steps = np.arange(np.ceil(first - _ON_TIME_S), np.floor(last + _ON_TIME_S) + 1)
        at = traffic.begin_s + steps * step_s
        found.append(
            pl.DataFrame({
                "timestep_time": at.round(6),
                "vehicle_id": [vehicle] * len(at), "vehicle_speed": np.interp(at, times, speed),
                "vehicle_type": [kind] * len(at), "vehicle_x": np.interp(at, times, x),
                "vehicle_y": np.interp(at, times, y),
            })
        )  # fmt: skip
    if not found:
        raise InputError(f"{folder}: no vehicle was in coverage; there is nothing to write.")
    once = pl.concat(found).unique(["timestep_time", "vehicle_id"], keep="first", maintain_order=True)
    return once.sort("timestep_time", maintain_order=True)


def _xml(samples: pl.DataFrame) -> bytes:
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
    samples.write_parquet(buffer := io.BytesIO())
    return buffer.getvalue()


_WRITERS: dict[str, Callable[[pl.DataFrame], bytes]] = {
    ".xml": _xml,
    ".csv": lambda samples: samples.write_csv(separator=";").encode(),
    ".parquet": _parquet,
}
