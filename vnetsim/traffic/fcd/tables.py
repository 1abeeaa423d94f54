"""Time steps of a recording as columns, and the readers of CSV and Parquet tables.

Columns may have any names (``traffic.columns``). Rows may be sorted by vehicle instead of by time; they are then sorted
in memory.

SUMO 1.28 writes persons and containers into the columns of vehicles, with an edge and no lane; vehicles have a lane and
no edge. In mesoscopic simulations vehicles too have an edge and no lane; such a table is refused. In a table without
both columns, persons are recognised only by SUMO's own types.
"""

from __future__ import annotations

import csv
import gzip
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import IO, Any

import numpy as np
import polars as pl

from vnetsim.coverage.frames import Integers
from vnetsim.coverage.windows import Floats
from vnetsim.errors import InputError
from vnetsim.experiment.traffic import RECORDED
from vnetsim.storage.run_directory import damage_as_input_error

_BATCH_ROWS, _TEXT_ROWS = 1 << 16, 1 << 13
_NUMBERS = ("timestep_time", "vehicle_x", "vehicle_y", "vehicle_speed")
_REQUIRED = tuple(RECORDED[name] for name in ("time", "id", "x", "y"))
_WANTED = (
    "timestep_time (s, or hh:mm:ss), vehicle_id, vehicle_x and vehicle_y (m), vehicle_speed (m/s; without it, speeds "
    "are computed from the positions)"
)
_COMMAS = "Commas in the recording's numbers are read as decimal points."
_OTHER_NAMES = "--columns time=NAME,id=NAME,x=NAME,y=NAME,speed=NAME"
_UNITS = "--time-unit, --length-unit and --speed-unit"
_PERSONS = ("DEFAULT_PEDTYPE", "DEFAULT_CONTAINERTYPE")
_BACK = 0.5
"""Rows are out of order if a time decreases by more than this many mean steps; a smaller decrease is rounding."""
_LOOKED_AT = 100_000
"""Number of rows checked for their order, a limit on memory."""
_UNREADABLE = "not a readable Parquet file"
_LINE = "line"
"""Name of the column with each row's line number in a text file."""
ROW_COLUMNS = ("step", "ids", "x_m", "y_m", "speed_mps", "lanes", "types", "vehicle")
"""The columns of an ``FcdPart`` with one row for each vehicle and step."""


@dataclass(frozen=True, kw_only=True)
class Clock:
    """When a recording's vehicles are sampled."""

    # time (s) between rows of a vehicle: median over vehicles of each vehicle's median; None if unknown
    step_s: float | None
    common: bool  # whether all vehicles are sampled at the same instants


@dataclass(frozen=True, kw_only=True, eq=False)
class FcdPart:
    """Successive time steps of a recording."""

    time_s: Floats  # times of the steps (s)
    where: Sequence[str]  # file and line of each step, for messages
    step: Integers  # for each row (one vehicle in one step) its index into ``time_s``, sorted
    ids: Sequence[str]  # vehicle id of each row
    x_m: Floats  # x of each row (m)
    y_m: Floats  # y of each row (m)
    speed_mps: Floats  # speed of each row (m/s), NaN if missing
    lanes: Sequence[str | None]  # lane of each row, None if not recorded
    types: Sequence[str | None]  # type of each row, None if not recorded
    persons_known: bool = True  # whether the recording distinguishes persons from vehicles
    # number of each row's vehicle; ids are numbered in order of first appearance. The table readers leave it empty;
    # ``vnetsim.traffic.fcd.readers`` sets it.
    vehicle: Integers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    # when the recording's vehicles are sampled; unknown until ``vnetsim.traffic.fcd.clocks`` sets it
    clock: Clock = Clock(step_s=None, common=True)

    def between(self, first: int, end: int) -> FcdPart:
        """Return a part with the steps from ``first`` to ``end`` - 1, counted from 0 again; it may have none."""
        rows = slice(*np.searchsorted(self.step, (first, end)))
        columns = {name: getattr(self, name)[rows] for name in ROW_COLUMNS}
        columns["step"] = columns["step"] - first
        return replace(self, time_s=self.time_s[first:end], where=self.where[first:end], **columns)


def parse_seconds(text: str) -> float:
    """Parse a time (s): a number, ``nan``, ``inf``, or SUMO's ``[days:]hours:minutes:seconds``; else ValueError."""
    if found := re.fullmatch(r"(-?)(?:(\d+):)?(\d+):(\d+):(\d+\.?\d*)", text.strip()):
        days, hours, minutes = (int(part or 0) for part in found.groups()[1:4])
        return (-1 if found[1] else 1) * (86400 * days + 3600 * hours + 60 * minutes + float(found[5]))
    return float(text)


def read_csv(path: Path, columns: Mapping[str, str], notes: list[str]) -> Iterator[FcdPart]:
    """Yield the steps of a CSV recording, plain or gzipped, by time, with values as recorded; missing speeds are NaN.

    ``columns`` is ``traffic.columns``: by key, the names of columns that SUMO calls otherwise; a column with an empty
    name is not read. A note on each deviation from SUMO's format is appended to ``notes``. InputError for a missing
    column or a malformed row, after all steps before it if times ascend; OSError for an unreadable file; EOFError or
    zlib.error for a damaged gzip stream.
    """
    opener: Callable[..., IO[str]] = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8-sig", errors="replace", newline="") as file:
        header = file.readline().rstrip("\r\n")
        if "\0" in header:
            raise InputError(f"{path}: the text is UTF-16; convert it to UTF-8: iconv -f UTF-16 -t UTF-8 OLD > NEW.")
        separator = max(";,\t", key=header.count)
        names = [name.strip() for name in next(csv.reader([header], delimiter=separator), [])]
        wanted = _find_columns(path, names, columns)
        batches = _read_csv_batches(path, csv.reader(file, delimiter=separator, skipinitialspace=True), names, wanted)
        time = names.index(wanted["timestep_time"])
        rows = pl.scan_csv(
            path,
            glob=False,
            has_header=False,
            skip_rows=1,
            separator=separator,
            infer_schema=False,
            truncate_ragged_lines=True,
            encoding="utf8-lossy",
        )
        if separator != ",":
            batches = _replace_commas(batches, notes)
        yield from _divide_into_parts(path, wanted, _sort_by_time(path, rows, time, batches, notes))


def read_parquet(path: Path, columns: Mapping[str, str], notes: list[str]) -> Iterator[FcdPart]:
    """Yield the steps of a Parquet recording, as ``read_csv`` does; InputError also if it is unreadable."""
    table = pl.scan_parquet(path, glob=False)
    with damage_as_input_error(path, _UNREADABLE):
        schema = table.collect_schema()
    wanted = _find_columns(path, schema.names(), columns)
    for name, column in wanted.items():
        if name in (*_REQUIRED, *_NUMBERS) and not (schema[column].is_numeric() or schema[column] == pl.String):
            raise InputError(
                f"{path}: column '{column}' holds {schema[column]}; write numbers or text, times in seconds."
            )
    time = schema.names().index(wanted["timestep_time"])
    batches = _sort_by_time(path, table, time, _read_parquet_batches(path, wanted), notes)
    yield from _divide_into_parts(path, wanted, batches)


def _find_columns(path: Path, found: Sequence[str], renamed: Mapping[str, str]) -> dict[str, str]:
    """Return the table's names of columns by SUMO's names; InputError if a required or renamed column is missing."""
    names = {ours: renamed.get(short, ours) for short, ours in RECORDED.items()}
    needed = [names[name] for name in _REQUIRED] + [name for name in renamed.values() if name]
    missing = [name for name in dict.fromkeys(needed) if name not in found]
    if missing:
        shown = ", ".join(found[:20]) or "none"
        raise InputError(
            f"{path}: not an FCD table: no column {', '.join(map(repr, missing))}; it has {shown}. A recording has the "
            f"columns {_WANTED}. Name others with {_OTHER_NAMES}, and their units with {_UNITS}."
        )
    return {ours: name for ours, name in names.items() if name in found}


def _is_sorted_by_time(rows: pl.LazyFrame, time: int) -> bool:
    """Return whether times (``time``: column index) of the first rows decrease only by rounding; True if unreadable."""
    # in a table sorted by vehicle, times decrease where the second vehicle begins; a later decrease is refused later
    texts = pl.nth(time).cast(pl.String).str.strip_chars().str.replace(",", ".", literal=True)
    try:
        ahead = rows.head(_LOOKED_AT).select(texts.cast(pl.Float64, strict=False).diff().alias("ahead"))
        steps = pl.col("ahead").filter(pl.col("ahead") > 0)
        back = ahead.select(-pl.col("ahead").min() > _BACK * steps.mean().fill_null(0.0)).collect(engine="streaming")
    except (pl.exceptions.PolarsError, OSError):  # reading the rows later reports damage
        return True
    return not back.item()


def _replace_commas(batches: Iterator[pl.DataFrame], notes: list[str]) -> Iterator[pl.DataFrame]:
    """Yield batches with points for decimal commas in numbers; append one note if there are any."""
    for rows in batches:
        pointed = rows.with_columns(
            pl.col(name).str.replace(r"^([^.,]*),([^.,]*)$", "$1.$2") for name in _NUMBERS if name in rows.columns
        )
        if _COMMAS not in notes and not pointed.equals(rows):
            notes.append(_COMMAS)
        yield pointed


def _sort_by_time(
    path: Path, table: pl.LazyFrame, time: int, batches: Iterator[pl.DataFrame], notes: list[str]
) -> Iterator[pl.DataFrame]:
    """Yield batches by time (``time``: column index); if unsorted, read all and add a note; InputError if malformed."""
    if _is_sorted_by_time(table, time):
        yield from batches
        return
    notes.append("The recording is not in order of time; its rows were sorted in memory.")
    whole = []
    for batch in batches:
        rows, fault = _parse_numbers(path, batch)
        if fault is not None:
            raise fault
        whole.append(rows)
    yield from pl.concat(whole).sort("timestep_time", maintain_order=True).iter_slices(_BATCH_ROWS)


def _read_csv_batches(path: Path, rows: Any, names: list[str], wanted: Mapping[str, str]) -> Iterator[pl.DataFrame]:
    """Yield ``wanted`` columns as text, with line numbers; InputError for a malformed row, after the rows before."""
    fault: InputError | None = None
    cells = itemgetter(*map(names.index, wanted.values()))
    schema = {_LINE: pl.Int64(), **dict.fromkeys(wanted, pl.String())}

    def numbered() -> Iterator[tuple[int | str, ...]]:
        """Yield line number and wanted cells of each row; at a malformed row set ``fault`` and stop."""
        nonlocal fault
        try:
            for row in rows:
                line = rows.line_num + 1  # the header was read before the rows were counted
                if len(row) != len(names):
                    why = (
                        "the file may be cut off" if len(row) < len(names) else "decimal commas need another separator"
                    )
                    fault = InputError(f"{path}:{line}: {len(row)} columns instead of {len(names)}; {why}.")
                    return
                yield line, *cells(row)
        except csv.Error as error:
            fault = InputError(f"{path}:{rows.line_num + 1}: {error}.")

    lines = numbered()
    while batch := list(islice(lines, _TEXT_ROWS)):
        yield pl.DataFrame(list(zip(*batch, strict=True)), schema=schema)
    if fault is not None:
        raise fault


def _read_parquet_batches(path: Path, wanted: Mapping[str, str]) -> Iterator[pl.DataFrame]:
    """Yield the wanted columns under SUMO's names, with null for line numbers; InputError if unreadable."""
    table = pl.scan_parquet(path, glob=False).select(
        pl.lit(None, pl.Int64).alias(_LINE),
        *(
            pl.col(column).alias(name) if name in _NUMBERS else pl.col(column).cast(pl.String).alias(name)
            for name, column in wanted.items()
        ),
    )
    offset = 0
    while True:
        with damage_as_input_error(path, _UNREADABLE):
            batch = table.slice(offset, _BATCH_ROWS).collect()
        if batch.is_empty():
            return
        yield batch
        offset += batch.height


def _divide_into_parts(path: Path, names: Mapping[str, str], batches: Iterator[pl.DataFrame]) -> Iterator[FcdPart]:
    """Yield batches as parts of whole steps without persons; then InputError for a bad number, or for persons only."""
    kept = left_out = False
    rest: pl.DataFrame | None = None
    # a step without vehicles is one row without an id; before SUMO 1.28 rows of persons have no vehicle id either
    named = pl.col("vehicle_id").fill_null("") != ""
    for batch in batches:
        rows, fault = _parse_numbers(path, batch)
        rows = rows.with_columns(vehicle=named & ~_detect_persons(names), person=named & _detect_persons(names))
        kept, left_out = kept or rows["vehicle"].any(), left_out or rows["person"].any()
        rows = rows if rest is None else pl.concat((rest, rows))
        time_s = rows["timestep_time"].to_numpy()
        starts = np.flatnonzero(np.r_[True, time_s[1:] != time_s[:-1]][: rows.height]).tolist()
        if len(starts) > 1:  # the last step may continue in the next batch
            yield _make_part(path, rows[: starts[-1]], starts[:-1], names)
        rest = rows[starts[-1] :] if starts else None
        if fault is not None:
            raise fault
    if rest is not None:
        yield _make_part(path, rest, [0], names)
    if left_out and not kept:
        raise InputError(
            f"{path}: no row has a lane: either only persons and containers were recorded, or SUMO ran with "
            "--mesosim, whose rows do not tell persons from vehicles; record --fcd-output to an .xml file."
        )


def _parse_numbers(path: Path, rows: pl.DataFrame) -> tuple[pl.DataFrame, InputError | None]:
    """Return rows up to the first bad number, texts as numbers (NaN if missing), and the error for it or None."""
    first, fault = rows.height, None
    numbers = rows
    for name in _NUMBERS:
        if name not in rows.columns:
            values = pl.Series(name, np.full(rows.height, math.nan))
        elif rows.schema[name] != pl.String:
            values = rows[name].cast(pl.Float64)
        else:
            texts = rows[name].str.strip_chars()
            values = texts.cast(pl.Float64, strict=False)
            if (odd := values.is_null() & (texts != "")).any():
                if name == "timestep_time":
                    values = _parse_times(texts)
                wrong = (values.is_null() & odd).arg_true()
                if len(wrong) and wrong[0] < first:
                    first = wrong[0]
                    where = _format_position(path, rows[_LINE][first])
                    commas = "; write it without commas" if "," in rows[name][first] else ""
                    fault = InputError(f"{where}: {name} '{rows[name][first]}' is not a number{commas}.")
        numbers = numbers.with_columns(values)
    return numbers.head(first).with_columns(pl.col(_NUMBERS).fill_null(math.nan)), fault


def _parse_times(texts: pl.Series) -> pl.Series:
    """Return texts as times (s), with null for malformed and missing ones."""
    found: dict[str, float] = {}
    for text in texts.drop_nulls().unique():
        with suppress(ValueError):
            found[text] = parse_seconds(text)
    return texts.replace_strict(found, default=None, return_dtype=pl.Float64)


def _format_position(path: Path, line: int | None) -> str:
    """Return ``path:line`` for messages; the path alone if the line is unknown."""
    return str(path) if line is None else f"{path}:{line}"


def _detect_persons(names: Mapping[str, str]) -> pl.Expr:
    """Return a polars expression: true for persons and containers; false for all if columns ``names`` do not tell."""
    laneless = pl.col("vehicle_lane").fill_null("") == "" if "vehicle_lane" in names else pl.lit(value=True)
    if "vehicle_edge" in names:
        return laneless & (pl.col("vehicle_edge").fill_null("") != "")
    if "vehicle_lane" in names:
        return laneless
    if "vehicle_type" in names:
        return pl.col("vehicle_type").is_in(_PERSONS).fill_null(value=False)
    return pl.lit(value=False)


def _make_part(path: Path, rows: pl.DataFrame, starts: list[int], names: Mapping[str, str]) -> FcdPart:
    """Return rows, without those of persons, as one part; ``starts``: row indices at which its steps begin."""
    step = np.repeat(np.arange(len(starts)), np.diff([*starts, rows.height]))
    found = rows.filter("vehicle")
    x_m, y_m, speed_mps = (found[name].to_numpy() for name in _NUMBERS[1:])
    unknown = [None] * found.height
    return FcdPart(
        time_s=rows["timestep_time"].to_numpy()[starts],
        where=[_format_position(path, line) for line in rows[_LINE].gather(starts)],
        step=step[rows["vehicle"].to_numpy()],
        ids=found["vehicle_id"].to_list(),
        x_m=x_m,
        y_m=y_m,
        speed_mps=speed_mps,
        # polars columns, not lists: only a few rows are looked up
        lanes=found["vehicle_lane"] if "vehicle_lane" in names else unknown,  # type: ignore[arg-type]
        types=found["vehicle_type"] if "vehicle_type" in names else unknown,  # type: ignore[arg-type]
        persons_known="vehicle_lane" in names or "vehicle_edge" in names,
    )
