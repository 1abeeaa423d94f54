"""Requests steps from SUMO and decodes its answers (TraCI messages), many steps at a time.

The ``traci`` package waits for each step and takes microseconds for every number. Here all answers have one known
layout and are decoded together. An answer contains all that is needed to open or close a coverage window: when it is
decoded, SUMO has already computed later steps. Message formats: SUMO's TraCI protocol.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vnetsim.coverage.frames import Frames, Integers
from vnetsim.coverage.windows import EntryCause, ExitCause, Floats
from vnetsim.traffic.sumo.net import POSITION, SPEED, VEHICLES
from vnetsim.traffic.vehicle_types import CAR_M, TypeFilter, VehicleFilter

TYPE, CLASS, HEIGHT, ROAD = 0x4F, 0x49, 0xBC, 0x50
EXPECTED, DEPARTED, ARRIVED, TELEPORTING = 0x7D, 0x74, 0x7A, 0x76

_STEP = struct.pack("!BBd", 10, 0x02, 0.0)
_KIND_VARIABLES = TYPE, CLASS, HEIGHT
_INTEGER, _REAL = struct.Struct("!i"), struct.Struct("!d")
_EXPECTED = struct.Struct("!3si")
_EXPECTED_HEAD = bytes((EXPECTED, 0, 0x09))
# A row is the id, then for each variable its number, its status 0, its type, and its value.
_MOTION = {0: POSITION, 1: 0, 2: 0x01, 19: SPEED, 20: 0, 21: 0x0B, 30: ROAD, 31: 0, 32: 0x0C}
_CHUNK = 1 << 18
_UNKNOWN_FORMAT = "SUMO's answer on vehicles is of an unknown format."
VehicleKind = tuple[str, str, float]
"""Type, class and height (m); empty texts and a car's height for a vehicle that arrived before SUMO answered."""


class Answer(NamedTuple):
    """SUMO's answer to a step; lists of vehicles contain their ids."""

    time_s: float | None  # time of its frame (s); None for a step of the warm-up, which gets no frame
    data: bytes  # the TraCI message; empty in the warm-up
    contexts: list[int]  # for each place, the offset in ``data`` of the number of vehicles around it; they follow
    teleporting: list[bytes]  # vehicles that began to teleport
    departed: list[bytes]  # vehicles that were inserted
    arrived: list[bytes]  # vehicles that were removed from the net


class SumoSteps:
    """Requests steps from SUMO and receives its answers.

    A vehicle's kind never changes: it is requested once, with the next step after the vehicle's departure. ``places``
    are ids of POIs around which vehicles are reported, with radius (m). ``api`` is an open connection of the ``traci``
    package; it must not be used for anything else while a step is awaited.
    """

    def __init__(self, api: Any, places: Sequence[tuple[str, float]]) -> None:
        # ids of the vehicles that are in the net at the start, because SUMO loaded a saved state
        self.present: list[bytes] = [name.encode() for name in api.vehicle.getIDList()]
        # first those of ``present``, then in order of departure
        self.kinds: list[VehicleKind] = []
        self.expected = 1  # number of vehicles that SUMO expected at the end of the newest step
        self._same: dict[VehicleKind, VehicleKind] = {}
        self._new = list(self.present)
        self._requested: deque[int] = deque()  # for each message the number of vehicles whose kinds it requests
        api.simulation.subscribe([EXPECTED, TELEPORTING, DEPARTED, ARRIVED])
        for place, radius_m in places:
            api.poi.subscribeContext(place, VEHICLES, radius_m, [POSITION, SPEED, ROAD])
        self._socket = api._socket  # noqa: SLF001 - the package has no way to send without waiting
        self._received = bytearray()

    @property
    def awaited_steps(self) -> int:
        """Number of steps requested and not yet received."""
        return len(self._requested)

    def request(self) -> None:
        """Request a step, and type, class and height of vehicles departed since the last request; does not wait."""
        self._send(_STEP)

    def fetch_last_kinds(self) -> None:
        """Request type, class and height of the vehicles departed last, and wait; call it when no step is awaited."""
        if self._new:
            self._send(b"")
            self._store_kinds(self._receive_message())

    def receive(self, time_s: float | None) -> Answer:
        """Wait for and return the answer to the oldest awaited step; extend ``kinds`` and update ``expected``.

        ``time_s`` is the time of its frame (s); with None the vehicles' positions are dropped. ConnectionError if SUMO
        is gone or reports an error, or its answer has an unknown format.
        """
        data = self._receive_message()
        at, _ = _locate_command(data, self._store_kinds(data))
        if data[at + 1]:
            raise ConnectionError(_read_text(data, at + 2))
        at += 6 + _read_integer(data, at + 2)
        contexts, simulation = [], 0
        count, at = _read_integer(data, at), at + 4
        for _ in range(count):
            # each result: 0, its length, its kind, the object's id, and then the values
            kind, results = data[at + 5], at + 10 + _read_integer(data, at + 6)
            if kind == 0xEB:
                simulation = results + 1
            else:
                contexts.append(results + 2)
            at += _read_integer(data, at + 1)
        head, self.expected = _EXPECTED.unpack_from(data, simulation)
        if head != _EXPECTED_HEAD:
            raise ConnectionError("SUMO's answer to a step is of an unknown format.")
        teleporting, at = _read_names(data, simulation + _EXPECTED.size)
        departed, at = _read_names(data, at)
        arrived, at = _read_names(data, at)
        self._new += departed
        if time_s is None:
            data, contexts = b"", []
        return Answer(time_s, data, contexts, teleporting, departed, arrived)

    def _store_kinds(self, data: bytes) -> int:
        """Append the types, classes and heights that begin an answer to ``kinds``; return the offset of their end."""
        at = 0
        for _ in range(self._requested.popleft()):
            values = []
            for _ in _KIND_VARIABLES:
                status, at = _locate_command(data, at)
                if not data[status + 1]:  # otherwise the vehicle has already arrived
                    start, at = _locate_command(data, at)
                    values.append(start + 7 + _read_integer(data, start + 2))
            kind = ("", "", CAR_M)
            if values:
                height_m: float = _REAL.unpack_from(data, values[2])[0]
                kind = _read_text(data, values[0]), _read_text(data, values[1]), height_m
            self.kinds.append(self._same.setdefault(kind, kind))
        return at

    def _send(self, command: bytes) -> None:
        """Send ``command`` in one message after requests for type, class and height of the last departed vehicles."""
        requests = [_encode_request(name, variable) for name in self._new for variable in _KIND_VARIABLES]
        message = b"".join((*requests, command))
        self._requested.append(len(self._new))
        self._new = []
        self._socket.sendall(_INTEGER.pack(len(message) + 4) + message)

    def _receive_message(self) -> bytes:
        """Wait for SUMO's next message; return it without its leading length; ConnectionError if SUMO is gone."""
        received = self._received
        while len(received) < 4 or len(received) < (size := int.from_bytes(received[:4], "big")):
            chunk = self._socket.recv(_CHUNK)
            if not chunk:
                raise ConnectionError("connection closed by SUMO.")
            received += chunk
        self._received = received[size:]
        return bytes(received[4:size])


class SumoFrames:
    """Makes frames from SUMO's answers (``vnetsim.coverage.frames.Observer``); vehicle ids get ``suffix``."""

    def __init__(self, steps: SumoSteps, types: TypeFilter, suffix: str) -> None:
        self._kinds = steps.kinds
        self._departures = len(steps.present)
        self._numbers = {name: number for number, name in enumerate(steps.present)}  # of vehicles that have not arrived
        self._suffix = suffix
        self._filter = VehicleFilter(types)

    def make_frames(self, answers: Sequence[Answer]) -> Frames:
        """Return the frames of the next answers: vehicles whose types take part, each once a step.

        At least one answer must have a time; answers without one give no frame. The other methods describe the rows of
        the frames returned last. ConnectionError for an unknown format, or a vehicle that never departed.
        """
        numbers, gone = self._numbers, set[bytes]()
        for answer in answers:
            for number, name in enumerate(answer.departed, self._departures):
                numbers.setdefault(name, number)
            self._departures += len(answer.departed)
            gone = gone.difference(answer.departed).union(answer.arrived)
        answers = [answer for answer in answers if answer.time_s is not None]
        buffer = b"".join(answer.data for answer in answers)
        bases = np.cumsum([0, *(len(answer.data) for answer in answers)]).tolist()
        contexts = [base + at for base, answer in zip(bases, answers, strict=False) for at in answer.contexts]
        steps = [step for step, answer in enumerate(answers) for _ in answer.contexts]
        rows = _Rows(buffer, contexts, steps)
        # a dictionary is exact and looks up some ten million ids a second
        try:
            vehicle = np.array([numbers[name] for name in rows.read_ids()], dtype=np.int64)
        except KeyError as error:
            raise ConnectionError(f"it never reported the departure of vehicle {error}.") from error
        known = vehicle < len(self._kinds)  # SUMO may have failed before it sent the kinds of the newest vehicles
        vehicle, rows = vehicle[known], rows.select(known)
        taken = self._filter.select_rows(vehicle, lambda row: (rows.read_id(row).decode(), *self._kinds[vehicle[row]]))
        if len(contexts) > len(answers):  # circles overlap: a vehicle may be reported more than once
            _, first = np.unique(vehicle * len(answers) + rows.instant, return_index=True)
            single = np.zeros(len(vehicle), dtype=np.bool_)
            single[first] = True
            taken &= single
        self._vehicle, self._rows = vehicle[taken], rows.select(taken)
        moved = np.zeros(len(self._vehicle), dtype=np.bool_)
        for step, answer in enumerate(answers):
            if answer.teleporting:  # some are already at their new place
                jumped = [numbers[name] for name in answer.teleporting if name in numbers]
                moved |= (self._rows.instant == step) & np.isin(self._vehicle, jumped)
        self._came = [{numbers[name] for name in answer.departed} for answer in answers]
        self._went = [{numbers[name] for name in answer.arrived if name in numbers} for answer in answers]
        for name in gone:
            numbers.pop(name, None)
        x_m, y_m, speed_mps = self._rows.read_motion()
        return Frames(
            time_s=np.array([answer.time_s for answer in answers]),
            instant=self._rows.instant,
            vehicle=self._vehicle,
            x_m=x_m,
            y_m=y_m,
            speed_mps=speed_mps,
            moved=moved,
        )

    def vehicle_id(self, row: int) -> str:
        """Return the id of the vehicle of a row, with the suffix."""
        return self._rows.read_id(row).decode() + self._suffix

    def vehicle_type(self, row: int) -> str:
        """Return the type (vType id) of the vehicle of a row; empty if it arrived before SUMO answered."""
        return self._kinds[int(self._vehicle[row])][0]

    def edge(self, row: int) -> str:
        """Return the id of the edge that the vehicle of a row is on; that of an internal edge begins with ``:``."""
        return self._rows.read_edge(row)

    def appeared(self, row: int) -> EntryCause:
        """Return why a row's vehicle is new in a disc: ``departure`` in the step of its insertion or ``teleport``."""
        return "departure" if int(self._vehicle[row]) in self._came[self._rows.instant[row]] else "teleport"

    def vanished(self, vehicle: int, instant: int) -> ExitCause:
        """Return why a vehicle (number) has no row at an instant: ``arrival`` if SUMO removed it, else ``teleport``."""
        return "arrival" if vehicle in self._went[instant] else "teleport"


class _Rows:
    """The vehicles of some answers, one row for each vehicle and step; raises ConnectionError for unknown formats."""

    def __init__(self, buffer: bytes, contexts: Sequence[int], steps: Sequence[int]) -> None:
        # contexts: offsets at which the vehicles around a place begin, with their number; steps: the step of each
        self._buffer = buffer
        self._bytes = np.frombuffer(buffer, dtype=np.uint8)
        counts = np.array([_read_integer(buffer, at) for at in contexts], dtype=np.int64)
        self.instant: Integers = np.repeat(np.array(steps, dtype=np.int64), counts)
        # rows differ in length, but the heads of their numbers have fixed distances
        motion = np.flatnonzero(self._bytes[: -max(_MOTION)] == POSITION)
        for distance, value in _MOTION.items():
            motion = motion[self._bytes[motion + distance] == value]
        if len(motion) != len(self.instant):
            raise ConnectionError(_UNKNOWN_FORMAT)
        self._motion = motion
        ends = motion + 37 + self._read_integers(motion + 33)
        starts = np.empty_like(ends)
        starts[1:] = ends[:-1]
        first = np.cumsum(counts) - counts
        starts[first[counts > 0]] = np.array(contexts, dtype=np.int64)[counts > 0] + 4
        self._ids = starts + 4
        lengths = self._read_integers(starts)
        if not (self._ids + lengths == motion).all():
            raise ConnectionError(_UNKNOWN_FORMAT)

    def select(self, mask: NDArray[np.bool_]) -> _Rows:
        """Return the rows where ``mask`` is true; this object itself if all are true."""
        if mask.all():
            return self
        selected = object.__new__(_Rows)
        selected._buffer, selected._bytes = self._buffer, self._bytes
        selected.instant, selected._ids, selected._motion = self.instant[mask], self._ids[mask], self._motion[mask]
        return selected

    def read_ids(self) -> list[bytes]:
        """Return the vehicle id of each row."""
        pairs = zip(self._ids.tolist(), self._motion.tolist(), strict=True)
        return [self._buffer[start:end] for start, end in pairs]

    def read_id(self, row: int) -> bytes:
        """Return the id of the vehicle of a row."""
        return self._buffer[self._ids[row] : self._motion[row]]

    def read_motion(self) -> tuple[Floats, Floats, Floats]:
        """Return x and y (m) and speed (m/s) of each row."""
        x_m, y_m, speed_mps = (
            self._bytes[(self._motion + distance)[:, None] + np.arange(8)].view(">f8").ravel().astype(np.float64)
            for distance in (3, 11, 22)
        )
        return x_m, y_m, speed_mps

    def read_edge(self, row: int) -> str:
        """Return the id of the edge of a row's vehicle."""
        return _read_text(self._buffer, int(self._motion[row]) + 33)

    def _read_integers(self, at: Integers) -> Integers:
        """Return the 32-bit integers at these offsets of the buffer."""
        found: Integers = self._bytes[at[:, None] + np.arange(4)].view(">i4").ravel().astype(np.int64)
        return found


def _encode_request(name: bytes, variable: int) -> bytes:
    """Return the TraCI command that requests a variable (its number) of a vehicle."""
    body = struct.pack("!BBi", 0xA4, variable, len(name)) + name
    return (bytes((len(body) + 1,)) if len(body) < 255 else b"\0" + _INTEGER.pack(len(body) + 5)) + body


def _locate_command(data: bytes, at: int) -> tuple[int, int]:
    """Return the offsets of the content (after the length: one or five bytes) and end of the command at ``at``."""
    return (at + 1, at + data[at]) if data[at] else (at + 5, at + _read_integer(data, at + 1))


def _read_names(data: bytes, at: int) -> tuple[list[bytes], int]:
    """Return the ids that a variable lists, and the offset of their end; the variable's header begins at ``at``."""
    names, count, at = [], _read_integer(data, at + 3), at + 7
    for _ in range(count):
        end = at + 4 + _read_integer(data, at)
        names.append(data[at + 4 : end])
        at = end
    return names, at


def _read_integer(data: bytes, at: int) -> int:
    """Return the signed 32-bit integer at an offset."""
    value: int = _INTEGER.unpack_from(data, at)[0]
    return value


def _read_text(data: bytes, at: int) -> str:
    """Return the text at an offset, where it begins with its length (32-bit integer)."""
    return data[at + 4 : at + 4 + _read_integer(data, at)].decode()
