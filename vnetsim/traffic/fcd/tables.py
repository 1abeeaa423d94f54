"""Recordings as tables, CSV or Parquet, one time step at a time.

SUMO 1.28 writes persons and containers into the columns of vehicles: with an edge and no lane, where a vehicle has a
lane and no edge. A mesoscopic simulation gives all of them an edge and no lane; such a table is refused. A table with
neither column tells persons apart only if they are of SUMO's own types.
"""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vnetsim.errors import InputError
from vnetsim.standard_streams import panics_unheard
from vnetsim.traffic.fcd.step import FcdStep

_BATCH_ROWS = 1 << 16
_REQUIRED = ("timestep_time", "vehicle_id", "vehicle_x", "vehicle_y", "vehicle_speed")
_OPTIONAL = ("vehicle_lane", "vehicle_type", "vehicle_edge")
_PERSONS = ("DEFAULT_PEDTYPE", "DEFAULT_CONTAINERTYPE")


class _LaneWatch:
    """Whether any row of a table had a lane; without one, persons and vehicles of the table look alike."""

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self.lanes = "vehicle_lane" in names
        self.edges = "vehicle_edge" in names
        self.persons_known = self.lanes or self.edges
        self._path = path
        self._kept = False
        self._left_out = False

    def see(self, *, kept: bool, left_out: bool) -> None:
        self._kept |= kept
        self._left_out |= left_out

    def finish(self) -> None:
        """Refuse a table of which every row was taken for a person or container."""
        if self._left_out and not self._kept:
            raise InputError(
                f"{self._path}: no row has a lane: either only persons and containers were recorded, or SUMO ran with "
                "--mesosim, whose rows do not tell persons from vehicles; record --fcd-output to an .xml file."
            )


def _missing_columns(path: Path, found: Sequence[str]) -> InputError | None:
    missing = [name for name in _REQUIRED if name not in found]
    if not missing:
        return None
    shown = ", ".join(found[:20]) or "none"
    return InputError(f"{path}: not an FCD table: column '{missing[0]}' is missing; it has {shown}.")


def _strange_column(path: Path, schema: Mapping[str, Any]) -> InputError | None:
    """Return what is wrong with a column of a Parquet file that holds neither numbers nor text."""
    for name in _REQUIRED:
        if not (schema[name].is_numeric() or str(schema[name]) == "String"):
            return InputError(f"{path}: column '{name}' holds {schema[name]}; write numbers or text, times in seconds.")
    return None


def csv_steps(path: Path) -> Iterator[FcdStep]:
    """Yield the steps of a CSV recording, plain or gzipped."""
    with (
        gzip.open(path, "rt", encoding="utf-8-sig", errors="replace", newline="")
        if path.suffix == ".gz"
        else path.open(encoding="utf-8-sig", errors="replace", newline="")
    ) as file:
        header = file.readline().rstrip("\r\n")
        separator = max(";,\t", key=header.count)
        names = header.split(separator)
        if (error := _missing_columns(path, names)) is not None:
            raise error
        rows = csv.reader(file, delimiter=separator)
        watch = _LaneWatch(path, names)
        yield from _csv_rows(path, rows, names, watch)
        watch.finish()


def _csv_rows(path: Path, rows: Any, names: list[str], watch: _LaneWatch) -> Iterator[FcdStep]:
    width, at_time = len(names), names.index("timestep_time")
    text: str | None = None
    line = 2
    step: list[list[str]] = []
    try:
        for row in rows:
            # The header was read before the rows were counted.
            if len(row) != width:
                raise InputError(
                    f"{path}:{rows.line_num + 1}: {len(row)} columns instead of {width}; the file may be cut off."
                )
            if row[at_time] != text:
                if step:
                    yield _csv_step(step, names, f"{path}:{line}", watch)
                text, line, step = row[at_time], rows.line_num + 1, []
            step.append(row)
    except csv.Error as error:
        raise InputError(f"{path}:{rows.line_num + 1}: {error}.") from error
    if step:
        yield _csv_step(step, names, f"{path}:{line}", watch)


def _csv_step(rows: list[list[str]], names: list[str], where: str, watch: _LaneWatch) -> FcdStep:
    """Return the step of consecutive rows of one time; ``where`` is its first row."""
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    # A step without vehicles is one row of empty cells; before SUMO 1.28 rows of persons have no vehicle either.
    named = [bool(name) for name in columns["vehicle_id"]]
    keep = [index for index, known in enumerate(named) if known and not _is_person(columns, index, watch)]
    watch.see(kept=bool(keep), left_out=len(keep) < sum(named))
    if len(keep) < len(rows):
        columns = {name: tuple(cells[index] for index in keep) for name, cells in columns.items()}
    try:
        time_s = float(rows[0][names.index("timestep_time")])
        x_m, y_m, speed_mps = (
            np.array([float(cell) for cell in columns[name]], dtype=np.float64)
            for name in ("vehicle_x", "vehicle_y", "vehicle_speed")
        )
    except ValueError as error:
        raise InputError(f"{where}: in the time step that begins here: {error}.") from None
    return FcdStep(
        time_s=time_s,
        ids=columns["vehicle_id"],
        x_m=x_m,
        y_m=y_m,
        speed_mps=speed_mps,
        lanes=columns.get("vehicle_lane", ()),
        types=columns.get("vehicle_type", ()),
        where=where,
        persons_known=watch.persons_known,
    )


def _is_person(columns: dict[str, tuple[str, ...]], index: int, watch: _LaneWatch) -> bool:
    if watch.lanes and columns["vehicle_lane"][index]:
        return False
    if watch.edges:
        return bool(columns["vehicle_edge"][index])
    return watch.lanes or ("vehicle_type" in columns and columns["vehicle_type"][index] in _PERSONS)


def parquet_steps(path: Path) -> Iterator[FcdStep]:
    """Yield the steps of a Parquet recording."""
    import polars as pl  # noqa: PLC0415 - 0.1 s that the other formats need not pay

    def unreadable(error: BaseException) -> InputError:
        if "KeyboardInterrupt" in str(error):  # what Ctrl-C raises below Rust is a panic too
            raise error
        return InputError(f"{path}: not a readable Parquet file: {(str(error) or 'damaged').splitlines()[0]}.")

    faults = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError)

    try:
        with panics_unheard(pl.exceptions.PanicException):
            lazy = pl.scan_parquet(path, glob=False)
            schema = lazy.collect_schema()
    except faults as error:
        raise unreadable(error) from error
    names = schema.names()
    if (fault := _missing_columns(path, names) or _strange_column(path, schema)) is not None:
        raise fault
    optional = [name for name in _OPTIONAL if name in names]
    watch = _LaneWatch(path, names)
    lazy = lazy.select(
        *(pl.col(name).cast(pl.String if name == "vehicle_id" else pl.Float64) for name in _REQUIRED),
        *(pl.col(name).cast(pl.String) for name in optional),
    )
    rest: Any = None
    offset = 0
    while True:
        try:
            with panics_unheard(pl.exceptions.PanicException):
                batch = lazy.slice(offset, _BATCH_ROWS).collect()
        except faults as error:
            raise unreadable(error) from error
        last = batch.height < _BATCH_ROWS
        offset += batch.height
        frame = batch if rest is None else pl.concat((rest, batch))
        if frame.height:
            time_s = frame["timestep_time"].fill_null(math.nan).to_numpy()
            starts = np.flatnonzero(np.r_[True, time_s[1:] != time_s[:-1]])
            # The last step may go on in the next batch.
            complete = frame.height if last else int(starts[-1])
            yield from _table_steps(path, frame[:complete], starts[starts < complete], optional, watch)
            rest = None if last else frame[complete:]
        if last:
            watch.finish()
            return


def _table_steps(
    path: Path, frame: Any, starts: np.ndarray[Any, Any], optional: list[str], watch: _LaneWatch
) -> Iterator[FcdStep]:
    time_s, x_m, y_m, speed_mps = (
        frame[name].fill_null(math.nan).to_numpy()
        for name in ("timestep_time", "vehicle_x", "vehicle_y", "vehicle_speed")
    )
    vehicles = frame["vehicle_id"]
    ids = vehicles.to_list()
    # Lanes and types are looked up for few vehicles: they stay columns.
    columns = {name: frame[name] for name in optional}
    # A step without vehicles is one row of nulls; before SUMO 1.28 rows of persons have no vehicle either.
    persons = _persons(frame, watch)
    named = ~vehicles.is_null().to_numpy()
    watch.see(kept=bool((named & ~persons).any()), left_out=bool((named & persons).any()))
    skipped = ~named | persons
    gaps = skipped if skipped.any() else None
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), frame.height], strict=True):
        rows: Any = slice(start, end)
        names = ids[rows]
        if gaps is not None and gaps[rows].any():
            rows = start + np.flatnonzero(~gaps[rows])
            names = [ids[row] for row in rows.tolist()]
        yield FcdStep(
            time_s=float(time_s[start]),
            ids=names,
            x_m=x_m[rows],
            y_m=y_m[rows],
            speed_mps=speed_mps[rows],
            lanes=columns["vehicle_lane"][rows] if "vehicle_lane" in columns else (),
            types=columns["vehicle_type"][rows] if "vehicle_type" in columns else (),
            where=str(path),
            persons_known=watch.persons_known,
        )


def _persons(frame: Any, watch: _LaneWatch) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return which rows of a table are persons or containers; see ``_is_person``."""

    def filled(name: str) -> Any:
        return (frame[name].fill_null("") != "").to_numpy()

    none = np.zeros(frame.height, dtype=np.bool_)
    laneless = ~filled("vehicle_lane") if watch.lanes else ~none
    if watch.edges:
        laneless = laneless & filled("vehicle_edge")
    elif not watch.lanes:
        own = (
            (frame["vehicle_type"].is_in(_PERSONS).fill_null(value=False).to_numpy())
            if "vehicle_type" in frame.columns
            else none
        )
        laneless = laneless & own
    return laneless
