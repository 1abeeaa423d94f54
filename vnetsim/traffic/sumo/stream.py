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

_STEP = struct.pack("!BBd", 10, 0x02, 0.0)
_INTEGER = struct.Struct("!i")
_CLOCK = struct.Struct("!3sd3si")
_CLOCK_HEADS = bytes((TIME, 0, 0x0B)), bytes((EXPECTED, 0, 0x09))
# Of a row: the id; then each variable's number, its status 0, its type, and its value.
_MOTION = {0: POSITION, 1: 0, 2: 0x01, 19: SPEED, 20: 0, 21: 0x0B, 30: ROAD, 31: 0, 32: 0x0C}
_CHUNK = 1 << 18


class _Answer(NamedTuple):
    """SUMO's answer to a step, where in it the vehicles around each place are, and the numbers of some others."""

    time_s: float
    data: bytes
    contexts: list[int]
    teleporting: set[int]
    departed: set[int]
    arrived: set[int]


class SumoStream:
    """What a stepping SUMO tells of the vehicles around some places (``vnetsim.coverage.frames.Observer``).

    What SUMO tells in every step it looks up in every step. A vehicle's type and class never change: they are asked
    for once, along with the step that follows its departure.

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
        self._numbers: dict[bytes, int] = {}  # of the vehicles that have not arrived
        self._kinds: list[tuple[str, str]] = []  # type and class by number
        self._same: dict[tuple[str, str], tuple[str, str]] = {}
        self._new: list[bytes] = []
        self._asked = 0
        self._gone: set[bytes] = set()
        self._departs([name.encode() for name in api.vehicle.getIDList()])  # of a saved state
        api.simulation.subscribe([TIME, EXPECTED, TELEPORTING, DEPARTED, ARRIVED])
        for place, radius_m in places:
            place.domain.subscribeContext(place.id, VEHICLES, radius_m, [POSITION, SPEED, ROAD])
        self._socket = api._socket  # noqa: SLF001 - the package has no way to send without waiting
        self._suffix = suffix
        self._received = bytearray()
        self._waiting = False
        self._kept: list[_Answer] = []
        self._verdicts = Verdicts(types)
        self.time_s = 0.0
        self.expected = 0

    def request(self) -> None:
        """Ask for the next step."""
        self._send(_STEP)

    def settle(self) -> None:
        """Ask for what ``frames`` must know of the newest step; before the next is asked for."""
        if self._new:
            self._send(b"")
            self._learn(self._message())

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
        at, _ = _command(data, self._learn(data))
        if data[at + 1]:
            raise ConnectionError(_text(data, at + 2))
        at += 6 + _integer(data, at + 2)
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
        teleporting, at = _names(data, simulation + _CLOCK.size)
        departed, at = _names(data, at)
        arrived, at = _names(data, at)
        self._departs(departed)
        self._gone = self._gone.difference(departed).union(arrived)
        if label_s is not None:
            numbers = ({self._numbers[name] for name in names} for names in (teleporting, departed, arrived))
            self._kept.append(_Answer(label_s, data, contexts, *numbers))
        return sum(len(answer.data) for answer in self._kept)

    def frames(self) -> Frames:
        """Return the frames of the steps received since the last call, at least one.

        Raises:
            ConnectionError: SUMO tells of vehicles in words not understood, or of one that never departed.
        """
        self._answers, self._kept = self._kept, []
        buffer = b"".join(answer.data for answer in self._answers)
        bases = np.cumsum([0, *(len(answer.data) for answer in self._answers)]).tolist()
        contexts = [base + at for base, answer in zip(bases, self._answers, strict=False) for at in answer.contexts]
        steps = [step for step, answer in enumerate(self._answers) for _ in answer.contexts]
        rows = _Rows(buffer, contexts, steps)
        numbers = self._numbers
        # a dictionary is exact and looks up some ten million ids a second
        try:
            vehicle = np.array([numbers[name] for name in rows.ids()], dtype=np.int64)
        except KeyError as error:
            raise ConnectionError(f"it never told of the departure of vehicle {error}.") from error
        for name in self._gone:
            del numbers[name]
        self._gone.clear()
        told = vehicle < len(self._kinds)  # SUMO may have failed before it told of those that departed last
        vehicle, rows = vehicle[told], rows.chosen(told)
        taken = self._verdicts.of(vehicle, lambda row: (rows.id(row).decode(), *self._kinds[vehicle[row]]))
        if len(contexts) > len(self._answers):  # circles overlap: a vehicle may be told of more than once
            _, first = np.unique(vehicle * len(self._answers) + rows.instant, return_index=True)
            single = np.zeros(len(vehicle), dtype=np.bool_)
            single[first] = True
            taken &= single
        self._vehicle, self._rows = vehicle[taken], rows.chosen(taken)
        moved = np.zeros(len(self._vehicle), dtype=np.bool_)
        for step, answer in enumerate(self._answers):
            if answer.teleporting:  # some are already where they are moved to
                moved |= (self._rows.instant == step) & np.isin(self._vehicle, list(answer.teleporting))
        x_m, y_m, speed_mps = self._rows.motion()
        return Frames(
            time_s=np.array([answer.time_s for answer in self._answers]),
            instant=self._rows.instant,
            vehicle=self._vehicle,
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
        return self._kinds[int(self._vehicle[row])][0]

    def edge(self, row: int) -> str:
        """Return the edge that the vehicle of a row is on."""
        return self._rows.road(row)

    def appeared(self, row: int) -> EntryCause:
        """Return ``departure`` in the step of its insertion, else ``teleport``."""
        departed = self._answers[self._rows.instant[row]].departed
        return "departure" if int(self._vehicle[row]) in departed else "teleport"

    def vanished(self, vehicle: int, instant: int) -> ExitCause:
        """Return ``arrival`` for a vehicle that SUMO took out of the net, ``teleport`` for one that it moves."""
        return "arrival" if vehicle in self._answers[instant].arrived else "teleport"

    def drain(self) -> None:
        """Wait for a step still asked for, so that the connection is in order again."""
        if self._waiting:
            self._message()

    def _departs(self, names: Sequence[bytes]) -> None:
        """Give vehicles their numbers; their kinds are asked for with the next message."""
        for name in names:
            if name not in self._numbers:
                self._numbers[name] = len(self._kinds) + self._asked + len(self._new)
                self._new.append(name)

    def _learn(self, data: bytes) -> int:
        """Take note of the kinds that were asked for; return where their part of an answer ends."""
        at = 0
        for _ in range(self._asked):
            kind = []
            for _ in (TYPE, CLASS):
                status, at = _command(data, at)
                if data[status + 1]:  # it has arrived already
                    kind.append("")
                else:
                    start, at = _command(data, at)
                    kind.append(_text(data, start + 7 + _integer(data, start + 2)))
            self._kinds.append(self._same.setdefault((kind[0], kind[1]), (kind[0], kind[1])))
        self._asked = 0
        return at

    def _send(self, command: bytes) -> None:
        questions = [_question(name, variable) for name in self._new for variable in (TYPE, CLASS)]
        self._asked, self._new = len(self._new), []
        message = b"".join((*questions, command))
        self._socket.sendall(_INTEGER.pack(len(message) + 4) + message)
        self._waiting = True

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
        ends = motion + 37 + self._integers(motion + 33)
        starts = np.empty_like(ends)
        starts[1:] = ends[:-1]
        first = np.cumsum(counts) - counts
        starts[first[counts > 0]] = np.array(contexts, dtype=np.int64)[counts > 0] + 4
        self._ids = starts + 4
        lengths = self._integers(starts)
        if not (self._ids + lengths == motion).all():
            raise _unknown_format()

    def chosen(self, rows: NDArray[np.bool_]) -> _Rows:
        """Return some of the rows."""
        if rows.all():
            return self
        some = object.__new__(_Rows)
        some._buffer, some._bytes = self._buffer, self._bytes
        some.instant, some._ids, some._motion = self.instant[rows], self._ids[rows], self._motion[rows]
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

    def road(self, row: int) -> str:
        """Return the edge that a row's vehicle is on."""
        return _text(self._buffer, int(self._motion[row]) + 33)

    def _integers(self, at: Integers) -> Integers:
        found: Integers = self._bytes[at[:, None] + np.arange(4)].view(">i4").ravel().astype(np.int64)
        return found


def _unknown_format() -> ConnectionError:
    return ConnectionError("SUMO's answer on vehicles is of an unknown format.")


def _question(name: bytes, variable: int) -> bytes:
    """Return the command that asks for something of a vehicle."""
    body = struct.pack("!BBi", 0xA4, variable, len(name)) + name
    return (bytes((len(body) + 1,)) if len(body) < 255 else b"\0" + _INTEGER.pack(len(body) + 5)) + body


def _command(data: bytes, at: int) -> tuple[int, int]:
    """Return where a command of a message begins behind its length, which takes five bytes if it is long; and ends."""
    return (at + 1, at + data[at]) if data[at] else (at + 5, at + _integer(data, at + 1))


def _names(data: bytes, at: int) -> tuple[list[bytes], int]:
    """Return a variable's value, a list of ids, and where it ends."""
    names, count, at = [], _integer(data, at + 3), at + 7
    for _ in range(count):
        end = at + 4 + _integer(data, at)
        names.append(data[at + 4 : end])
        at = end
    return names, at


def _integer(data: bytes, at: int) -> int:
    value: int = _INTEGER.unpack_from(data, at)[0]
    return value


def _text(data: bytes, at: int) -> str:
    return data[at + 4 : at + 4 + _integer(data, at)].decode()
