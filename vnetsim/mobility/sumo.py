"""Live SUMO: coverage windows while the simulation runs, one context subscription per RSU.

Only the modules ``vnetsim.mobility.sumo*`` talk to SUMO.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import compress, count
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from vnetsim.coverage import CoverageEvent, EntryCause, ExitCause, Floats, TrafficInfo
from vnetsim.errors import InputError, RunError
from vnetsim.experiment import TrafficSettings
from vnetsim.mobility.entities import refuse_entities
from vnetsim.mobility.sumo_net import (
    POSITION,
    SPEED,
    VEHICLES,
    Anchor,
    SumoNet,
    anchor,
    fastest_mps,
    shared_place,
    surroundings,
)
from vnetsim.mobility.sumo_session import SumoSession
from vnetsim.mobility.sumo_stream import ARRIVED, DEPARTED, NAMES, TELEPORTING, SumoStream
from vnetsim.rsu import Rsu, place_rsus
from vnetsim.tracker import Sample, Tracker


class SumoTraffic:
    """A ``.sumocfg``, played once or, with ``repeat``, again and again under the next seed.

    Pass ``k`` (from 0) uses seed ``seed + k``; from the second pass on, vehicle ids carry the suffix ``#2``, ``#3``
    and so on, and SUMO's own output files the prefix ``pass2_``, ``pass3_``. Repetition ends with the first pass in
    which no vehicle meets an RSU.

    Args:
        config: the ``.sumocfg``.
        settings: backend, seed, RSUs.
        repeat: play again when the scenario ends.

    Raises:
        InputError: when SUMO refuses the scenario, or an RSU cannot be placed.
    """

    def __init__(self, config: Path, settings: TrafficSettings, *, repeat: bool) -> None:
        if not config.is_file():
            raise InputError(f"{config}: no such file.")
        refuse_entities(config)
        self._settings = settings
        self._repeat = repeat
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._session: SumoSession | None = None
        config = config.absolute()
        notes: list[str] = []
        if not os.access(config.parent, os.W_OK) and ".." not in config.read_text(errors="replace"):
            self._scratch = tempfile.TemporaryDirectory(prefix="vnetsim-")
            config = mirrored(config, Path(self._scratch.name))
            notes.append("The scenario's folder is not writable: output files that SUMO was asked for are discarded.")
        self._config = config
        try:
            self._describe(notes)
        except BaseException:
            self.close()
            raise

    def _describe(self, notes: list[str]) -> None:
        session = self._start(self._settings.seed)
        api = session.api
        option = api.simulation.getOption
        files = {
            name: _paths(option(name), self._config.parent) for name in ("net-file", "route-files", "additional-files")
        }
        net = SumoNet(api, (*files["route-files"], *files["additional-files"]))
        self._rsus, placed = place_rsus(
            self._settings.rsu, range_m=self._settings.range_m, net=net, where=str(self._config)
        )
        self._seed = int(option("seed")) if self._settings.seed is None else self._settings.seed
        self._prefix = option("output-prefix")
        self._step_s: float = api.simulation.getDeltaT()
        self._begin_s: float = api.simulation.getTime()
        end_s: float = api.simulation.getEndTime()
        self._time_s: float = self._begin_s
        lanes: dict[str, Floats] = {}
        self._radii_m: list[float] = []
        for index, rsu in enumerate(self._rsus):
            around, limit_mps = surroundings(api, anchor(api, rsu, index), rsu)
            lanes |= around
            # 10 % and 5 m more: lane changes, and lanes drawn longer than their nominal length
            self._radii_m.append(rsu.range_m + 1.1 * fastest_mps(limit_mps) * self._step_s + 5.0)
            if not around:
                placed = (*placed, f"RSU '{rsu.id}' has no road within {1.3 * rsu.range_m:g} m; it sees no traffic.")
        inputs = (self._config, *(path for paths in files.values() for path in paths))
        self._info = TrafficInfo(
            kind="sumo",
            begin_s=self._begin_s,
            end_s=end_s if end_s >= 0 and not self._repeat else None,
            step_s=self._step_s,
            seed=self._seed,
            command=session.command,
            version=api.getVersion()[1],
            inputs=tuple(dict.fromkeys(str(path.resolve()) for path in inputs)),
            notes=(*notes, *placed),
            lanes=tuple(lanes.values()),
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
        """How far the traffic has been read (s)."""
        return self._time_s

    def events(self) -> Iterator[CoverageEvent]:
        """Yield the coverage events; see ``vnetsim.coverage.Traffic``. Can be read once.

        Raises:
            RunError: when SUMO fails while running.
        """
        shift_s = 0.0
        for index in count():
            if index > 0:
                self._stop()
                prefix = f"{self._prefix}pass{index + 1}_"
                self._start(self._seed + index, "--output-prefix", prefix)
            if self._session is None:
                raise RunError(f"{self._config}: this traffic was closed or already read; open it again.")
            met = False
            play = _Pass(self._session, self._rsus, self._radii_m, f"#{index + 1}" if index > 0 else "")
            for time_s, events in play.batches(shift_s):
                self._time_s = time_s
                if events:
                    met = True
                    yield from events
            shift_s += play.duration_s
            if not (self._repeat and met):
                break
        self._stop()

    def close(self) -> None:
        """End SUMO; may be called twice."""
        self._stop()
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None

    def _start(self, seed: int | None, *options: str) -> SumoSession:
        settings = self._settings
        seeded = () if seed is None else ("--seed", str(seed), "--random", "false")
        backend = "traci" if settings.gui or settings.backend == "traci" else "libsumo"
        self._session = SumoSession(self._config, backend=backend, gui=settings.gui, options=(*seeded, *options))
        return self._session

    def _stop(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None


class _Reader(Protocol):
    """SUMO's steps, one by one, and what it tells of the vehicles near some places after the newest of them."""

    time_s: float
    expected: int

    def request(self) -> None:
        """Ask for the next step."""
        ...

    def receive(self) -> None:
        """Wait for it."""
        ...

    def near(self, suffix: str) -> list[list[Sample]]:
        """Return the vehicles around each place; ``suffix`` is appended to their ids."""
        ...

    def vehicle_type(self, vehicle_id: str) -> str:
        """Return the type of a vehicle near one of the places."""
        ...

    def edge(self, vehicle_id: str) -> str:
        """Return the edge of a vehicle near one of the places."""
        ...

    def listed(self, what: int, vehicle_id: str) -> bool:
        """Return whether a vehicle is in one of SUMO's lists of vehicles."""
        ...

    def drain(self) -> None:
        """Wait for a step asked for and not received."""
        ...


class _Library:
    """SUMO within this process (``_Reader``)."""

    def __init__(self, api: Any, places: list[tuple[Anchor, float]]) -> None:
        self._api = api
        self._lists: dict[int, frozenset[str]] = {}
        self._results = []
        for place, radius_m in places:
            place.domain.subscribeContext(place.id, VEHICLES, radius_m, [POSITION, SPEED])
            self._results.append((place.domain.getContextSubscriptionResults, place.id))
        self.time_s = 0.0
        self.expected = 0

    def request(self) -> None:
        """Do nothing: SUMO runs while it is waited for."""

    def receive(self) -> None:
        self._api.simulationStep()
        self._lists.clear()
        self.time_s = self._api.simulation.getTime()
        self.expected = self._api.simulation.getMinExpectedNumber()

    def near(self, suffix: str) -> list[list[Sample]]:
        return [_samples(get(place_id), suffix) for get, place_id in self._results]

    def vehicle_type(self, vehicle_id: str) -> str:
        name: str = self._api.vehicle.getTypeID(vehicle_id)
        return name

    def edge(self, vehicle_id: str) -> str:
        name: str = self._api.vehicle.getRoadID(vehicle_id)
        return name

    def listed(self, what: int, vehicle_id: str) -> bool:
        if what not in self._lists:
            simulation = self._api.simulation
            getters = {
                DEPARTED: simulation.getDepartedIDList,
                ARRIVED: simulation.getArrivedIDList,
                TELEPORTING: simulation.getStartingTeleportIDList,
                NAMES: self._api.vehicle.getIDList,
            }
            self._lists[what] = frozenset(getters[what]())
        return vehicle_id in self._lists[what]

    def drain(self) -> None:
        """Do nothing: a step begun is a step ended."""


class _Pass:
    """One pass through the scenario. Also tells the tracker about single vehicles (``vnetsim.tracker.Observer``)."""

    def __init__(self, session: SumoSession, rsus: tuple[Rsu, ...], radii_m: list[float], suffix: str) -> None:
        self._session = session
        self._rsus = rsus
        self._suffix = suffix
        self.duration_s = 0.0
        api = session.api
        self._radii_m = radii_m
        each = [(anchor(api, rsu, index), radii_m[index]) for index, rsu in enumerate(rsus)]
        shared = shared_place(api, rsus, each)
        self._shared = shared is not None
        places = each if shared is None else [shared]
        simulation = api.simulation
        self._begin_s, self._end_s, self._step_s = (
            simulation.getTime(),
            simulation.getEndTime(),
            simulation.getDeltaT(),
        )
        self._reader: _Reader = SumoStream(api, places) if session.remote else _Library(api, places)

    def batches(self, shift_s: float) -> Iterator[tuple[float, list[CoverageEvent]]]:
        """Yield, for each step, its time on FCD's clock plus ``shift_s`` and the events that are certain by then."""
        reader, suffix, end_s = self._reader, self._suffix, self._end_s
        begin_ms, step_ms = round(self._begin_s * 1000), round(self._step_s * 1000)
        tracker = Tracker(self._rsus)
        steps = 0
        going_on = True
        try:
            self._trying(reader.request)
            while going_on:
                self._trying(reader.receive)
                # As SUMO itself does: at least one step, then until the end or until nobody is left or expected.
                going_on = (end_s < 0 or reader.time_s < end_s) and reader.expected > 0
                if going_on:
                    self._trying(reader.request)
                # After a step SUMO's clock is at the step's end; FCD labels it with its start.
                time_s = (begin_ms + steps * step_ms) / 1000 + shift_s
                steps += 1
                yield time_s, tracker.advance(time_s, self._near(reader.near(suffix)), self)
        except GeneratorExit:  # enough was read: SUMO ends in order
            with suppress(OSError):
                reader.drain()
            raise
        except BaseException:  # Ctrl-C may have swallowed a part of an answer: nothing more to be understood
            self._session.kill()
            raise
        self.duration_s = steps * step_ms / 1000
        yield time_s, tracker.finish(self)

    def _near(self, found: list[list[Sample]]) -> Iterable[Iterable[Sample]]:
        """Return the vehicles around each RSU from those around each place."""
        if not self._shared:
            return found
        rows = found[0] if found else []
        x_m, y_m = np.array([row[1] for row in rows]), np.array([row[2] for row in rows])
        return [
            compress(rows, ((x_m - rsu.x_m) ** 2 + (y_m - rsu.y_m) ** 2 <= radius_m * radius_m).tolist())
            for rsu, radius_m in zip(self._rsus, self._radii_m, strict=True)
        ]

    def _trying(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # the two backends share no exception class but Exception
            raise self._session.failed(error) from error

    def vehicle_type(self, vehicle_id: str) -> str:
        """Return the vehicle's type."""
        return self._reader.vehicle_type(self._own(vehicle_id))

    def edge(self, vehicle_id: str) -> str:
        """Return the edge it is on."""
        return self._reader.edge(self._own(vehicle_id))

    def appeared(self, vehicle_id: str) -> EntryCause:
        """Return ``departure`` in the step of its insertion, else ``teleport``."""
        return "departure" if self._reader.listed(DEPARTED, self._own(vehicle_id)) else "teleport"

    def vanished(self, vehicle_id: str) -> ExitCause:
        """Return ``teleport`` for a vehicle that is being moved, else ``arrival``."""
        name = self._own(vehicle_id)
        if self._reader.listed(ARRIVED, name):
            return "arrival"
        moved = self._reader.listed(TELEPORTING, name) or self._reader.listed(NAMES, name)
        return "teleport" if moved else "arrival"

    def _own(self, vehicle_id: str) -> str:
        return vehicle_id.removesuffix(self._suffix) if self._suffix else vehicle_id


def mirrored(config: Path, folder: Path) -> Path:
    """Return the scenario's copy in a writable folder: links to everything beside it, so that outputs land there."""
    for root, folders, files in os.walk(config.parent):
        target = folder / Path(root).relative_to(config.parent)
        for name in folders:
            (target / name).mkdir()
        for name in files:
            (target / name).symlink_to(Path(root) / name)
    return folder / config.name


def _samples(found: dict[str, dict[int, Any]] | None, suffix: str) -> list[Sample]:
    if not found:
        return []
    if suffix:
        return [(name + suffix, *values[POSITION], values[SPEED]) for name, values in found.items()]
    return [(name, *values[POSITION], values[SPEED]) for name, values in found.items()]


def _paths(option: str, folder: Path) -> tuple[Path, ...]:
    """Return the files an option of SUMO lists."""
    return tuple(folder / name.strip() for name in option.split(",") if name.strip())
