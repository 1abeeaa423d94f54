"""Recorded traffic: SUMO's floating-car data (FCD) as ``.xml``, ``.csv``, either gzipped, or ``.parquet``.

A recording holds positions, not reasons. So reasons are inferred, while reading: a vehicle seen for the first time
inside a disc departed there; one that vanishes inside a disc arrived; one that was seen before, was gone, and
reappears inside a disc was teleported. That the earlier disappearance was the teleport's beginning is not known in
time: it is recorded as an arrival, at the same instant at which the live simulation records a teleport.

Positions must be in net coordinates (m). A recording made with ``--fcd-output.geo`` holds degrees and cannot be told
from one in metres: do not use that option.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

import numpy as np

from vnetsim.coverage import CoverageEvent, EntryCause, ExitCause, TrafficInfo
from vnetsim.errors import InputError
from vnetsim.experiment import TrafficSettings
from vnetsim.mobility.fcd_readers import FcdStep, read_fcd
from vnetsim.mobility.net_file import NetFile
from vnetsim.rsu import Poi, Rsu, coordinates, place_rsus
from vnetsim.tracker import Sample, Tracker, largest_move_m

_REMEMBERED = 100_000
"""Of this many vehicles that vanished last it is remembered that they existed; bounds memory."""


class FcdTraffic:
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
        by_junction = [spec for spec in settings.rsu if coordinates(spec) is None]
        if not settings.rsu or (by_junction and not settings.net):
            problem = f"junction '{by_junction[0]}' needs the net" if by_junction else "a recording holds no RSU"
            raise InputError(
                f"{path}: {problem}; name RSUs with --rsu x,y[:range_m], "
                "or with --rsu JUNCTION[:range_m] and --set traffic.net=FILE.net.xml."
            )
        net = NetFile(Path(settings.net)) if settings.net else None
        self._path = path
        self._rsus, notes = place_rsus(settings.rsu, range_m=settings.range_m, net=net or _NoNet(), where=settings.net)
        # Two steps are read ahead: they show the format, the first instant and the step.
        steps = read_fcd(path)
        first = tuple(islice(steps, 2))
        self._steps: Iterator[FcdStep] | None = chain(first, steps)
        self._time_s = first[0].time_s
        self._info = TrafficInfo(
            kind="fcd",
            begin_s=first[0].time_s,
            end_s=None,
            step_s=first[1].time_s - first[0].time_s if len(first) > 1 else None,
            seed=None,
            inputs=(str(path.resolve()), *((str(net.path.resolve()),) if net else ())),
            notes=notes,
            lanes=net.lanes(self._rsus) if net else (),
        )

    @property
    def rsus(self) -> tuple[Rsu, ...]:
        """The RSUs, at least one."""
        return self._rsus

    @property
    def info(self) -> TrafficInfo:
        """What the record says of this traffic."""
        return self._info

    @property
    def time_s(self) -> float:
        """How far the recording has been read (s)."""
        return self._time_s

    def close(self) -> None:
        """Close the file; may be called twice."""
        self._steps = None

    def events(self) -> Iterator[CoverageEvent]:
        """Yield the coverage events; see ``vnetsim.coverage.Traffic``. Can be read once.

        Raises:
            InputError: where the recording turns out to be damaged.
        """
        steps, self._steps = self._steps, None
        if steps is None:
            raise InputError(f"{self._path}: this recording was closed or already read; open it again.")
        tracker = Tracker(self._rsus)
        witness = _Witness()
        fastest_mps = 0.0
        for step in steps:
            gap_s = step.time_s - self._time_s
            self._time_s = step.time_s
            if len(step.ids):
                fastest_mps = max(fastest_mps, float(step.speed_mps.max()))
            witness.see(step)
            reach_m = largest_move_m(fastest_mps, gap_s)
            yield from tracker.advance(step.time_s, [_near(step, rsu, reach_m) for rsu in self._rsus], witness)
        yield from tracker.finish(witness)


def _near(step: FcdStep, rsu: Rsu, reach_m: float) -> Iterator[Sample]:
    """Yield the vehicles that are inside the disc, or could be within one step."""
    radius_m = rsu.range_m + reach_m
    dx_m, dy_m = step.x_m - rsu.x_m, step.y_m - rsu.y_m
    chosen = np.flatnonzero(dx_m * dx_m + dy_m * dy_m <= radius_m * radius_m)
    return zip(
        [step.ids[index] for index in chosen.tolist()],
        step.x_m[chosen].tolist(),
        step.y_m[chosen].tolist(),
        step.speed_mps[chosen].tolist(),
        strict=True,
    )


class _Witness:
    """Who was there when: infers reasons (``vnetsim.tracker.Observer``)."""

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

    def boundary(self) -> None:
        return None
