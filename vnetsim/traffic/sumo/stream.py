"""A SUMO process read one step behind: while it simulates a step, this process works on the steps before.

The ``traci`` package waits for each step and takes microseconds for every number it reads. Traffic is only watched
here, never influenced, so the next step can be asked for as soon as the answer to the last has arrived; and answers,
rows of one known layout, are taken apart many steps at a time. What the vehicles would be asked when a window opens or
closes is part of the answer, for SUMO has moved on by then. Message formats: SUMO's TraCI protocol.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vnetsim.coverage.frames import Frames, Integers
from vnetsim.coverage.windows import EntryCause, ExitCause, Floats
from vnetsim.traffic.sumo.net import POSITION, SPEED, VEHICLES, Anchor
from vnetsim.traffic.vehicle_types import TypeFilter, Verdicts

TYPE, CLASS, ROAD = 0x4F, 0x49, 0x50
TIME, EXPECTED, DEPARTED, ARRIVED, TELEPORTING = 0x66, 0x7D, 0x74, 0x7A, 0x76

_STEP = struct.pack("!iBBd", 14, 10, 0x02, 0.0)
_INTEGER = struct.Struct("!i")
_CLOCK = struct.Struct("!3sd3si")
_CLOCK_HEADS = bytes((TIME, 0, 0x0B)), bytes((EXPECTED, 0, 0x09))
# Of a row: the id; then each variable's number, its status 0, its type, and its value.
_MOTION = {0: POSITION, 1: 0, 2: 0x01, 19: SPEED, 20: 0, 21: 0x0B, 30: TYPE, 31: 0, 32: 0x0C}
_CHUNK = 1 << 18


class _Answer(NamedTuple):
    """SUMO's answer to a step, and where it tells of the simulation, and of the vehicles around each place."""

    time_s: float
    data: bytes
    simulation: int
    contexts: tuple[int, ...]


class SumoStream:
    """What a stepping SUMO tells of the vehicles around some places (``vnetsim.coverage.frames.Observer``).

    Args:
        api: an open connection of the ``traci`` package; not to be used otherwise until ``drain``.
        places: where to look and how far (m).
        types: which vehicles are looked for.
        suffix: appended to the vehicles' ids.

    Attributes:
        time_s: SUMO's clock at the end of the newest step (s).
        expected: how many vehicles it expects then.
    """

    def __init__(self, api: Any, places: Sequence[tuple[Anchor, float]], types: TypeFilter, suffix: str) -> None:
        api.simulation.subscribe([TIME, EXPECTED, TELEPORTING, DEPARTED, ARRIVED])
        for place, radius_m in places:
            place.domain.subscribeContext(place.id, VEHICLES, radius_m, [POSITION, SPEED, TYPE, CLASS, ROAD])
        self._socket = api._socket  # noqa: SLF001 - the package has no way to send without waiting
        self._suffix = suffix
        self._received = bytearray()
        self._waiting = False
        self._kept: list[_Answer] = []
        self._numbers: dict[bytes, int] = {}
        self._ids: list[bytes] = []  # by number
        self._verdicts = Verdicts(types)
        self._rows = _Rows(b"", [], [])
        self.time_s = 0.0
        self.expected = 0

    def request(self) -> None:
        """Ask for the next step."""
        self._socket.sendall(_STEP)
        self._waiting = True

    def receive(self, label_s: float | None) -> int:
        """Wait for the step asked for; afterwards ``time_s`` and ``expected`` are SUMO's at the end of that step.

        Args:
            label_s: the time of its frame (s); None to forget what it tells.

        Returns:
            how many bytes are kept for ``frames``.

        Raises:
            ConnectionError: SUMO is gone, or answers in words not understood.
        """
        data = self._message()
        head = 0 if data[0] else 4  # a long one has its length in four more bytes
        if data[head + 2]:
            raise ConnectionError(_text(data, head + 3))
        at = head + 7 + _integer(data, head + 3)
        contexts, simulation = [], 0
        count, at = _integer(data, at), at + 4
        for _ in range(count):
            # each answer: 0, its length, its kind, the object's id, and then the results
            kind, results = data[at + 5], at + 10 + _integer(data, at + 6)
            if kind == 0xEB:
                simulation = results + 1
            else:
                contexts.append(results + 2)
            at += _integer(data, at + 1)
        time, self.time_s, expected, self.expected = _CLOCK.unpack_from(data, simulation)
        if (time, expected) != _CLOCK_HEADS:
            raise ConnectionError("SUMO's answer to a step is of an unknown format.")
        if label_s is not None:
            self._kept.append(_Answer(label_s, data, simulation, tuple(contexts)))
        return sum(len(answer.data) for answer in self._kept)

    def frames(self) -> Frames:
        """Return the frames of the steps received since the last call, at least one."""
        self._answers, self._kept = self._kept, []
        buffer = b"".join(answer.data for answer in self._answers)
        bases = np.cumsum([0, *(len(answer.data) for answer in self._answers)]).tolist()
        contexts = [base + at for base, answer in zip(bases, self._answers, strict=False) for at in answer.contexts]
        steps = [step for step, answer in enumerate(self._answers) for _ in answer.contexts]
        rows = _Rows(buffer, contexts, steps)
        numbers = self._numbers
        # a dictionary is exact and looks up some ten million ids a second
        vehicle = np.array([numbers.setdefault(name, len(numbers)) for name in rows.ids()], dtype=np.int64)
        taken = self._verdicts.of(vehicle, rows.kind)
        if len(contexts) > len(self._answers):  # circles overlap: a vehicle may be told of more than once
            _, first = np.unique(vehicle * len(self._answers) + rows.instant, return_index=True)
            single = np.zeros(len(vehicle), dtype=np.bool_)
            single[first] = True
            taken &= single
        vehicle = vehicle[taken]
        self._rows = rows = rows.chosen(taken)
        moved = np.zeros(len(vehicle), dtype=np.bool_)
        for step in range(len(self._answers)):
            if names := self._listed(TELEPORTING, step):
                # some are already where they are moved to
                gone = [numbers[name] for name in names if name in numbers]
                moved |= (rows.instant == step) & np.isin(vehicle, gone)
        x_m, y_m, speed_mps = rows.motion()
        return Frames(
            time_s=np.array([answer.time_s for answer in self._answers]),
            instant=rows.instant,
            vehicle=vehicle,
            x_m=x_m,
            y_m=y_m,
            speed_mps=speed_mps,
            moved=moved,
        )

    def vehicle_id(self, row: int) -> str:
        """Return the id of the vehicle of a row."""
        return self._rows.id(row).decode() + self._suffix

    def vehicle_type(self, row: int) -> str:
        """Return the type of the vehicle of a row."""
        return self._rows.kind(row)[1]

    def edge(self, row: int) -> str:
        """Return the edge that the vehicle of a row is on."""
        return self._rows.road(row)

    def appeared(self, row: int) -> EntryCause:
        """Return ``departure`` in the step of its insertion, else ``teleport``."""
        departed = self._listed(DEPARTED, int(self._rows.instant[row]))
        return "departure" if self._rows.id(row) in departed else "teleport"

    def vanished(self, vehicle: int, instant: int) -> ExitCause:
        """Return ``arrival`` for a vehicle that SUMO took out of the net, ``teleport`` for one that it moves."""
        if len(self._ids) < len(self._numbers):
            self._ids = list(self._numbers)
        return "arrival" if self._ids[vehicle] in self._listed(ARRIVED, instant) else "teleport"

    def drain(self) -> None:
        """Wait for a step still asked for, so that the connection is in order again."""
        if self._waiting:
            self._message()

    def _listed(self, what: int, step: int) -> list[bytes]:
        """Return the vehicles that departed, arrived or began to teleport in a step."""
        _, data, at, _ = self._answers[step]
        at += _CLOCK.size
        while True:
            names = []
            variable, count, at = data[at], _integer(data, at + 3), at + 7
            for _ in range(count):
                end = at + 4 + _integer(data, at)
                names.append(data[at + 4 : end])
                at = end
            if variable == what:
                return names

    def _message(self) -> bytes:
        received = self._received
        # what has arrived is kept when Ctrl-C interrupts the wait
        while len(received) < 4 or len(received) < int.from_bytes(received[:4], "big"):
            chunk = self._socket.recv(_CHUNK)
            if not chunk:
                self._waiting = False
                raise ConnectionError("connection closed by SUMO.")
            received += chunk
        self._received, self._waiting = bytearray(), False
        return bytes(received[4:])


class _Rows:
    """The vehicles of some answers, one row a vehicle and step, in the layout of ``SumoStream``'s subscription.

    Args:
        buffer: the answers.
        contexts: where in it the vehicles around a place begin, with how many they are.
        steps: to which step each of these belongs.

    Attributes:
        instant: the step of each row.

    Raises:
        ConnectionError: the rows have another layout.
    """

    def __init__(self, buffer: bytes, contexts: Sequence[int], steps: Sequence[int]) -> None:
        self._buffer = buffer
        self._bytes = np.frombuffer(buffer, dtype=np.uint8)
        counts = np.array([_integer(buffer, at) for at in contexts], dtype=np.int64)
        self.instant: Integers = np.repeat(np.array(steps, dtype=np.int64), counts)
        # The rows differ in length, but the heads of their numbers stand at fixed distances.
        motion = np.flatnonzero(self._bytes[: -max(_MOTION)] == POSITION)
        for distance, value in _MOTION.items():
            motion = motion[self._bytes[motion + distance] == value]
        if len(motion) != len(self.instant):
            raise _unknown_format()
        self._motion = motion
        kind = motion + 37 + self._integers(motion + 33)
        self._class = kind
        self._road = kind + 7 + self._integers(kind + 3)
        ends = self._road + 7 + self._integers(self._road + 3)
        starts = np.empty_like(ends)
        starts[1:] = ends[:-1]
        first = np.cumsum(counts) - counts
        starts[first[counts > 0]] = np.array(contexts, dtype=np.int64)[counts > 0] + 4
        self._ids = starts + 4
        lengths = self._integers(starts)
        heads = (self._bytes[self._class] == CLASS) & (self._bytes[self._road] == ROAD)
        if not (heads & (self._ids + lengths == motion)).all():
            raise _unknown_format()

    def chosen(self, rows: NDArray[np.bool_]) -> _Rows:
        """Return some of the rows."""
        if rows.all():
            return self
        some = object.__new__(_Rows)
        some._buffer, some._bytes = self._buffer, self._bytes
        some.instant, some._ids, some._motion = self.instant[rows], self._ids[rows], self._motion[rows]
        some._class, some._road = self._class[rows], self._road[rows]
        return some

    def ids(self) -> list[bytes]:
        """Return the vehicles' ids."""
        pairs = zip(self._ids.tolist(), self._motion.tolist(), strict=True)
        return [self._buffer[start:end] for start, end in pairs]

    def id(self, row: int) -> bytes:
        """Return the id of one."""
        return self._buffer[self._ids[row] : self._motion[row]]

    def motion(self) -> tuple[Floats, Floats, Floats]:
        """Return x and y (m) and speed (m/s)."""
        x_m, y_m, speed_mps = (
            self._bytes[(self._motion + distance)[:, None] + np.arange(8)].view(">f8").ravel().astype(np.float64)
            for distance in (3, 11, 22)
        )
        return x_m, y_m, speed_mps

    def kind(self, row: int) -> tuple[str, str, str]:
        """Return the id, the type and the class of a row's vehicle."""
        kinds = _text(self._buffer, int(self._motion[row]) + 33), _text(self._buffer, int(self._class[row]) + 3)
        return self.id(row).decode(), *kinds

    def road(self, row: int) -> str:
        """Return the edge that a row's vehicle is on."""
        return _text(self._buffer, int(self._road[row]) + 3)

    def _integers(self, at: Integers) -> Integers:
        found: Integers = self._bytes[at[:, None] + np.arange(4)].view(">i4").ravel().astype(np.int64)
        return found


def _unknown_format() -> ConnectionError:
    return ConnectionError("SUMO's answer on vehicles is of an unknown format.")


def _integer(data: bytes, at: int) -> int:
    value: int = _INTEGER.unpack_from(data, at)[0]
    return value


def _text(data: bytes, at: int) -> str:
    return data[at + 4 : at + 4 + _integer(data, at)].decode()
