"""Radio: models of the rates between RSUs and vehicles and among vehicles, and the channel that transfers share.

A model says how fast two antennas could exchange data if they had the channel for themselves, from where they are and
from what was drawn for them. The airtime is shared in time (``channel``), so transfers at one RSU do not interfere;
RSUs are taken to use different channels.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from vnetsim.coverage.rsu import Rsu
from vnetsim.experiment import ExchangeSettings, LinkSettings
from vnetsim.plugins import Kind
from vnetsim.setting_checks import Within

PositionM = tuple[float, float]
"""x and y in net coordinates (m)."""
RateBps = Annotated[float, Within(1e-9, 1e15, "bit/s", "0 would never end; a thousand times what optical fibres carry")]


@runtime_checkable
class RadioModel(Protocol):
    """Gives rates; every one must be a finite number above 0, in bit/s, and the same whenever it is asked for again.

    Class attributes name it: ``name``; ``source``, a citation; ``Settings``, a frozen keyword-only dataclass whose
    fields stand in the table ``radio`` of an experiment; ``follows_position``, whether rates depend on positions: those
    of a transfer are then looked up anew every ``link.update_s``. One more attribute is optional: ``cap_bps``, the
    highest rate that it can give (bit/s) or None; the record then says how often it was reached.
    """

    name: ClassVar[str]
    source: ClassVar[str]
    follows_position: ClassVar[bool]
    Settings: ClassVar[type]

    @classmethod
    def create(cls, settings: Any, link: LinkSettings, exchange: ExchangeSettings) -> RadioModel:
        """Make the model of one run from its ``Settings`` and those of links and exchanges."""
        ...

    def window_state(self, generator: np.random.Generator) -> Any:
        """Draw what holds for one coverage window, such as its shadowing, from a random stream of its own."""
        ...

    def pair_state(self, generator: np.random.Generator) -> Any:
        """Draw what holds for two vehicles in one round's exchange, both ways, from a random stream of its own."""
        ...

    def downlink_bps(self, rsu: Rsu, vehicle_m: PositionM, state: Any) -> RateBps:
        """Return the rate from RSU to vehicle with the whole airtime (bit/s).

        Args:
            rsu: where the window is.
            vehicle_m: where the vehicle is.
            state: what ``window_state`` returned.
        """
        ...

    def uplink_bps(self, rsu: Rsu, vehicle_m: PositionM, state: Any) -> RateBps:
        """Return the rate from vehicle to RSU, likewise."""
        ...

    def sidelink_bps(self, rsu: Rsu, sender_m: PositionM, receiver_m: PositionM, state: Any) -> RateBps:
        """Return the rate between two vehicles with the whole airtime (bit/s).

        Args:
            rsu: the one that schedules them, in whose coverage the sender is.
            sender_m: where the sender is.
            receiver_m: where the receiver is.
            state: what ``pair_state`` returned.
        """
        ...


RADIO_MODELS = Kind(
    name="radio model",
    group="vnetsim.radio_models",
    protocol=RadioModel,
    key="link.model",
    table="radio",
    built_in={
        "tr37885": "vnetsim.radio.tr37885:Tr37885",
        "constant": "vnetsim.radio.constant:ConstantRate",
    },
)
