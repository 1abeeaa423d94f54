"""Recorded traffic: SUMO's floating-car data (FCD) as ``.xml``, ``.csv``, either gzipped, or ``.parquet``.

A recording holds positions, not reasons. So reasons are inferred, while reading: a vehicle seen for the first time
inside a disc departed there; one that vanishes inside a disc arrived; one that was seen before, was gone, and
reappears inside a disc was teleported. That the earlier disappearance was the teleport's beginning is not known in
time: it is recorded as an arrival, at the same instant at which the live simulation records a teleport. A teleport
within one step is told by a displacement that no speed explains; one shorter than that (about 50 m and a drive) looks
like a drive, which the live simulation, told by SUMO, knows better.

Positions must be in net coordinates (m). A recording made with ``--fcd-output.geo`` holds degrees and is refused; see
``vnetsim.traffic.fcd.units``.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

import numpy as np

from vnetsim.coverage.placement import Poi, coordinates, place_rsus
from vnetsim.coverage.rsu import Rsu
from vnetsim.coverage.rsu_file import read_pois
from vnetsim.coverage.tracker import Sample, Tracker, largest_move_m
from vnetsim.coverage.windows import CoverageEvent, EntryCause, ExitCause, TrafficInfo
from vnetsim.errors import InputError
from vnetsim.experiment import Experiment, TrafficSettings
from vnetsim.paths import resolved
from vnetsim.special_files import refuse_special
from vnetsim.traffic.fcd.readers import read_fcd
from vnetsim.traffic.fcd.step import FcdStep
from vnetsim.traffic.fcd.units import UnitsCheck
from vnetsim.traffic.net_file import NetFile
from vnetsim.traffic.opened import OpenedTraffic
from vnetsim.traffic.vehicle_types import TypeFilter

_REMEMBERED = 100_000
"""Of this many vehicles that vanished last it is remembered that they existed; bounds memory."""

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
        refuse_special(path)
        if not path.is_file():
            raise InputError(f"{path}: no such file.")
        by_junction = [spec for spec in settings.rsu if coordinates(spec) is None]
        listed = read_pois(Path(settings.rsu_file)) if settings.rsu_file else ()
        if not (settings.rsu or listed) or (by_junction and not settings.net):
            problem = f"junction '{by_junction[0]}' needs the net" if by_junction else "a recording holds no RSU"
            raise InputError(
                f"{path}: {problem}; name RSUs with --rsu x,y[:range_m], "
                "or with --rsu JUNCTION[:range_m] and --set traffic.net=FILE.net.xml."
            )
        self._types = TypeFilter(settings)
        self._taken: set[str] = set()
        net = NetFile(Path(settings.net)) if settings.net else None
        self._path = path
        self._rsus, notes = place_rsus(
            settings.rsu,
            range_m=settings.range_m,
            net=net or _NoNet(),
            where=settings.net,
            listed=listed,
            spacing_m=settings.rsu_spacing_m,
        )
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
            inputs=(str(resolved(path)), *((str(resolved(net.path)),) if net else ()), *_listing(settings)),
            notes=notes if first[0].persons_known else (*notes, _PERSONS_UNKNOWN),
            lanes=net.lanes(self._rsus) if net else (),
            vehicles=f"{self._types.describe()}, as far as the recording names types; {_SHORT_TELEPORTS}",
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
        observer = _RecordingObserver()
        self._taken.clear()
        units = UnitsCheck()
        fastest_mps = 0.0
        last_s = -math.inf
        for step in steps:
            gap_s = step.time_s - last_s if last_s > -math.inf else self._info.step_s or 0.0
            last_s = step.time_s
            if len(step.ids):
                fastest_mps = max(fastest_mps, float(step.speed_mps.max()))
            observer.see(step)
            units.see(step)
            if step.time_s < self._begin_s:
                continue
            if step.time_s >= self._end_s:  # as SUMO, whose last step begins before the end
                break
            self._time_s = step.time_s
            reach_m = largest_move_m(fastest_mps, gap_s)
            yield from tracker.advance(step.time_s, [self._near(step, rsu, reach_m) for rsu in self._rsus], observer)
        if last_s < self._begin_s:
            raise InputError(
                f"{self._path}: the recording ends at {last_s:g} s, before {self._begin_s:g} s, where traffic.begin_s "
                "and traffic.warmup_s have the windows begin."
            )
        units.finish(str(self._path))
        self._types.refuse_nobody(str(self._path))
        yield from tracker.finish(observer)
        # A row tells where vehicles are when a step begins; the last step is as long as any, as in the live simulation.
        self._time_s += self._info.step_s or 0.0
        self._info = dataclasses.replace(self._info, end_s=self._time_s)

    def _near(self, step: FcdStep, rsu: Rsu, reach_m: float) -> Iterator[Sample]:
        """Yield the vehicles that take part and are inside the disc, or could be within one step."""
        radius_m = rsu.range_m + reach_m
        dx_m, dy_m = step.x_m - rsu.x_m, step.y_m - rsu.y_m
        chosen = np.flatnonzero(dx_m * dx_m + dy_m * dy_m <= radius_m * radius_m)
        columns = (values[chosen].tolist() for values in (step.x_m, step.y_m, step.speed_mps))
        for index, x_m, y_m, speed_mps in zip(chosen.tolist(), *columns, strict=True):
            name = step.ids[index]
            if name in self._taken or self._takes(step, index):
                yield name, x_m, y_m, speed_mps

    def _takes(self, step: FcdStep, index: int) -> bool:
        type_id = step.types[index] if len(step.types) else None
        if not type_id and not (self._types.by_default or self._types.takes_all):
            raise InputError(
                f"{step.where}: vehicle '{step.ids[index]}' has no type in this recording; traffic.vehicle_types and "
                "exclude_types need one."
            )
        if type_id and not self._types.takes(step.ids[index], type_id):
            return False
        self._taken.add(step.ids[index])
        return True


def _listing(settings: TrafficSettings) -> tuple[str, ...]:
    return (str(resolved(settings.rsu_file)),) if settings.rsu_file else ()


class _RecordingObserver:
    """Who was there when: infers reasons (``vnetsim.coverage.tracker.Observer``)."""

    def __init__(self) -> None:
        self._step: FcdStep | None = None
        self._present: frozenset[str] = frozenset()
        self._before: frozenset[str] = frozenset()
        self._gone: dict[str, None] = {}

    def see(self, step: FcdStep) -> None:
        """Move on to the next step."""
        self._step = step
        self._before, self._present = self._present, frozenset(step.ids)
        for name in self._before - self._present:
            self._gone.pop(name, None)
            self._gone[name] = None
        while len(self._gone) > _REMEMBERED:
            del self._gone[next(iter(self._gone))]

    def vehicle_type(self, vehicle_id: str) -> str:
        """Return its recorded type."""
        return self._text("types", vehicle_id)

    def edge(self, vehicle_id: str) -> str:
        """Return the edge of its recorded lane."""
        return self._text("lanes", vehicle_id).rpartition("_")[0]

    def appeared(self, vehicle_id: str) -> EntryCause:
        """Return ``teleport`` for a vehicle seen before, elsewhere or a while ago, else ``departure``."""
        return "teleport" if vehicle_id in self._before or vehicle_id in self._gone else "departure"

    def vanished(self, vehicle_id: str) -> ExitCause:
        """Return ``teleport`` for a vehicle that is elsewhere now, else ``arrival``."""
        return "teleport" if vehicle_id in self._present else "arrival"

    def _text(self, column: str, vehicle_id: str) -> str:
        step = self._step
        values = () if step is None else getattr(step, column)
        if step is None or len(values) == 0:
            return ""
        return values[step.ids.index(vehicle_id)] or ""


class _NoNet:
    """The net of a recording that names none."""

    def junction_ids(self) -> tuple[str, ...]:
        return ()

    def junction_position(self, junction_id: str) -> tuple[float, float]:
        raise InputError(f"junction '{junction_id}' needs the net file.")

    def rsu_pois(self) -> tuple[Poi, ...]:
        return ()

    def busiest_junction(self) -> tuple[str, str]:
        raise InputError("A recording holds no RSU.")

    def signalised_junctions(self, *, busiest_first: bool) -> tuple[str, ...]:
        raise InputError(f"the signalised junctions{' by traffic' if busiest_first else ''} need the net file.")

    def boundary(self) -> None:
        return None
