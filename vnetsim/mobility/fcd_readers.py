"""Readers of SUMO's floating-car data (FCD): XML, CSV (both also gzipped) and Parquet, one time step at a time.

Nothing is kept of a step that was handed out, so memory does not grow with the length of a recording. Persons and
containers are skipped.
"""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast
from xml.parsers import expat

import numpy as np

from vnetsim.coverage import Floats
from vnetsim.errors import InputError

_CHUNK_BYTES = 1 << 16
_BATCH_ROWS = 1 << 16


@dataclass(slots=True, eq=False)
class FcdStep:
    """The vehicles of one time step, as sequences of one length; ``lanes`` and ``types`` are empty where not recorded.

    ``where`` names the place in the file, for error messages.
    """

    time_s: float
    ids: Sequence[str]
    x_m: Floats
    y_m: Floats
    speed_mps: Floats
    lanes: Sequence[str | None]
    types: Sequence[str | None]
    where: str


def read_fcd(path: Path) -> Iterator[FcdStep]:
    """Yield the steps of a recording, its format told by its name.

    Raises:
        InputError: naming file and line, for anything that is not a complete FCD recording in strictly increasing
            time with finite values and each vehicle once per step.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file.")
    name = path.name.removesuffix(".gz")
    reader = _xml_steps if name.endswith(".xml") else _csv_steps if name.endswith(".csv") else _parquet_steps
    try:
        yield from _checked(path, reader(path))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path}: damaged or cut off in the middle of the gzip stream: {error}.") from error
    except OSError as error:
        raise InputError(f"{path}: unreadable: {error.strerror or error}.") from error


def _checked(path: Path, steps: Iterator[FcdStep]) -> Iterator[FcdStep]:
    before_s = -math.inf
    empty = True
    for step in steps:
        if not math.isfinite(step.time_s):
            raise InputError(f"{step.where}: time {step.time_s} is not finite.")
        if step.time_s <= before_s:
            raise InputError(
                f"{step.where}: time {step.time_s:g} s follows {before_s:g} s; a recording must be sorted by time."
            )
        before_s = step.time_s
        if len(set(step.ids)) < len(step.ids):
            seen: set[str] = set()
            twice = next(name for name in step.ids if name in seen or seen.add(name))  # type: ignore[func-returns-value]
            raise InputError(f"{step.where}: vehicle '{twice}' occurs twice at time {step.time_s:g} s.")
        for quantity, values in (("x", step.x_m), ("y", step.y_m), ("speed", step.speed_mps)):
            # One sum is far cheaper than a look at every value, and not finite exactly if one of them is not.
            if not math.isfinite(values.sum()) and not np.isfinite(values).all():
                name = step.ids[int(np.flatnonzero(~np.isfinite(values))[0])]
                raise InputError(
                    f"{step.where}: {quantity} of vehicle '{name}' at time {step.time_s:g} s is missing or not finite."
                )
        empty = False
        yield step
    if empty:
        raise InputError(f"{path}: the recording is empty: it has no time step.")


def _open(path: Path) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


class _XmlHandler:
    """Collects the steps that an expat parser meets."""

    def __init__(self, path: Path, parser: expat.XMLParserType) -> None:
        self.steps: list[FcdStep] = []
        self._path = path
        self._parser = parser
        self._depth = 0
        self._time_s = 0.0
        self._line = 0
        self._clear()
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        # SUMO writes no document type; entities are how small files expand to gigabytes or read other files.
        parser.EntityDeclHandler = self._refuse
        parser.ExternalEntityRefHandler = self._refuse

    def where(self) -> str:
        return f"{self._path}:{self._parser.CurrentLineNumber}"

    def _clear(self) -> None:
        self._ids: list[str] = []
        self._x_m: list[float] = []
        self._y_m: list[float] = []
        self._speed_mps: list[float] = []
        self._lanes: list[str | None] = []
        self._types: list[str | None] = []

    def _refuse(self, *_: object) -> int:
        raise InputError(f"{self.where()}: the file declares XML entities, which are not expanded; remove them.")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth == 3 and name == "vehicle":
            try:
                self._ids.append(attributes["id"])
                self._x_m.append(float(attributes["x"]))
                self._y_m.append(float(attributes["y"]))
                self._speed_mps.append(float(attributes["speed"]))
            except (KeyError, ValueError) as error:
                raise self._bad("vehicle", error) from None
            self._lanes.append(attributes.get("lane"))
            self._types.append(attributes.get("type"))
        elif self._depth == 1 and name != "fcd-export":
            raise InputError(f"{self.where()}: not an FCD recording: its root element is <{name}>, not <fcd-export>.")
        elif self._depth == 2:
            if name != "timestep":
                raise InputError(f"{self.where()}: expected <timestep>, found <{name}>.")
            try:
                self._time_s = float(attributes["time"])
            except (KeyError, ValueError) as error:
                raise self._bad("timestep", error) from None
            self._line = self._parser.CurrentLineNumber

    def _bad(self, element: str, error: Exception) -> InputError:
        what = f"has no attribute {error}" if isinstance(error, KeyError) else f"is malformed: {error}"
        return InputError(f"{self.where()}: <{element}> {what}.")

    def _end(self, _: str) -> None:
        self._depth -= 1
        if self._depth == 1:
            self.steps.append(
                FcdStep(
                    time_s=self._time_s,
                    ids=self._ids,
                    x_m=np.array(self._x_m, dtype=np.float64),
                    y_m=np.array(self._y_m, dtype=np.float64),
                    speed_mps=np.array(self._speed_mps, dtype=np.float64),
                    lanes=self._lanes,
                    types=self._types,
                    where=f"{self._path}:{self._line}",
                )
            )
            self._clear()


def _xml_steps(path: Path) -> Iterator[FcdStep]:
    parser = expat.ParserCreate()
    handler = _XmlHandler(path, parser)
    with _open(path) as file:
        while True:
            chunk = file.read(_CHUNK_BYTES)
            problem = None
            try:
                parser.Parse(chunk, not chunk)
            except expat.ExpatError as error:
                problem = error
            # What is complete counts, so that the error comes where reading arrives at it.
            yield from handler.steps
            handler.steps.clear()
            if problem is not None:
                what = expat.ErrorString(problem.code)
                cut = " (the file seems cut off)" if not chunk else ""
                raise InputError(f"{path}:{problem.lineno}: not well-formed XML: {what}{cut}.") from problem
            if not chunk:
                return


_REQUIRED = ("timestep_time", "vehicle_id", "vehicle_x", "vehicle_y", "vehicle_speed")
_OPTIONAL = ("vehicle_lane", "vehicle_type")


def _missing_columns(path: Path, found: Sequence[str]) -> InputError | None:
    missing = [name for name in _REQUIRED if name not in found]
    if not missing:
        return None
    shown = ", ".join(found[:20]) or "none"
    return InputError(f"{path}: not an FCD table: column '{missing[0]}' is missing; it has {shown}.")


def _csv_steps(path: Path) -> Iterator[FcdStep]:
    with (
        gzip.open(path, "rt", encoding="utf-8", errors="replace", newline="")
        if path.suffix == ".gz"
        else path.open(encoding="utf-8", errors="replace", newline="")
    ) as file:
        header = file.readline().rstrip("\r\n")
        separator = max(";,\t", key=header.count)
        names = header.split(separator)
        if (error := _missing_columns(path, names)) is not None:
            raise error
        rows = csv.reader(file, delimiter=separator)
        yield from _csv_rows(path, rows, names)


def _csv_rows(path: Path, rows: Any, names: list[str]) -> Iterator[FcdStep]:
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
                    yield _csv_step(step, names, f"{path}:{line}")
                text, line, step = row[at_time], rows.line_num + 1, []
            step.append(row)
    except csv.Error as error:
        raise InputError(f"{path}:{rows.line_num + 1}: {error}.") from error
    if step:
        yield _csv_step(step, names, f"{path}:{line}")


def _csv_step(rows: list[list[str]], names: list[str], where: str) -> FcdStep:
    """Return the step of consecutive rows of one time; ``where`` is its first row."""
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    if not all(columns["vehicle_id"]):
        # A step without vehicles is one row of empty cells; rows of persons have no vehicle either.
        keep = [index for index, name in enumerate(columns["vehicle_id"]) if name]
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
    )


def _parquet_steps(path: Path) -> Iterator[FcdStep]:
    import polars as pl  # noqa: PLC0415 - 0.1 s that the other formats need not pay

    def unreadable(error: Exception) -> InputError:
        return InputError(f"{path}: not a readable Parquet file: {str(error).splitlines()[0]}.")

    try:
        lazy = pl.scan_parquet(path, glob=False)
        names = lazy.collect_schema().names()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise unreadable(error) from error
    if (missing := _missing_columns(path, names)) is not None:
        raise missing
    optional = [name for name in _OPTIONAL if name in names]
    lazy = lazy.select(
        *(pl.col(name).cast(pl.String if name == "vehicle_id" else pl.Float64) for name in _REQUIRED),
        *(pl.col(name).cast(pl.String) for name in optional),
    )
    rest: Any = None
    offset = 0
    while True:
        try:
            batch = lazy.slice(offset, _BATCH_ROWS).collect()
        except (pl.exceptions.PolarsError, OSError) as error:
            raise unreadable(error) from error
        last = batch.height < _BATCH_ROWS
        offset += batch.height
        frame = batch if rest is None else pl.concat((rest, batch))
        if frame.height:
            time_s = frame["timestep_time"].fill_null(math.nan).to_numpy()
            starts = np.flatnonzero(np.r_[True, time_s[1:] != time_s[:-1]])
            # The last step may go on in the next batch.
            complete = frame.height if last else int(starts[-1])
            yield from _table_steps(path, frame[:complete], starts[starts < complete], optional)
            rest = None if last else frame[complete:]
        if last:
            return


def _table_steps(path: Path, frame: Any, starts: np.ndarray[Any, Any], optional: list[str]) -> Iterator[FcdStep]:
    time_s, x_m, y_m, speed_mps = (
        frame[name].fill_null(math.nan).to_numpy()
        for name in ("timestep_time", "vehicle_x", "vehicle_y", "vehicle_speed")
    )
    vehicles = frame["vehicle_id"]
    ids = vehicles.to_list()
    # Lanes and types are looked up for few vehicles: they stay columns.
    columns = {name: frame[name] for name in optional}
    # A step without vehicles is one row of nulls; rows of persons have no vehicle either.
    gaps = vehicles.is_null().to_numpy() if vehicles.null_count() else None
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
        )
