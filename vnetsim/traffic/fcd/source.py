"""Recorded traffic: SUMO's floating-car data (FCD) as ``.xml``, ``.csv``, either gzipped, or ``.parquet``.

A recording contains positions, not causes of entries and exits, so these are inferred. A vehicle first seen inside a
disc departed there. One that vanishes inside a disc arrived, also where live SUMO records a teleport; if it reappears
inside a disc, it was teleported. A move within one step that no speed explains is a teleport; a shorter one (up to
about 50 m more than a drive) counts as a drive, and live SUMO reports it as a teleport.

Positions are net coordinates (m). Degrees, as from ``--fcd-output.geo``, are projected if the net gives its place.
Otherwise they are refused, as are units that do not agree with speeds and times.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vnetsim.coverage.frames import Frames, Integers
from vnetsim.coverage.placement import parse_coordinates, place_rsus
from vnetsim.coverage.rsu import Rsu, map_lanes
from vnetsim.coverage.tracker import Tracker, largest_move_m
from vnetsim.coverage.windows import CoverageEvent, EntryCause, ExitCause, Floats, Left, TrafficInfo
from vnetsim.errors import InputError
from vnetsim.errors.paths import resolve_path
from vnetsim.experiment import Experiment
from vnetsim.traffic.fcd.checks import Agreement
from vnetsim.traffic.fcd.clocks import order_by_vehicle
from vnetsim.traffic.fcd.readers import read_fcd
from vnetsim.traffic.fcd.tables import FcdPart
from vnetsim.traffic.net_file import NetFile
from vnetsim.traffic.paths import OpenedTraffic, PathSpeeds
from vnetsim.traffic.vehicle_types import TypeFilter, VehicleFilter

_PERSONS_UNKNOWN = (
    "The recording has neither lanes nor edges: persons and containers in it, unless of SUMO's own types, cannot be "
    "told from vehicles and count as such."
)
_GAPS = 3.0
"""Default of the longest gap, in steps."""
_ROUNDED = 1.01
"""Tolerance for rounded times: a factor on the longest gap."""
_UNITS = (
    "their rows are too far apart in time, or in other units than m/s, s and m, which --speed-unit, --time-unit and "
    "--length-unit name"
)
_SHORT_TELEPORTS = "a teleport within one step that is hardly longer than a drive counts as driven, unlike live"


class FcdTraffic(OpenedTraffic):
    """A recording, which ``experiment.scenario`` names; RSUs at junctions need ``traffic.net``.

    InputError if the file is missing or not an FCD recording, no RSU is named, or one cannot be placed.
    """

    def __init__(self, experiment: Experiment, **_: object) -> None:
        path, settings = Path(experiment.scenario), experiment.traffic
        if not path.is_file():
            raise InputError(f"{path}: no such file.")
        by_junction = [spec for spec in settings.rsu_places if parse_coordinates(spec) is None]
        if not settings.rsu or (by_junction and not settings.net):
            problem = f"junction '{by_junction[0]}' needs the net" if by_junction else "a recording holds no RSU"
            raise InputError(
                f"{path}: {problem}; name RSUs with --rsu x,y[:range_m], "
                "or with --rsu JUNCTION[:range_m] and --set traffic.net=FILE.net.xml."
            )
        self._types: TypeFilter = TypeFilter(settings)
        net = NetFile(Path(settings.net) if settings.net else None)
        self._path = path
        self.rsus, notes = place_rsus(settings, net, settings.net)
        files: list[Path | str] = [path, *([net.path] if net.path else []), *settings.rsu_files]
        self._agreement, self._speeds = Agreement(net), PathSpeeds()
        self._read_notes: list[str] = []
        parts = read_fcd(path, settings, net, self._read_notes)
        first = next(parts)
        self._parts: Iterator[FcdPart] | None = chain((first,), parts)
        clock = first.clock
        self._own_clocks = not clock.common or settings.longest_gap_s is not None
        default_s = _GAPS * clock.step_s if clock.step_s else math.inf
        self._longest_gap_s = default_s if settings.longest_gap_s is None else settings.longest_gap_s
        begin_s = float(first.time_s[0]) if settings.begin_s is None else settings.begin_s
        self._begin_s = max(float(first.time_s[0]), begin_s + settings.warmup_s)
        self._end_s = math.inf if settings.end_s is None else settings.end_s
        self._glimpsed, self._gaps = Counter[str](), 0
        self.time_s = self._begin_s
        lanes, fewer_lanes = map_lanes(net.lanes_m, self.rsus)
        self._info = TrafficInfo(
            kind="fcd",
            begin_s=self._begin_s,
            end_s=None,
            step_s=clock.step_s,
            seed=None,
            inputs=tuple(str(resolve_path(file)) for file in files),
            notes=(*notes, *fewer_lanes, *self._first_notes(first)),
            lanes=lanes,
            vehicles=f"{self._types.describe()}, as far as the recording names types; {_SHORT_TELEPORTS}",
            heights_m=self._types.heights_m,
            glimpsed=self._glimpsed,
        )

    def _first_notes(self, first: FcdPart) -> Iterator[str]:
        """Yield the notes for the user that follow from the first part; there may be none."""
        if not first.persons_known:
            yield _PERSONS_UNKNOWN
        if not first.clock.common:
            yield (
                "The vehicles of the recording are not sampled at the same instants; each is every "
                f"{first.clock.step_s:g} s in the median, and its path goes on over up to {self._longest_gap_s:g} s "
                "without a row (traffic.longest_gap_s)."
            )

    def _late_notes(self) -> Iterator[str]:
        """Yield notes of the readers and the checks, and one if windows were cut off at gaps; some texts are empty."""
        yield from self._read_notes
        yield self._agreement.make_note()
        yield self._speeds.make_note(_UNITS)
        if self._gaps:
            yield (
                f"{self._gaps} windows begin or end where the recording says nothing of their vehicle for longer than "
                f"{self._longest_gap_s:g} s (traffic.longest_gap_s): they count as cut off there."
            )

    def close(self) -> None:
        """Close the file; may be called twice. Afterwards ``events`` raises InputError."""
        self._parts = None

    def events(self) -> Iterator[CoverageEvent]:
        """Yield the coverage events; see ``vnetsim.coverage.windows.TrafficStream``. Can be read once.

        InputError if the recording is damaged, ends before the windows begin, has units that disagree or no vehicle of
        the wanted types; or if it was closed or already read.
        """
        parts, self._parts = self._parts, None
        if parts is None:
            raise InputError(f"{self._path}: this recording was closed or already read; open it again.")
        longest_s, own_clocks = _ROUNDED * self._longest_gap_s, self._own_clocks
        tracker = Tracker(self.rsus, longest_gap_s=longest_s, own_clocks=own_clocks, glimpsed=self._glimpsed)
        recorded = _RecordedVehicles(self.rsus, self._types, self._info.step_s or 0.0, longest_s, own_clocks=own_clocks)
        last_s = -math.inf
        for whole in parts:
            # as in SUMO, the last step begins before the end
            part = whole.between(0, int(np.searchsorted(whole.time_s, self._end_s)))
            if not len(part.time_s):
                break
            last_s = float(part.time_s[-1])
            self._agreement.check(part)
            frames = recorded.make_frames(part, self._begin_s)
            if frames is not None:
                self.time_s = last_s
                yield from self._count_faults(tracker.advance(frames, recorded))
        if last_s < self._begin_s:
            raise InputError(
                f"{self._path}: the recording ends at {last_s:g} s, before {self._begin_s:g} s, where traffic.begin_s "
                "and traffic.warmup_s have the windows begin."
            )
        self._agreement.finish(str(self._path))
        self._types.refuse_nobody(str(self._path))
        self._info = dataclasses.replace(self._info, silences=recorded.silences)
        yield from self._count_faults(tracker.finish(recorded))
        # A row has the positions at the start of a step; the last step lasts as long as the others, as in live SUMO.
        self.time_s += self._info.step_s or 0.0
        self._info = dataclasses.replace(self._info, end_s=self.time_s)

    def _count_faults(self, events: list[CoverageEvent]) -> list[CoverageEvent]:
        """Return ``events`` as they are; count windows that begin or end at a gap, or contradict their speeds."""
        for event in events:
            self._speeds.count_window(event)
        windows = [event.window for event in events if isinstance(event, Left)]
        self._gaps += sum("gap" in (window.entry_cause, window.exit_cause) for window in windows)
        return events


class _RecordedVehicles:
    """Makes frames and infers causes; ``silences`` counts vehicles' gaps if they have own clocks, else all pauses."""

    def __init__(
        self, rsus: tuple[Rsu, ...], types: TypeFilter, step_s: float, longest_s: float, *, own_clocks: bool
    ) -> None:
        self._rsus = rsus
        self._types = types
        self._longest_s = longest_s  # longest time between two rows of one path
        self._own_clocks = own_clocks  # whether each vehicle is sampled at its own times
        self.silences = 0
        self._steps = 0  # number of steps before the newest part
        # by number of the recorded id: time and step at which it was last seen, and number of its vehicle
        self._seen_s, self._seen_step, self._last_vehicle = np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._kinds: list[str] = []  # type of each vehicle when first seen, "" if unknown
        self._known: dict[tuple[int, str], int] = {}  # vehicles by id and type, for ids with several types
        self._names: dict[int, str] = {}  # names of vehicles whose id another vehicle had before
        self._filter = VehicleFilter(types)
        self._time_s = math.nan
        self._step_s = step_s
        self._fastest_mps = 0.0

    def make_frames(self, part: FcdPart, begin_s: float) -> Frames | None:
        """Return a part's frames from ``begin_s`` (s) on, None if it ends earlier; may lack rows far from all RSUs."""
        self._part = part
        gaps_s = np.diff(part.time_s, prepend=self._time_s)
        resumed = self._find_pauses(part, np.flatnonzero(gaps_s > self._longest_s))
        self._vehicle = vehicle = self._number_vehicles(part)
        self._time_s = float(part.time_s[-1])
        self.silences += 0 if self._own_clocks else int(resumed.sum())
        self._fastest_mps = max(self._fastest_mps, float(part.speed_mps.max(initial=0.0)))
        longest_s = self._longest_s if self._own_clocks else float(np.nanmax(gaps_s, initial=self._step_s))
        reach_m = float(largest_move_m(self._fastest_mps, min(longest_s, self._longest_s)))
        self._skipped = int(np.searchsorted(part.time_s, begin_s))
        rows = np.flatnonzero(part.step >= self._skipped)
        near = self._find_near(part.x_m[rows], part.y_m[rows], reach_m)
        if not self._own_clocks:  # with own clocks no row of a vehicle may be skipped
            rows, near = rows[near], near[near]
        self._rows = rows
        self._rows = rows = rows[self._filter.select_rows(vehicle[rows], self._describe, near)]
        if self._skipped == len(part.time_s):
            return None
        return Frames(
            time_s=part.time_s[self._skipped :],
            instant=part.step[rows] - self._skipped,
            vehicle=vehicle[rows],
            x_m=part.x_m[rows],
            y_m=part.y_m[rows],
            speed_mps=part.speed_mps[rows],
            moved=np.zeros(len(rows), dtype=np.bool_),
            resumed=resumed[self._skipped :],
        )

    def _find_pauses(self, part: FcdPart, steps: Integers) -> NDArray[np.bool_]:
        """Return for each step whether the recording paused before it; only ``steps``, after long gaps, are checked."""
        # with at most one vehicle before a gap and a different one after it, the road may have been empty
        resumed = np.zeros(len(part.time_s), dtype=np.bool_)
        for step in steps.tolist():
            last_s = float(part.time_s[step - 1]) if step else self._time_s
            since_s = last_s - self._longest_s if self._own_clocks else last_s
            first = int(np.searchsorted(part.time_s, since_s))
            before, after = (
                set(part.vehicle[slice(*np.searchsorted(part.step, ends))].tolist())
                for ends in ((first, step), (step, step + 1))
            )
            if since_s <= self._time_s:
                before.update(np.flatnonzero(self._seen_s >= since_s).tolist())
            resumed[step] = max(len(before), len(after)) > 1 or not before.isdisjoint(after)
        return resumed

    def _number_vehicles(self, part: FcdPart) -> Integers:
        """Return each row's vehicle number; record vehicles' first rows, and time and vehicle of each id's last row."""
        self._new = np.zeros(len(part.vehicle), dtype=np.bool_)
        order = order_by_vehicle(part.vehicle)
        number, step = part.vehicle[order], part.step[order]
        time_s, step = part.time_s[step], step + self._steps
        self._steps += len(part.time_s)
        if not len(order):
            return order
        missing = int(number[-1]) + 1 - len(self._last_vehicle)
        if missing > 0:
            self._seen_s = np.append(self._seen_s, np.full(missing, -math.inf))
            unseen = np.full(missing, -2)
            self._seen_step = np.append(self._seen_step, unseen)
            self._last_vehicle = np.append(self._last_vehicle, unseen)
        first = np.r_[True, number[1:] != number[:-1]]
        last = np.roll(first, -1)
        before_s = np.where(first, self._seen_s[number], np.roll(time_s, 1))
        back = time_s - before_s > self._longest_s
        if not self._own_clocks:
            back |= step - np.where(first, self._seen_step[number], np.roll(step, 1)) > 1
        starts = np.flatnonzero(first | back)
        found = self._last_vehicle[number[starts]]
        for at in np.flatnonzero(back[starts]).tolist():
            row = int(order[starts[at]])
            same_id = at > 0 and number[starts[at]] == number[starts[at - 1]]
            found[at] = self._find_vehicle(row, int(found[at - 1] if same_id else found[at]))
        is_vehicle = np.repeat(found, np.diff(starts, append=len(order)))
        self._seen_s[number[last]], self._seen_step[number[last]] = time_s[last], step[last]
        self._last_vehicle[number[last]] = is_vehicle[last]
        vehicle = np.empty_like(is_vehicle)
        vehicle[order] = is_vehicle
        return vehicle

    def _find_vehicle(self, row: int, before: int) -> int:
        """Return a row's vehicle: its id's last (``before``, < 0: none), if types agree; else by type, or a new one."""
        number, type_id = int(self._part.vehicle[row]), self._part.types[row] or ""
        known = "" if before < 0 else self._kinds[before]
        if before >= 0 and (not type_id or not known or type_id == known):
            self.silences += self._own_clocks
            return before
        if before >= 0:
            self._known.setdefault((number, known), before)
        found = self._known.get((number, type_id), len(self._kinds))
        if found == len(self._kinds):
            self._new[row] = True
            self._kinds.append(type_id)
            if before >= 0:
                self._known[number, type_id] = found
                self._names[found] = f"{self._part.ids[row]} ({type_id})"
        return found

    def vehicle_id(self, row: int) -> str:
        """Return the id of a row's vehicle; ``id (type)`` if a vehicle of another type had the id before."""
        at = int(self._rows[row])
        return self._names.get(int(self._vehicle[at])) or str(self._part.ids[at])

    def vehicle_type(self, row: int) -> str:
        """Return the type of a row's vehicle, empty if it is not recorded."""
        return self._part.types[int(self._rows[row])] or ""

    def edge(self, row: int) -> str:
        """Return the id of the edge of a row's lane, empty if no lane is recorded."""
        lane: str = self._part.lanes[int(self._rows[row])] or ""
        return lane.rpartition("_")[0]

    def appeared(self, row: int) -> EntryCause:
        """Return ``departure`` if the row is its vehicle's first, else ``gap`` with own clocks, else ``teleport``."""
        if self._new[self._rows[row]]:
            return "departure"
        return "gap" if self._own_clocks else "teleport"

    def vanished(self, vehicle: int, instant: int) -> ExitCause:
        """Return ``teleport`` if the vehicle (number) has a row anywhere at index ``instant``, else ``arrival``."""
        at = self._skipped + instant
        present = slice(*np.searchsorted(self._part.step, (at, at + 1)))
        return "teleport" if (self._vehicle[present] == vehicle).any() else "arrival"

    def _find_near(self, x_m: Floats, y_m: Floats, reach_m: float) -> NDArray[np.bool_]:
        """Return for each position (m) whether it is in an RSU's disc or at most ``reach_m`` outside one."""
        near = np.zeros(len(x_m), dtype=np.bool_)
        far = np.arange(len(x_m))
        for rsu in self._rsus:
            hit = np.square(x_m[far] - rsu.x_m) + np.square(y_m[far] - rsu.y_m) <= (rsu.range_m + reach_m) ** 2
            near[far[hit]] = True
            far = far[~hit]
        return near

    def _describe(self, row: int) -> tuple[str, str | None, None, None]:
        """Return id, type (None: unknown), None and None for a row; InputError if its type is needed and unknown."""
        type_id, name = self.vehicle_type(row) or None, self.vehicle_id(row)
        if not type_id and not (self._types.is_default or self._types.takes_all):
            where = self._part.where[self._part.step[self._rows[row]]]
            raise InputError(
                f"{where}: vehicle '{name}' has no type in this recording; traffic.vehicle_types needs one."
            )
        return name, type_id, None, None
