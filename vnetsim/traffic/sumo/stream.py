"""A SUMO process read one step behind: while it simulates a step, this process works on the step before.

The ``traci`` package waits for each step and takes microseconds for every number it reads. Traffic is only watched
here, never influenced, so the next step can be asked for as soon as the answer to the last has arrived; and of the
answer, rows of one known layout, only what coverage windows need is taken apart. What the vehicles would be asked when
a window opens or closes is part of the answer, for SUMO has moved on by then. Message formats: SUMO's TraCI protocol.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from vnetsim.coverage.tracker import Sample
from vnetsim.traffic.sumo.net import POSITION, SPEED, VEHICLES, Anchor
from vnetsim.traffic.vehicle_types import TypeFilter

TYPE, CLASS, ROAD = 0x4F, 0x49, 0x50
TIME, EXPECTED, DEPARTED, ARRIVED, TELEPORTING = 0x66, 0x7D, 0x74, 0x7A, 0x76
NAMES = 0x00

_STEP = struct.pack("!iBBd", 14, 10, 0x02, 0.0)
_INTEGER = struct.Struct("!i")
_CLOCK = struct.Struct("!3sd3si")
_CLOCK_HEADS = bytes((TIME, 0, 0x0B)), bytes((EXPECTED, 0, 0x09))
_MOTION = struct.Struct("!3sdd3sd3si")
_MOTION_HEADS = bytes((POSITION, 0, 0x01)), bytes((SPEED, 0, 0x0B)), bytes((TYPE, 0, 0x0C))
_NAME = struct.Struct("!3si")
_CLASS_HEAD, _ROAD_HEAD = bytes((CLASS, 0, 0x0C)), bytes((ROAD, 0, 0x0C))
_CHUNK = 1 << 18


class SumoStream:
    """What a stepping SUMO tells of the vehicles around some places.

    Args:
        api: an open connection of the ``traci`` package; not to be used otherwise until ``drain``.
        places: where to look and how far (m).
        types: which vehicles are looked for.
    """

    def __init__(self, api: Any, places: Sequence[tuple[Anchor, float]], types: TypeFilter) -> None:
        api.simulation.subscribe([TIME, EXPECTED, TELEPORTING, DEPARTED, ARRIVED])
        api.vehicle.subscribe("", [NAMES])
        for place, radius_m in places:
            place.domain.subscribeContext(place.id, VEHICLES, radius_m, [POSITION, SPEED, TYPE, CLASS, ROAD])
        self._socket = api._socket  # noqa: SLF001 - the package has no way to send without waiting
        self._types = types
        self._taken: set[bytes] = set()
        self._received = bytearray()
        self._waiting = False
        self._data = b""
        self._contexts: list[int] = []
        self._simulation = self._vehicles = 0
        self._details: dict[str, int] = {}
        self._lists: dict[int, frozenset[str]] = {}
        self.time_s = 0.0
        self.expected = 0

    def request(self) -> None:
        """Ask for the next step."""
        self._socket.sendall(_STEP)
        self._waiting = True

    def receive(self) -> None:
        """Wait for the step asked for; afterwards ``time_s`` and ``expected`` are SUMO's at the end of that step.

        Raises:
            ConnectionError: SUMO is gone, or answers in words not understood.
        """
        self._data = data = self._message()
        self._details, self._lists = {}, {}
        head = 0 if data[0] else 4  # a long one has its length in four more bytes
        if data[head + 2]:
            raise ConnectionError(self._text(head + 3))
        at = head + 7 + self._integer(head + 3)
        self._contexts = []
        count, at = self._integer(at), at + 4
        for _ in range(count):
            # each answer: 0, its length, its kind, the object's id, and then the results
            kind, results = data[at + 5], at + 10 + self._integer(at + 6)
            if kind == 0xEB:
                self._simulation = results + 1
            elif kind == 0xE4:
                self._vehicles = results + 1
            else:
                self._contexts.append(results + 2)
            at += self._integer(at + 1)
        time, self.time_s, expected, self.expected = _CLOCK.unpack_from(data, self._simulation)
        if (time, expected) != _CLOCK_HEADS:
            raise ConnectionError("SUMO's answer to a step is of an unknown format.")

    def near(self, suffix: str) -> list[list[Sample]]:
        """Return the vehicles around each place; ``suffix`` is appended to their ids."""
        return [self._rows(at, suffix) for at in self._contexts]

    def teleported(self, suffix: str) -> frozenset[str]:
        """Return the vehicles that began to teleport in the step; ``suffix`` is appended to their ids."""
        names, _ = self._names(self._simulation + _CLOCK.size)
        return frozenset(name + suffix for name in names)

    def vehicle_type(self, vehicle_id: str) -> str:
        """Return the type of a vehicle that is near one of the places."""
        return self._text(self._details[vehicle_id] + _MOTION.size - 4)

    def edge(self, vehicle_id: str) -> str:
        """Return the edge of a vehicle that is near one of the places."""
        at = self._details[vehicle_id] + _MOTION.size
        at += self._integer(at - 4) + _NAME.size
        return self._text(at + self._integer(at - 4) + 3)

    def listed(self, what: int, vehicle_id: str) -> bool:
        """Return whether a vehicle departed, arrived, began to teleport, or is in the net (``NAMES``)."""
        if what not in self._lists:
            at = self._vehicles if what == NAMES else self._simulation + _CLOCK.size
            while self._data[at] != what:
                at = self._names(at)[1]
            self._lists[what] = frozenset(self._names(at)[0])
        return vehicle_id in self._lists[what]

    def drain(self) -> None:
        """Wait for a step still asked for, so that the connection is in order again."""
        if self._waiting:
            self._message()

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

    def _rows(self, at: int, suffix: str) -> list[Sample]:
        data, details, length, motion = self._data, self._details, _INTEGER.unpack_from, _MOTION.unpack_from
        named, taken = _NAME.unpack_from, self._taken
        rows: list[Sample] = []
        heads = (*_MOTION_HEADS, _CLASS_HEAD, _ROAD_HEAD)
        (count,) = length(data, at)
        at += 4
        for _ in range(count):
            start = at + 4
            at = start + length(data, at)[0]
            name = data[start:at].decode()
            head, x_m, y_m, second, speed_mps, third, size = motion(data, at)
            row, at = at, at + _MOTION.size
            kind, at = at, at + size
            fourth, size = named(data, at)
            at += _NAME.size + size
            known = data[kind:at]
            fifth, size = named(data, at)
            at += _NAME.size + size
            if (head, second, third, fourth, fifth) != heads:
                raise ConnectionError("SUMO's answer on a vehicle is of an unknown format.")
            if known not in taken:
                if not self._takes(name, row):
                    continue
                taken.add(known)
            details[name] = row
            rows.append((name + suffix, x_m, y_m, speed_mps))
        return rows

    def _takes(self, name: str, row: int) -> bool:
        """Return whether the vehicle whose values begin at ``row`` is looked for."""
        type_at = row + _MOTION.size - 4
        class_at = type_at + 4 + self._integer(type_at) + 3
        return self._types.takes(name, self._text(type_at), self._text(class_at))

    def _names(self, at: int) -> tuple[list[str], int]:
        """Return the list of names that begins with its variable's head at ``at``, and where it ends."""
        names = []
        count, at = self._integer(at + 3), at + 7
        for _ in range(count):
            names.append(self._text(at))
            at += 4 + self._integer(at)
        return names, at

    def _integer(self, at: int) -> int:
        value: int = _INTEGER.unpack_from(self._data, at)[0]
        return value

    def _text(self, at: int) -> str:
        return self._data[at + 4 : at + 4 + self._integer(at)].decode()
