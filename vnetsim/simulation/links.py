"""The simulation's use of a radio model: rates of links, and which RSU serves a vehicle."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np

from vnetsim.coverage.association import Association, AtPlace, Quality, nearness
from vnetsim.coverage.rsu import Rsu
from vnetsim.coverage.windows import Floats, VehiclePath, position_m
from vnetsim.errors import InputError
from vnetsim.experiment import AssociationSettings
from vnetsim.plugins.results import FINITE, number_of
from vnetsim.radio import RADIO_MODELS, RATE, PositionM, RadioModel
from vnetsim.radio.channel import RateUse
from vnetsim.radio.propagation import CAR_M
from vnetsim.random_streams import Streams


class Radio:
    """A radio model with its random streams and memory.

    Args:
        streams: random streams, one per window and per pair of vehicles.
        heights_m: vehicle heights by type, see ``TrafficInfo.heights_m``; other types are cars (1.6 m).

    Attributes:
        update_s: how often a transfer looks up its rate again (s); None if rates never change.

    Raises:
        InputError: the model's ``update_s`` is neither None nor a time above 0 s: a transfer would never end.
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
        self.update_s: float | None = model.update_s
        if self.update_s is not None and not (isinstance(self.update_s, int | float) and 0 < self.update_s < math.inf):
            raise InputError(
                f"radio model '{model.name}': its update_s is {self.update_s!r}; make it None, or a time in s above 0."
            )
        self._heights_m = heights_m
        self._draw = getattr(model, "draw", None)
        self._entered = getattr(model, "entered", None)
        begin = getattr(model, "begin", None)
        self._memory = begin(rsus, lanes) if begin else None

    def rate_use(self) -> RateUse:
        """Return a new counter of the rates that channels use; RunError if the model's ``cap_bps`` is not finite."""
        cap_bps = getattr(self._model, "cap_bps", None)
        if cap_bps is not None:
            cap_bps = number_of(cap_bps, FINITE, RADIO_MODELS, self._model, "cap_bps")
        memory = self._memory
        return RateUse(cap_bps=cap_bps, state=lambda: getattr(memory, "state", ""), notes=getattr(memory, "notes", ()))

    def enter(self, vehicle_type: str) -> None:
        """Report the height of a vehicle of this type to the radio model; called at each vehicle's first entry."""
        if self._entered is not None:
            self._entered(self._heights_m.get(vehicle_type, CAR_M), self._memory)

    def link(self, path: VehiclePath, rsu: Rsu, earlier_windows: int) -> Link:
        """Return a window's link; equal vehicle, RSU and number of ``earlier_windows`` there give equal randomness."""
        state = self._draw_state((path,), path.vehicle_id, rsu.id, earlier_windows)
        return Link(model=self._model, update_s=self.update_s, path=path, rsu=rsu, state=state)

    def received_dbm(self, path: VehiclePath, rsu: Rsu, earlier_windows: int) -> Callable[[PositionM], float]:
        """Return a function from position (m) to power received from an RSU (dBm), in the random state of ``link``."""
        model = self._model
        state = self._draw_state((path,), path.vehicle_id, rsu.id, earlier_windows)

        def received_dbm(place_m: PositionM) -> float:
            """Return the power received at a place (dBm); RunError if the model returns no finite number."""
            found = model.received_dbm(rsu, place_m, state)
            return number_of(found, FINITE, RADIO_MODELS, model, "received_dbm")

        return received_dbm

    def pair_state(self, round_index: int, one: VehiclePath, other: VehiclePath) -> Any:
        """Return two vehicles' radio state in a round's exchange, equal in either order; None if nothing is random."""
        paths = sorted((one, other), key=lambda path: path.vehicle_id)
        return self._draw_state(paths, "sidelink", round_index, *(path.vehicle_id for path in paths))

    def _draw_state(self, vehicles: Sequence[VehiclePath], *names: str | int) -> Any:
        """Draw a link's state from the random stream of these names; None if the radio model draws nothing."""
        if self._draw is None:
            return None
        heights_m = tuple(self._heights_m.get(path.vehicle_type, CAR_M) for path in vehicles)
        return self._draw(self._streams.generator(*names), self._memory, heights_m)

    def sidelink_bps(self, rsu: Rsu, sender: VehiclePath, receiver: VehiclePath, time_s: float, state: Any) -> float:
        """Return the rate between two vehicles (bit/s) in a ``pair_state`` at a time (s) that both paths cover."""
        sender_m, receiver_m = position_m(sender, time_s), position_m(receiver, time_s)
        found = self._model.sidelink_bps(rsu, sender_m, receiver_m, state)
        return number_of(found, RATE, RADIO_MODELS, self._model, "sidelink_bps")


def association(settings: AssociationSettings, rsus: Sequence[Rsu], radio: Radio) -> Association:
    """Return the rule by which RSUs serve vehicles: ``first``, ``nearest`` or ``strongest`` of ``association.rule``."""
    if settings.rule == "first":
        return Association(None)
    quality = nearness(rsus) if settings.rule == "nearest" else received_power(radio, rsus)
    return Association(quality, hysteresis=settings.hysteresis, trigger_s=settings.trigger_s)


def received_power(radio: Radio, rsus: Sequence[Rsu]) -> Quality:
    """Return the quality for ``association.rule = "strongest"``: power received at the vehicle's place (dBm).

    The quality takes a window's path and returns a function of x and y (m). Call it once for each window, in order of
    entry: the number of its calls for that vehicle and RSU selects the random stream.
    """
    by_id = {rsu.id: rsu for rsu in rsus}
    entries: Counter[tuple[str, str]] = Counter()

    def quality(path: VehiclePath) -> AtPlace:
        """Return the function from place (m) to the power (dBm) received from the RSU of a new window."""
        key = path.vehicle_id, path.rsu_id
        power_dbm = cache(radio.received_dbm(path, by_id[path.rsu_id], entries[key]))
        entries[key] += 1

        def at_place(x_m: Any, y_m: Any) -> Any:
            """Return the power (dBm) at one place, a float, or at each of many places, an array."""
            if isinstance(x_m, float):
                return power_dbm((x_m, y_m))
            return np.array([power_dbm(place) for place in zip(x_m.tolist(), y_m.tolist(), strict=True)])

        return at_place

    return quality


@dataclass(slots=True, kw_only=True, eq=False)
class Link:
    """The radio link of one coverage window."""

    model: RadioModel
    update_s: float | None  # how often rates must be looked up again (s); None if they never change
    path: VehiclePath
    rsu: Rsu
    state: Any  # the model's random state of the window; None if it draws nothing
    _fixed: dict[str, float] = field(default_factory=dict)  # rates that never change, looked up once

    def downlink_bps(self, time_s: float) -> float:
        """Return the rate from RSU to vehicle (bit/s), > 0, at a time (s) that the path covers."""
        return self._fixed.get("downlink_bps") or self._compute_bps("downlink_bps", time_s, self.model.downlink_bps)

    def uplink_bps(self, time_s: float) -> float:
        """Return the rate from vehicle to RSU (bit/s), > 0, at a time (s) that the path covers."""
        return self._fixed.get("uplink_bps") or self._compute_bps("uplink_bps", time_s, self.model.uplink_bps)

    def _compute_bps(self, method: str, time_s: float, rate_bps: Callable[..., float]) -> float:
        """Compute a rate at a time (bit/s), and keep it if rates never change; RunError if it is not above 0."""
        found = rate_bps(self.rsu, position_m(self.path, time_s), self.state)
        found = number_of(found, RATE, RADIO_MODELS, self.model, method)
        if self.update_s is None:
            self._fixed[method] = found
        return found
