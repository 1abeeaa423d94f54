"""Radio: models of the rates of links, and the channel that transfers share.

A model returns the rate that a link would have with the channel for itself. Transfers share the channel in time
(``channel``), so transfers at one RSU do not interfere.
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
RATE = Within(1e-9, 1e15, "bit/s", "0 would never end; a thousand times what optical fibres carry")
RateBps = Annotated[float, RATE]


class RadioModel(Protocol):
    """Returns rates: a frozen keyword-only dataclass whose fields are the table ``radio`` of an experiment.

    Every rate must be a finite number above 0, in bit/s, and the same for the same arguments.

    Class attributes: ``name``; ``source``, a citation; ``update_s``, the time above 0 s after which a transfer looks up
    its rate again, None if rates do not depend on positions. Optional: ``cap_bps``, the highest possible rate (bit/s)
    or None; the manifest then has the number of times that it was reached.
    """

    name: ClassVar[str]
    source: ClassVar[str]
    update_s: ClassVar[float | None]

    @optional
    def begin(self, rsus: Sequence[Rsu], lanes: Sequence[Floats]) -> Any:
        """Prepare a run; the result is passed to ``entered`` and ``draw`` as ``memory``.

        Args:
            rsus: all RSUs.
            lanes: polylines of the road net near them, each an array (points, 2) in m; empty if unknown.

        Returns:
            any object. Two attributes of it are used if they exist: ``notes``, lines for the page, and ``state``, the
            channel state, in words, of the link whose rate was returned last.
        """
        ...

    @optional
    def entered(self, height_m: float, memory: Any) -> None:
        """Handle, perhaps in ``memory``, that a vehicle of this height (m) enters coverage for the first time."""
        ...

    @optional
    def draw(self, generator: np.random.Generator, memory: Any, heights_m: tuple[float, ...]) -> Any:
        """Draw the state of a link, such as its shadowing; without this method states are None.

        A link is one coverage window, or two vehicles in one round's exchange, and has its own random stream.
        ``heights_m`` has the height of the vehicle, or of both vehicles (m).
        """
        ...

    @optional
    def received_dbm(self, rsu: Rsu, vehicle_m: PositionM, state: Any) -> float:
        """Return the power that a vehicle receives from an RSU (dBm); needed by ``association.rule = "strongest"``."""
        ...

    def downlink_bps(self, rsu: Rsu, vehicle_m: PositionM, state: Any) -> RateBps:
        """Return the rate from RSU to vehicle with the whole airtime (bit/s).

        Args:
            rsu: the RSU of the window.
            vehicle_m: position of the vehicle.
            state: what ``draw`` returned for the window.
        """
        ...

    def uplink_bps(self, rsu: Rsu, vehicle_m: PositionM, state: Any) -> RateBps:
        """Return the rate from vehicle to RSU; see ``downlink_bps``."""
        ...

    def sidelink_bps(self, rsu: Rsu, sender_m: PositionM, receiver_m: PositionM, state: Any) -> RateBps:
        """Return the rate between two vehicles with the whole airtime (bit/s).

        Args:
            rsu: the RSU that schedules them; it covers the sender.
            sender_m: position of the sender.
            receiver_m: position of the receiver.
            state: what ``draw`` returned for the two; the same in both directions.
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
        "table": "vnetsim.radio.table:RateTable",
    },
)
