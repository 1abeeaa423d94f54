"""Radio: models of the rates between RSUs and vehicles and among vehicles, and the channel that transfers share.

A model says how fast two antennas could exchange data if they had the channel for themselves, from where they are and
from what was drawn for them. The airtime is shared in time (``channel``), so transfers at one RSU do not interfere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Protocol

import numpy as np

from vnetsim.coverage.rsu import Rsu
from vnetsim.coverage.windows import Floats
from vnetsim.errors.bounds import Within
from vnetsim.experiment import DEFAULT_NAMES
from vnetsim.plugins import Kind, optional

PositionM = tuple[float, float]
"""x and y in net coordinates (m)."""
RateBps = Annotated[float, Within(1e-9, 1e15, "bit/s", "0 would never end; a thousand times what optical fibres carry")]


class RadioModel(Protocol):
    """Gives rates: a frozen keyword-only dataclass, whose fields stand in the table ``radio`` of an experiment.

    Every rate must be a finite number above 0, in bit/s, and the same whenever it is asked for again.

    Class attributes name it: ``name``; ``source``, a citation; ``update_s``, how often a transfer looks its rate up
    anew (s), None where rates depend on no position. One more attribute is optional: ``cap_bps``, the highest rate that
    it can give (bit/s) or None; the record then says how often it was reached.
    """

    name: ClassVar[str]
    source: ClassVar[str]
    update_s: ClassVar[float | None]

    @optional
    def begin(self, rsus: Sequence[Rsu], lanes: Sequence[Floats]) -> Any:
        """Return what the model wants to know of the place, once a run; ``draw`` gets it back as ``memory``.

        Args:
            rsus: all RSUs.
            lanes: polylines of the road net near them, each an array (points, 2) in m; empty where unknown.

        Returns:
            anything. Its attributes ``notes``, lines for the page, and ``state``, in words that of the link whose rate
            was told last, are read where it has them.
        """
        ...

    @optional
    def entered(self, height_m: float, memory: Any) -> None:
        """Take note that a vehicle of some height (m) came into coverage for the first time."""
        ...

    @optional
    def draw(self, generator: np.random.Generator, memory: Any, heights_m: tuple[float, ...]) -> Any:
        """Draw the state of one coverage window, or of two vehicles in one round's exchange, such as its shadowing.

        Each has a random stream of its own; without this method states are None. ``heights_m`` has the height of the
        vehicle, or of both (m).
        """
        ...

    @optional
    def received_dbm(self, rsu: Rsu, vehicle_m: PositionM, state: Any) -> float:
        """Return the power that a vehicle receives of an RSU (dBm), by which ``association.rule`` may choose."""
        ...

    def downlink_bps(self, rsu: Rsu, vehicle_m: PositionM, state: Any) -> RateBps:
        """Return the rate from RSU to vehicle with the whole airtime (bit/s).

        Args:
            rsu: where the window is.
            vehicle_m: where the vehicle is.
            state: what ``draw`` returned for the window.
        """
        ...

    def uplink_bps(self, rsu: Rsu, vehicle_m: PositionM, state: Any) -> RateBps:
        """Return the rate from vehicle to RSU."""
        ...

    def sidelink_bps(self, rsu: Rsu, sender_m: PositionM, receiver_m: PositionM, state: Any) -> RateBps:
        """Return the rate between two vehicles with the whole airtime (bit/s).

        Args:
            rsu: the one that schedules them, in whose coverage the sender is.
            sender_m: where the sender is.
            receiver_m: where the receiver is.
            state: what ``draw`` returned for the two, both ways.
        """
        ...


RADIO_MODELS = Kind(
    name="radio model",
    group="vnetsim.radio_models",
    protocol=RadioModel,
    key="radio.name",
    table="radio",
    default=DEFAULT_NAMES["radio"],
    built_in={
        "tr37885": "vnetsim.radio.models:Tr37885",
        "constant": "vnetsim.radio.models:ConstantRate",
    },
)
