"""Between the simulation and a radio model: who asks it for which rate, and how often; who serves whom by it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np

from vnetsim.coverage.association import Association, nearness
from vnetsim.coverage.rsu import Rsu
from vnetsim.coverage.windows import Floats, VehiclePath, position_m
from vnetsim.experiment import AssociationSettings
from vnetsim.plugins import plugin_errors
from vnetsim.radio import PositionM, RadioModel
from vnetsim.radio.channel import RateUse
from vnetsim.radio.propagation import CAR_M
from vnetsim.random_streams import Streams


class Radio:
    """Asks a radio model.

    Args:
        model: the model.
        streams: source of what is drawn per window and per pair; named, so that it does not matter when.
        rsus: all of them.
        lanes: of the net near them, see ``TrafficInfo.lanes``.
        heights_m: of vehicles by type, see ``TrafficInfo.heights_m``; who is of no known type is a car (1.6 m).

    Attributes:
        update_s: how often a transfer looks its rate up anew (s); None when rates never change.
    """

    def __init__(
        self,
        model: RadioModel,
        streams: Streams,
        rsus: Sequence[Rsu] = (),
        lanes: Sequence[Floats] = (),
        heights_m: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        self._model = model
        self._streams = streams.child("radio")
        self.update_s = model.update_s
        self._heights_m = heights_m
        self._draw = getattr(model, "draw", None)
        begin = getattr(model, "begin", None)
        self._memory = None if begin is None else begin(rsus, lanes)

    def rate_use(self) -> RateUse:
        """Return what takes note of rates, for channels."""
        cap_bps = getattr(self._model, "cap_bps", None)
        with plugin_errors("radio model", self._model.name, "in cap_bps"):
            cap_bps = None if cap_bps is None else float(cap_bps)
        memory = self._memory
        return RateUse(cap_bps=cap_bps, state=lambda: getattr(memory, "state", ""), notes=getattr(memory, "notes", ()))

    def entered(self, vehicle_type: str) -> None:
        """Tell the model that a vehicle of a type came into coverage for the first time."""
        if hasattr(self._model, "entered"):
            self._model.entered(self._heights_m.get(vehicle_type, CAR_M), self._memory)

    def link(self, path: VehiclePath, rsu: Rsu, earlier_windows: int) -> Link:
        """Return the link of a coverage window.

        Args:
            path: the vehicle's path, growing.
            rsu: the RSU whose window it is.
            earlier_windows: how many this vehicle had at this RSU before; with the two ids it names the random stream.
        """
        return Link(self, self._model, path, rsu, self._drawn((path,), path.vehicle_id, rsu.id, earlier_windows))

    def received_dbm(self, path: VehiclePath, rsu: Rsu, earlier_windows: int) -> Callable[[PositionM], float]:
        """Return what gives the power that a vehicle receives of an RSU in a window (dBm); see ``link``."""
        received_dbm = self._model.received_dbm
        state = self._drawn((path,), path.vehicle_id, rsu.id, earlier_windows)
        return lambda place_m: received_dbm(rsu, place_m, state)

    def pair_state(self, round_index: int, one: VehiclePath, other: VehiclePath) -> Any:
        """Return what the model draws for two vehicles in a round's exchange, whoever is named first."""
        paths = sorted((one, other), key=lambda path: path.vehicle_id)
        return self._drawn(paths, "sidelink", round_index, *(path.vehicle_id for path in paths))

    def _drawn(self, vehicles: Sequence[VehiclePath], *names: str | int) -> Any:
        if self._draw is None:
            return None
        heights_m = tuple(self._heights_m.get(path.vehicle_type, CAR_M) for path in vehicles)
        return self._draw(self._streams.generator(*names), self._memory, heights_m)

    def sidelink_bps(self, rsu: Rsu, sender: VehiclePath, receiver: VehiclePath, time_s: float, state: Any) -> float:
        """Return the rate between two vehicles (bit/s) at a time that both paths cover (s)."""
        sender_m, receiver_m = position_m(sender, time_s), position_m(receiver, time_s)
        return self._model.sidelink_bps(rsu, sender_m, receiver_m, state)


def association(settings: AssociationSettings, rsus: Sequence[Rsu], radio: Radio) -> Association:
    """Return what tells who serves a vehicle, by an experiment's settings."""
    if settings.rule == "first":
        return Association(None)
    quality = nearness(rsus) if settings.rule == "nearest" else ReceivedPower(radio, rsus)
    return Association(quality, hysteresis=settings.hysteresis, trigger_s=settings.trigger_s)


class ReceivedPower:
    """The quality that makes the strongest RSU the best: the power that a vehicle receives of it (dBm).

    Args:
        radio: asks the model, with the states of the windows' links.
        rsus: all of them.
    """

    def __init__(self, radio: Radio, rsus: Sequence[Rsu]) -> None:
        self._radio = radio
        self._rsus = {rsu.id: rsu for rsu in rsus}
        self._entries: Counter[tuple[str, str]] = Counter()

    def __call__(self, path: VehiclePath) -> Callable[[Any, Any], Any]:
        """Return what gives it in a window that opens, at one place or, one after the other, at many."""
        key = path.vehicle_id, path.rsu_id
        power_dbm = cache(self._radio.received_dbm(path, self._rsus[path.rsu_id], self._entries[key]))
        self._entries[key] += 1

        def quality(x_m: Any, y_m: Any) -> Any:
            if isinstance(x_m, float):
                return power_dbm((x_m, y_m))
            return np.array([power_dbm(place) for place in zip(x_m.tolist(), y_m.tolist(), strict=True)])

        return quality


class Link:
    """The radio link of one coverage window.

    Args:
        radio: asks the model.
        model: the model.
        path: the vehicle's path so far.
        rsu: the other end.
        state: what the model drew for the window.
    """

    __slots__ = ("_fixed", "_model", "_path", "_radio", "_rsu", "_state")

    def __init__(self, radio: Radio, model: RadioModel, path: VehiclePath, rsu: Rsu, state: Any) -> None:
        self._radio = radio
        self._model = model
        self._path = path
        self._rsu = rsu
        self._state = state
        self._fixed: dict[str, float] = {}  # rates that never change, looked up once

    @property
    def update_s(self) -> float | None:
        """How often the rates must be looked up anew (s); None when they never change."""
        return self._radio.update_s

    def downlink_bps(self, time_s: float) -> float:
        """Return the rate from RSU to vehicle (bit/s) at a time that the path covers (s)."""
        return self._fixed.get("downlink") or self._looked_up("downlink", time_s, self._model.downlink_bps)

    def uplink_bps(self, time_s: float) -> float:
        """Return the rate from vehicle to RSU (bit/s) at a time that the path covers (s)."""
        return self._fixed.get("uplink") or self._looked_up("uplink", time_s, self._model.uplink_bps)

    def _looked_up(self, direction: str, time_s: float, rate_bps: Callable[..., float]) -> float:
        found = rate_bps(self._rsu, position_m(self._path, time_s), self._state)
        if self._radio.update_s is None:
            self._fixed[direction] = found
        return found
