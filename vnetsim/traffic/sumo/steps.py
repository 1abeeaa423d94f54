"""One pass through a scenario in SUMO: read step by step, from either interface, into coverage events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import compress
from typing import Any, Protocol

import numpy as np

from vnetsim.coverage.rsu import Rsu
from vnetsim.coverage.tracker import Sample, Tracker
from vnetsim.coverage.windows import CoverageEvent, EntryCause, ExitCause
from vnetsim.traffic.sumo.net import POSITION, SPEED, VEHICLES, Anchor, anchor, shared_place
from vnetsim.traffic.sumo.session import SumoSession
from vnetsim.traffic.sumo.stream import ARRIVED, DEPARTED, NAMES, TELEPORTING, SumoStream
from vnetsim.traffic.vehicle_types import TypeFilter


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

    def teleported(self, suffix: str) -> frozenset[str]:
        """Return the vehicles that began to teleport in this step; some are already where they are moved to."""
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

    def __init__(self, api: Any, places: list[tuple[Anchor, float]], types: TypeFilter) -> None:
        self._api = api
        self._types = types
        self._taken: set[str] = set()
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
        return [self._samples(get(place_id), suffix) for get, place_id in self._results]

    def _samples(self, found: dict[str, dict[int, Any]] | None, suffix: str) -> list[Sample]:
        taken = self._taken
        return [
            (name + suffix, *values[POSITION], values[SPEED])
            for name, values in (found or {}).items()
            if name in taken or self._takes(name)
        ]

    def _takes(self, name: str) -> bool:
        vehicle = self._api.vehicle
        if not self._types.takes(name, vehicle.getTypeID(name), vehicle.getVehicleClass(name)):
            return False
        self._taken.add(name)
        return True

    def teleported(self, suffix: str) -> frozenset[str]:
        return frozenset(name + suffix for name in self._api.simulation.getStartingTeleportIDList())

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


class Pass:
    """One pass through the scenario. Also tells the tracker about single vehicles (its ``Observer``)."""

    def __init__(
        self,
        session: SumoSession,
        rsus: tuple[Rsu, ...],
        radii_m: list[float],
        suffix: str,
        *,
        warmup_s: float,
        types: TypeFilter,
    ) -> None:
        self._session = session
        self._warmup_ms = round(warmup_s * 1000)
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
        self._reader: _Reader = SumoStream(api, places, types) if session.remote else _Library(api, places, types)

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
                # As SUMO itself does: at least one step, then until the end or, without one, until nobody is expected.
                going_on = reader.time_s < end_s if end_s >= 0 else reader.expected > 0
                if going_on:
                    self._trying(reader.request)
                # After a step SUMO's clock is at the step's end; FCD labels it with its start.
                time_s = (begin_ms + steps * step_ms) / 1000 + shift_s
                warm = steps * step_ms >= self._warmup_ms
                steps += 1
                if warm:
                    yield (
                        time_s,
                        tracker.advance(time_s, self._near(reader.near(suffix)), self, reader.teleported(suffix)),
                    )
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
