"""The same rate everywhere and in all directions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vnetsim.coverage.rsu import Rsu
from vnetsim.experiment import ExchangeSettings, LinkSettings
from vnetsim.radio import PositionM


class ConstantRate:
    """Gives ``link.rate_bps`` to every transfer.

    Args:
        rate_bps: the rate (bit/s).
    """

    name = "constant"
    source = "an ideal channel"
    follows_position = False

    @dataclass(frozen=True, kw_only=True)
    class Settings:
        """There are none besides ``link.rate_bps``."""

    def __init__(self, rate_bps: float) -> None:
        self._rate_bps = rate_bps

    @classmethod
    def create(cls, settings: Settings, link: LinkSettings, exchange: ExchangeSettings) -> ConstantRate:  # noqa: ARG003
        """Make it."""
        return cls(link.rate_bps)

    def window_state(self, generator: np.random.Generator) -> None:
        """Draw nothing."""

    def pair_state(self, generator: np.random.Generator) -> None:
        """Draw nothing."""

    def downlink_bps(self, rsu: Rsu, vehicle_m: PositionM, state: None) -> float:  # noqa: ARG002 - the protocol's
        """Return ``link.rate_bps``."""
        return self._rate_bps

    def uplink_bps(self, rsu: Rsu, vehicle_m: PositionM, state: None) -> float:  # noqa: ARG002 - the protocol's
        """Return ``link.rate_bps``."""
        return self._rate_bps

    def sidelink_bps(self, rsu: Rsu, sender_m: PositionM, receiver_m: PositionM, state: None) -> float:  # noqa: ARG002
        """Return ``link.rate_bps``."""
        return self._rate_bps
