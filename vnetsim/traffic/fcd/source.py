"""Recorded traffic: SUMO's floating-car data (FCD) as ``.xml``, ``.csv``, either gzipped, or ``.parquet``.

A recording holds positions, not reasons. So reasons are inferred, while reading: a vehicle seen for the first time
inside a disc departed there; one that vanishes inside a disc arrived; one that was seen before, was gone, and
reappears inside a disc was teleported. That the earlier disappearance was the teleport's beginning is not known in
time: it is recorded as an arrival, at the same instant at which the live simulation records a teleport. A teleport
within one step is known by a displacement that no speed explains; one shorter than that (about 50 m and a drive) looks
like a drive, which the live simulation knows better, from SUMO.

Positions must be in net coordinates (m). A recording made with ``--fcd-output.geo`` holds degrees and is refused; see
``vnetsim.traffic.fcd.step``.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from itertools import chain, islice, takewhile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vnetsim.coverage.frames import Frames
from vnetsim.coverage.placement import coordinates, place_rsus, read_pois
from vnetsim.coverage.rsu import Rsu
from vnetsim.coverage.tracker import Tracker, largest_move_m
from vnetsim.coverage.windows import CoverageEvent, EntryCause, ExitCause, Floats, TrafficInfo
from vnetsim.errors import InputError
from vnetsim.errors.paths import resolved
from vnetsim.experiment import Experiment, TrafficSettings
from vnetsim.experiment.traffic import REACH_M
from vnetsim.traffic.fcd.readers import read_fcd
from vnetsim.traffic.fcd.step import FcdStep, UnitsCheck
from vnetsim.traffic.net_file import NetFile
from vnetsim.traffic.opened import OpenedTraffic
from vnetsim.traffic.vehicle_types import TypeFilter, Verdicts

_PART_STEPS, _PART_ROWS = 64, 50_000
"""How much of a recording is looked at together, at most so many steps, or the step that reaches so many rows."""

_PERSONS_UNKNOWN = (
    "The recording has neither lanes nor edges: persons and containers in it, unless of SUMO's own types, cannot be "
    "told from vehicles and count as such."
)


_SHORT_TELEPORTS = "a teleport within one step that is hardly longer than a drive counts as driven, unlike live"


def open_recording(experiment: Experiment, **_: object) -> FcdTraffic:
    """Open the recording that an experiment names; it ends where it ends."""
    return FcdTraffic(Path(experiment.scenario), experiment.traffic)


class FcdTraffic(OpenedTraffic):
    """A recording.

    Args:
        path: the file.
        settings: the RSUs; ``net`` where they are named by junction.

    Raises:
        InputError: when no RSU is named, or the file is no FCD recording.
    """

    def __init__(self, path: Path, settings: TrafficSettings) -> None:
        if not path.is_file():
            raise InputError(f"{path}: no such file.")
        by_junction = [spec for spec in settings.rsu_places if coordinates(spec) is None]
        listed = read_pois(*settings.rsu_files)
        if not settings.rsu or (by_junction and not settings.net):
            problem = f"junction '{by_junction[0]}' needs the net" if by_junction else "a recording holds no RSU"
            raise InputError(
                f"{path}: {problem}; name RSUs with --rsu x,y[:range_m], "
                "or with --rsu JUNCTION[:range_m] and --set traffic.net=FILE.net.xml."
            )
        self._types = TypeFilter(settings)
        net = NetFile(Path(settings.net) if settings.net else None)
        self._path = path
        self._rsus, notes = place_rsus(
            settings.rsu_places,
            range_m=settings.range_m or REACH_M,
            net=net,
            where=settings.net,
            listed=listed,
            spacing_m=settings.rsu_spacing_m,
        )
        files: list[Path | str] = [path, *([net.path] if net.path else []), *settings.rsu_files]
        # Two steps are read ahead: they show the format, the first instant and the step.
        steps = read_fcd(path)
        first = tuple(islice(steps, 2))
        self._steps: Iterator[FcdStep] | None = chain(first, steps)
        begin_s = first[0].time_s if settings.begin_s is None else settings.begin_s
        self._begin_s = max(first[0].time_s, begin_s + settings.warmup_s)
        self._end_s = math.inf if settings.end_s is None else settings.end_s
        self._time_s = self._begin_s
        self._info = TrafficInfo(
            kind="fcd",
            begin_s=self._begin_s,
            end_s=None,
            step_s=first[1].time_s - first[0].time_s if len(first) > 1 else None,
            seed=None,
            inputs=tuple(str(resolved(file)) for file in files),
            notes=notes if first[0].persons_known else (*notes, _PERSONS_UNKNOWN),
            lanes=net.lanes(self._rsus),
            vehicles=f"{self._types.describe()}, as far as the recording names types; {_SHORT_TELEPORTS}",
            heights_m=self._types.heights_m,
        )

    def close(self) -> None:
        """Close the file; may be called twice."""
        self._steps = None

    def _late_note(self) -> str:
        """Return which vehicles were left out so far."""
        return self._types.note()

    def events(self) -> Iterator[CoverageEvent]:
        """Yield the coverage events; see ``vnetsim.coverage.windows.TrafficStream``. Can be read once.

        Raises:
            InputError: where the recording turns out to be damaged.
        """
        steps, self._steps = self._steps, None
        if steps is None:
            raise InputError(f"{self._path}: this recording was closed or already read; open it again.")
        tracker = Tracker(self._rsus)
        recorded = _Recorded(self._rsus, self._types, self._info.step_s or 0.0)
        units = UnitsCheck()
        last_s = -math.inf
        # as SUMO, whose last step begins before the end
        for part in _parts(takewhile(lambda step: step.time_s < self._end_s, units.seen(steps))):
            last_s = part[-1].time_s
            frames = recorded.frames(part, self._begin_s)
            if frames is not None:
                self._time_s = last_s
                yield from tracker.advance(frames, recorded)
        if last_s < self._begin_s:
            raise InputError(
                f"{self._path}: the recording ends at {last_s:g} s, before {self._begin_s:g} s, where traffic.begin_s "
                "and traffic.warmup_s have the windows begin."
            )
        units.finish(str(self._path))
        self._types.refuse_nobody(str(self._path))
        yield from tracker.finish(recorded)
        # A row tells where vehicles are when a step begins; the last step is as long as any, as in the live simulation.
        self._time_s += self._info.step_s or 0.0
        self._info = dataclasses.replace(self._info, end_s=self._time_s)


def _parts(steps: Iterator[FcdStep]) -> Iterator[list[FcdStep]]:
    """Yield as many steps at a time as are worth being looked at together."""
    part: list[FcdStep] = []
    rows = 0
    try:
        for step in steps:
            part.append(step)
            rows += len(step.ids)
            if len(part) == _PART_STEPS or rows >= _PART_ROWS:
                yield part
                part, rows = [], 0
    except InputError:  # what was read before the fault is played first
        if part:
            yield part
        raise
    if part:
        yield part


class _Recorded:
    """Makes frames of steps, and infers reasons (``vnetsim.coverage.frames.Observer``).

    Args:
        rsus: vehicles further from all of them than they can drive in a step are left out.
        types: who takes part.
        step_s: the recording's usual step (s).
    """

    def __init__(self, rsus: tuple[Rsu, ...], types: TypeFilter, step_s: float) -> None:
        self._rsus = rsus
        self._types = types
        self._vehicles: dict[str, int] = {}
        self._verdicts = Verdicts(types)
        self._time_s = math.nan
        self._step_s = step_s
        self._fastest_mps = 0.0

    def frames(self, part: list[FcdStep], begin_s: float) -> Frames | None:
        """Return the frames of a part of the recording from ``begin_s`` (s) on; None before that."""
        known, before = self._vehicles, len(self._vehicles)
        self._part = part
        self._starts = np.cumsum([0, *(len(step.ids) for step in part)])
        self._vehicle = np.array(
            [known.setdefault(name, len(known)) for step in part for name in step.ids], dtype=np.int64
        )
        self._new = np.zeros(len(self._vehicle), dtype=np.bool_)
        new = np.flatnonzero(self._vehicle >= before)
        self._new[new[np.unique(self._vehicle[new], return_index=True)[1]]] = True
        time_s = np.array([step.time_s for step in part])
        x_m, y_m, speed_mps = (
            np.concatenate(columns)
            for columns in zip(*((step.x_m, step.y_m, step.speed_mps) for step in part), strict=True)
        )
        gaps_s = np.diff(time_s, prepend=self._time_s)
        self._time_s = part[-1].time_s
        self._fastest_mps = max(self._fastest_mps, float(speed_mps.max(initial=0.0)))
        reach_m = float(largest_move_m(self._fastest_mps, float(np.nanmax(gaps_s, initial=self._step_s))))
        self._skipped = int(np.searchsorted(time_s, begin_s))
        rows = np.arange(self._starts[self._skipped], len(x_m))
        rows = rows[self._near(x_m[rows], y_m[rows], reach_m)]
        self._rows = rows = rows[self._verdicts.of(self._vehicle[rows], lambda row: self._kind(int(rows[row])))]
        if self._skipped == len(part):
            return None
        return Frames(
            time_s=time_s[self._skipped :],
            instant=np.repeat(np.arange(len(part)), np.diff(self._starts))[rows] - self._skipped,
            vehicle=self._vehicle[rows],
            x_m=x_m[rows],
            y_m=y_m[rows],
            speed_mps=speed_mps[rows],
            moved=np.zeros(len(rows), dtype=np.bool_),
        )

    def vehicle_id(self, row: int) -> str:
        """Return its recorded id."""
        step, index = self._place(self._rows[row])
        return step.ids[index]

    def vehicle_type(self, row: int) -> str:
        """Return its recorded type."""
        step, index = self._place(self._rows[row])
        return (step.types[index] if len(step.types) else None) or ""

    def edge(self, row: int) -> str:
        """Return the edge of its recorded lane."""
        step, index = self._place(self._rows[row])
        return ((step.lanes[index] if len(step.lanes) else None) or "").rpartition("_")[0]

    def appeared(self, row: int) -> EntryCause:
        """Return ``teleport`` for a vehicle seen before, elsewhere or a while ago, else ``departure``."""
        return "departure" if self._new[self._rows[row]] else "teleport"

    def vanished(self, vehicle: int, instant: int) -> ExitCause:
        """Return ``teleport`` for a vehicle that is elsewhere now, else ``arrival``."""
        present = slice(*self._starts[self._skipped + instant : self._skipped + instant + 2])
        return "teleport" if (self._vehicle[present] == vehicle).any() else "arrival"

    def _place(self, row: int) -> tuple[FcdStep, int]:
        """Return the step of a row of the part, and where it is in that."""
        step = int(np.searchsorted(self._starts, row, side="right")) - 1
        return self._part[step], int(row - self._starts[step])

    def _near(self, x_m: Floats, y_m: Floats, reach_m: float) -> NDArray[np.bool_]:
        """Return who is in a disc, or could be within one step."""
        near = np.zeros(len(x_m), dtype=np.bool_)
        far = np.arange(len(x_m))
        for rsu in self._rsus:
            hit = np.square(x_m[far] - rsu.x_m) + np.square(y_m[far] - rsu.y_m) <= (rsu.range_m + reach_m) ** 2
            near[far[hit]] = True
            far = far[~hit]
        return near

    def _kind(self, row: int) -> tuple[str, str | None, None, None]:
        """Return the id and the type of the vehicle of a row of the part, None where it has none."""
        step, index = self._place(row)
        type_id = (step.types[index] if len(step.types) else None) or None
        if not type_id and not (self._types.by_default or self._types.takes_all):
            raise InputError(
                f"{step.where}: vehicle '{step.ids[index]}' has no type in this recording; traffic.vehicle_types "
                "needs one."
            )
        return step.ids[index], type_id, None, None
