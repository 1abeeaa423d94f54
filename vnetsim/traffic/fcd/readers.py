"""Reads SUMO's floating-car data (FCD): XML, CSV (both also gzipped) and Parquet.

Steps are read in parts, so memory does not grow with the length of a recording.
"""

from __future__ import annotations

import gzip
import math
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path

import numpy as np

from vnetsim.coverage.tracker import largest_move_m
from vnetsim.coverage.windows import Floats
from vnetsim.errors import InputError
from vnetsim.experiment.traffic import TrafficSettings
from vnetsim.traffic.fcd.clocks import add_clock
from vnetsim.traffic.fcd.tables import FcdPart, parse_seconds, read_csv, read_parquet
from vnetsim.traffic.net_file import NetFile
from vnetsim.traffic.paths import FARTHEST
from vnetsim.traffic.sumo.config import is_true
from vnetsim.xml_files import XmlFile

METRES = {"m": 1.0, "ft": 0.3048}
METRES_PER_SECOND = {"m/s": 1.0, "km/h": 1 / 3.6, "ft/s": 0.3048, "mph": 0.44704}
_STEPS, _ROWS = 64, 50_000
"""Number of steps, or of rows, that complete a part of an XML file."""
COMPUTED = "Speeds that the recording does not have are computed from the positions."
_SEARCHED_ROWS = 50_000
"""Number of rows before and after in which a vehicle's neighbouring rows are searched."""
_NEARER = 1.5
"""The next drive of a vehicle is used if the previous one took more than this many times as long."""


def read_fcd(path: Path, settings: TrafficSettings, net: NetFile, notes: list[str]) -> Iterator[FcdPart]:
    """Yield the steps of a recording in m, s and m/s; the suffix of its name gives the format.

    Missing speeds are computed from the positions. ``net`` projects positions in degrees, if it has a place on the
    Earth. Notes for the user are appended to ``notes`` during reading. InputError, with file and line, if the recording
    is damaged or empty, times do not increase, a position is not finite, or a vehicle occurs twice in a step; all steps
    before the fault are yielded first.
    """
    return _add_speeds(_project_positions(_check_steps(path, settings, notes), net, notes), notes)


def _check_steps(path: Path, settings: TrafficSettings, notes: list[str]) -> Iterator[FcdPart]:
    """Yield a recording's steps, with NaN for missing speeds; InputError at the first fault, or for no step at all."""
    before_s = -math.inf
    for part in add_clock(_read_parts(path, settings, notes)):
        if fault := _find_first_fault(part, before_s):
            step, what = fault
            if step:
                yield part.between(0, step)
            raise InputError(f"{part.where[step]}: {what}")
        before_s = float(part.time_s[-1])
        yield part
    if before_s == -math.inf:
        raise InputError(f"{path}: the recording is empty: it has no time step.")


def _project_positions(parts: Iterator[FcdPart], net: NetFile, notes: list[str]) -> Iterator[FcdPart]:
    """Yield parts; if the first positions are degrees in the net, convert all to metres and append a note."""
    project: Callable[[Floats, Floats], tuple[Floats, Floats]] | None = None
    seen = False
    for part in parts:
        if not seen and len(part.ids):
            seen = True
            if net.place is not None and net.project_places(part.x_m, part.y_m) is not None:
                project = net.place.project
                notes.append("Positions are longitudes and latitudes, projected as the net says.")
        if project is None:
            yield part
        else:
            x_m, y_m = project(part.x_m, part.y_m)
            yield replace(part, x_m=x_m, y_m=y_m)


def _read_parts(path: Path, settings: TrafficSettings, notes: list[str]) -> Iterator[FcdPart]:
    """Yield a recording's parts in m, s, m/s (NaN: no speed), vehicles numbered; add notes; InputError if damaged."""
    name = path.name.removesuffix(".gz")
    reader = _read_xml if name.endswith(".xml") else read_csv if name.endswith(".csv") else read_parquet
    time_s, length_m = settings.time_unit_s, METRES[settings.length_unit]
    speed_mps = math.nan if settings.columns.get("speed") == "" else METRES_PER_SECOND[settings.speed_unit]
    numbers: dict[str, int] = {}
    try:
        for part in reader(path, settings.columns, notes):
            yield replace(
                part,
                vehicle=np.array([numbers.setdefault(name, len(numbers)) for name in part.ids], dtype=np.int64),
                time_s=part.time_s * time_s,
                x_m=part.x_m * length_m,
                y_m=part.y_m * length_m,
                speed_mps=part.speed_mps * speed_mps,
            )
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path}: damaged or cut off in the middle of the gzip stream: {error}.") from error
    except OSError as error:
        raise InputError(f"{path}: unreadable: {error.strerror or error}.") from error


def _find_first_fault(part: FcdPart, before_s: float) -> tuple[int, str] | None:
    """Return index and fault of a part's first faulty step, or None; ``before_s``: time of the step before the part."""
    earlier_s = np.append(before_s, part.time_s[:-1])
    found = [
        (step, f"time {part.time_s[step]} is not finite, or too far away; --time-unit names other units than s, as ms.")
        for step in np.flatnonzero(~(np.abs(part.time_s) <= FARTHEST))[:1].tolist()
    ]
    for step in np.flatnonzero(part.time_s <= earlier_s)[:1].tolist():
        times = f"time {part.time_s[step]:.15g} s follows {earlier_s[step]:.15g} s"
        found.append((step, f"{times}; a recording must be sorted by time."))
    pairs = part.step * (int(part.vehicle.max(initial=0)) + 1) + part.vehicle
    _, first = np.unique(pairs, return_index=True)
    if len(first) < len(pairs):
        row = int(np.setdiff1d(np.arange(len(pairs)), first)[0])
        step = int(part.step[row])
        found.append((step, f"vehicle '{part.ids[row]}' occurs twice at time {part.time_s[step]:.15g} s."))
    for quantity, values in (
        ("x", part.x_m),
        ("y", part.y_m),
        ("speed", np.nan_to_num(part.speed_mps, posinf=np.inf, neginf=-np.inf)),
    ):
        for row in np.flatnonzero(~(np.abs(values) <= FARTHEST))[:1].tolist():
            step, value = int(part.step[row]), values[row]
            what = f"is {value:g}, which no place is" if math.isfinite(value) else "is missing or not finite"
            found.append((step, f"{quantity} of vehicle '{part.ids[row]}' at time {part.time_s[step]:g} s {what}."))
    return min(found, key=itemgetter(0), default=None)


class _XmlHandler:
    """Collects the steps of an XML recording while ``file`` is read; complete parts are appended to ``parts``."""

    def __init__(self, path: Path) -> None:
        self.file = XmlFile(path, self._start, end=self._end, comment=self._comment)
        self.parts: list[FcdPart] = []
        self._depth = 0
        self._clear()

    def _clear(self) -> None:
        """Drop all rows and steps collected since the last complete part."""
        self._times_s: list[float] = []
        self._where: list[str] = []
        self._ends: list[int] = []  # for each complete step the number of rows up to its end
        self._rows: list[tuple[str, float, float, float, str | None, str | None]] = []

    def _comment(self, text: str) -> None:
        """Raise InputError if a comment, in which SUMO writes its configuration, shows a mesoscopic simulation."""
        found = re.search(r'<mesosim value="([^"]*)"', text)
        if found and is_true(found[1]):
            raise InputError(
                f"{self.file.where}: recorded with SUMO's mesoscopic model, whose vehicles jump from one section of "
                "road to the next: no positions to cover. Record it without mesosim."
            )

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        """Add a step or a vehicle; raise InputError for a malformed element or another kind of file."""
        self._depth += 1
        try:
            if self._depth == 3 and name == "vehicle":
                x_m, y_m = float(attributes["x"]), float(attributes["y"])
                speed_mps = float(attributes.get("speed", math.nan))
                lane, type_id = attributes.get("lane"), attributes.get("type")
                self._rows.append((attributes["id"], x_m, y_m, speed_mps, lane, type_id))
            elif self._depth == 1 and name != "fcd-export":
                raise InputError(
                    f"{self.file.where}: not an FCD recording: its root element is <{name}>, not <fcd-export>."
                )
            elif self._depth == 2:
                if name != "timestep":
                    raise InputError(f"{self.file.where}: expected <timestep>, found <{name}>.")
                self._times_s.append(parse_seconds(attributes["time"]))
                self._where.append(self.file.where)
        except KeyError as error:
            raise InputError(f"{self.file.where}: <{name}> has no attribute {error}.") from None
        except ValueError as error:
            raise InputError(f"{self.file.where}: <{name}> is malformed: {error}.") from None

    def _end(self, _: str) -> None:
        """Complete a step at its end tag; append a part to ``parts`` when it has 64 steps, or many rows."""
        self._depth -= 1
        if self._depth == 1:
            self._ends.append(len(self._rows))
            if len(self._ends) == _STEPS or (len(self._ends) > 1 and len(self._rows) >= _ROWS):
                self.flush()

    def flush(self) -> None:
        """Append the complete steps to ``parts`` as one part; drop an incomplete step."""
        if self._ends:
            steps, rows = len(self._ends), self._rows[: self._ends[-1]]
            ids, x_m, y_m, speed_mps, lanes, types = zip(*rows, strict=True) if rows else [()] * 6
            self.parts.append(
                FcdPart(
                    time_s=np.array(self._times_s[:steps], dtype=np.float64),
                    where=self._where,
                    step=np.repeat(np.arange(steps), np.diff(self._ends, prepend=0)),
                    ids=ids,
                    x_m=np.array(x_m, dtype=np.float64),
                    y_m=np.array(y_m, dtype=np.float64),
                    speed_mps=np.array(speed_mps, dtype=np.float64),
                    lanes=lanes,
                    types=types,
                )
            )
        self._clear()


def _read_xml(path: Path, columns: Mapping[str, str], _notes: list[str]) -> Iterator[FcdPart]:
    """Yield an XML recording's parts, values as recorded; InputError, after complete steps, or for renamed columns."""
    if any(columns.values()):
        raise InputError(f"{path}: traffic.columns names columns of tables; an XML recording has its own names.")
    handler = _XmlHandler(path)
    try:
        for _ in handler.file.pieces():
            yield from handler.parts
            handler.parts.clear()
    except InputError:  # yield complete steps first
        handler.flush()
        yield from handler.parts
        raise
    handler.flush()
    yield from handler.parts


def _add_speeds(parts: Iterator[FcdPart], notes: list[str]) -> Iterator[FcdPart]:
    """Yield parts with missing speeds (m/s) computed from positions; append a note if one was missing."""
    # mean speed since the vehicle's previous row; at its first row, and after a pause or jump, until its next row, or 0
    before: list[FcdPart] = []
    held: list[FcdPart] = []
    try:
        for part in parts:
            if not held and not np.isnan(part.speed_mps).any():
                before = [part]
                yield part
                continue
            if COMPUTED not in notes:
                notes.append(COMPUTED)
            held.append(part)
            rows = np.cumsum([len(one.ids) for one in held])
            if rows[-1] >= 2 * _SEARCHED_ROWS:
                first = int(np.searchsorted(rows, _SEARCHED_ROWS)) + 1
                done = _fill_speeds(before, held[:first], held[first:])
                yield from done
                before, held = done, held[first:]
    except InputError:  # yield complete parts first
        yield from _fill_speeds(before, held, [])
        raise
    yield from _fill_speeds(before, held, [])


def _fill_speeds(before: Sequence[FcdPart], parts: Sequence[FcdPart], after: Sequence[FcdPart]) -> list[FcdPart]:
    """Return ``parts`` with missing speeds (m/s) from positions in all given parts; 0 for a vehicle with one row."""
    if not any(np.isnan(part.speed_mps).any() for part in parts):
        return list(parts)
    every = [*before, *parts, *after]
    vehicle = np.concatenate([part.vehicle for part in every])
    order = np.argsort(vehicle, kind="stable")
    time_s = np.concatenate([part.time_s[part.step] for part in every])[order]
    x_m, y_m = (np.concatenate([getattr(part, name) for part in every])[order] for name in ("x_m", "y_m"))
    # for each row the drive that ends at it, and one more after the last row
    same = np.concatenate(([False], np.diff(vehicle[order]) == 0, [False]))
    step_s = np.where(same, np.concatenate(([np.nan], np.diff(time_s), [np.nan])), np.nan)
    moved_m = np.concatenate(([np.nan], np.hypot(np.diff(x_m), np.diff(y_m)), [np.nan]))
    mean_mps = moved_m / step_s
    beside_mps = np.fmax(np.append(np.nan, mean_mps[:-1]), np.append(mean_mps[1:], np.nan))
    mean_mps[moved_m > largest_move_m(beside_mps, step_s)] = np.nan  # a jump
    ends_mps, begins_mps = mean_mps[:-1], mean_mps[1:]
    begins = np.isnan(ends_mps) | (~np.isnan(begins_mps) & (step_s[:-1] > _NEARER * step_s[1:]))
    speed_mps = np.empty(len(order))
    speed_mps[order] = np.nan_to_num(np.where(begins, begins_mps, ends_mps))
    ends = np.cumsum([len(part.ids) for part in every])
    found = []
    for part, own in zip(every, np.split(speed_mps, ends[:-1]), strict=True):
        missing = np.isnan(part.speed_mps)
        found.append(replace(part, speed_mps=np.where(missing, own, part.speed_mps)) if missing.any() else part)
    return found[len(before) : len(before) + len(parts)]
