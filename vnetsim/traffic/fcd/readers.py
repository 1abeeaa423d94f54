"""Readers of SUMO's floating-car data (FCD): XML, CSV (both also gzipped) and Parquet, one time step at a time.

Nothing is kept of a step that was handed out, so memory does not grow with the length of a recording.
"""

from __future__ import annotations

import gzip
import math
import re
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from vnetsim.errors import InputError
from vnetsim.traffic.fcd.step import FcdStep
from vnetsim.traffic.fcd.tables import csv_steps, parquet_steps
from vnetsim.traffic.sumo.config import is_true
from vnetsim.xml_files import XmlFile

_FARTHEST = 1e10
"""No coordinate (m), speed (m/s) or time (s) of a recording is beyond; their squares are still finite."""


def read_fcd(path: Path) -> Iterator[FcdStep]:
    """Yield the steps of a recording, its format known by its name.

    Raises:
        InputError: naming file and line, for anything that is not a complete FCD recording in strictly increasing
            time with finite values and each vehicle once per step.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file.")
    name = path.name.removesuffix(".gz")
    reader = _xml_steps if name.endswith(".xml") else csv_steps if name.endswith(".csv") else parquet_steps
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
        if not abs(step.time_s) <= _FARTHEST:
            raise InputError(f"{step.where}: time {step.time_s} is not finite, or too far away.")
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
            # two ends are far cheaper than a look at every value, and NaN is at both
            if not (values.max(initial=0) <= _FARTHEST and values.min(initial=0) >= -_FARTHEST):
                index = int(np.flatnonzero(~(np.abs(values) <= _FARTHEST))[0])
                found = float(values[index])
                what = f"is {found:g}, which no place is" if math.isfinite(found) else "is missing or not finite"
                raise InputError(
                    f"{step.where}: {quantity} of vehicle '{step.ids[index]}' at time {step.time_s:g} s {what}."
                )
        empty = False
        yield step
    if empty:
        raise InputError(f"{path}: the recording is empty: it has no time step.")


class _XmlHandler:
    """Collects the steps of an XML recording while it is read."""

    def __init__(self, path: Path) -> None:
        self.file = XmlFile(path, self._start, end=self._end, comment=self._comment)
        self.steps: list[FcdStep] = []
        self._depth = 0
        self._time_s = 0.0
        self._where = ""
        self._clear()

    def _clear(self) -> None:
        self._ids: list[str] = []
        self._x_m: list[float] = []
        self._y_m: list[float] = []
        self._speed_mps: list[float] = []
        self._lanes: list[str | None] = []
        self._types: list[str | None] = []

    def _comment(self, text: str) -> None:
        """Look at the configuration that SUMO writes above what it records."""
        found = re.search(r'<mesosim value="([^"]*)"', text)
        if found and is_true(found[1]):
            raise InputError(
                f"{self.file.where}: recorded with SUMO's mesoscopic model, whose vehicles jump from one section of "
                "road to the next: no positions to cover. Record it without mesosim."
            )

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
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
            raise InputError(
                f"{self.file.where}: not an FCD recording: its root element is <{name}>, not <fcd-export>."
            )
        elif self._depth == 2:
            if name != "timestep":
                raise InputError(f"{self.file.where}: expected <timestep>, found <{name}>.")
            try:
                self._time_s = float(attributes["time"])
            except (KeyError, ValueError) as error:
                raise self._bad("timestep", error) from None
            self._where = self.file.where

    def _bad(self, element: str, error: Exception) -> InputError:
        what = f"has no attribute {error}" if isinstance(error, KeyError) else f"is malformed: {error}"
        return InputError(f"{self.file.where}: <{element}> {what}.")

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
                    where=self._where,
                )
            )
            self._clear()


def _xml_steps(path: Path) -> Iterator[FcdStep]:
    handler = _XmlHandler(path)
    for _ in handler.file.pieces():
        # What is complete counts, so that an error comes where reading arrives at it.
        yield from handler.steps
        handler.steps.clear()
