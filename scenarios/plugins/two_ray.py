"""Two-ray ground reflection: the direct ray and the one off the road add up, or cancel."""

import cmath
import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from vnetsim.coverage.rsu import Rsu
from vnetsim.experiment import ExchangeSettings, LinkSettings
from vnetsim.radio import PositionM
from vnetsim.radio.tr37885 import noise_dbm, shannon_bps
from vnetsim.setting_checks import Within


class TwoRay:
    """Powers, heights, carrier, bandwidth, noise and capacity are those of ``link``; there is no shadowing."""

    name = "two-ray"
    source = "Sommer, Joerg, Dressler (2012): On the applicability of two-ray path loss models, IEEE VNC"
    follows_position = True

    @dataclass(frozen=True, kw_only=True)
    class Settings:
        """The road. Args: permittivity: relative permittivity of its surface."""

        permittivity: Annotated[float, Within(1.001, 100, "", "water has 80")] = 1.02

    def __init__(self, settings: Settings, link: LinkSettings) -> None:
        self._settings, self._link = settings, link

    @classmethod
    def create(cls, settings: Settings, link: LinkSettings, _: ExchangeSettings) -> "TwoRay":
        return cls(settings, link)

    def window_state(self, generator: np.random.Generator) -> None: ...

    def pair_state(self, generator: np.random.Generator) -> None: ...

    def downlink_bps(self, rsu: Rsu, vehicle_m: PositionM, _: None) -> float:
        return self._bps((rsu.x_m, rsu.y_m), vehicle_m, self._link.rsu_height_m, self._link.rsu_power_dbm)

    def uplink_bps(self, rsu: Rsu, vehicle_m: PositionM, _: None) -> float:
        return self._bps((rsu.x_m, rsu.y_m), vehicle_m, self._link.rsu_height_m, self._link.vehicle_power_dbm)

    def sidelink_bps(self, _: Rsu, sender_m: PositionM, receiver_m: PositionM, __: None) -> float:
        return self._bps(sender_m, receiver_m, self._link.vehicle_height_m, self._link.vehicle_power_dbm)

    def _bps(self, one_m: PositionM, other_m: PositionM, height_m: float, power_dbm: float) -> float:
        link, ground_m = self._link, max(1.0, math.dist(one_m, other_m))
        direct_m = math.hypot(ground_m, height_m - link.vehicle_height_m)
        bounced_m = math.hypot(ground_m, height_m + link.vehicle_height_m)
        sine, root = (height_m + link.vehicle_height_m) / bounced_m, self._settings.permittivity
        root = math.sqrt(root - (ground_m / bounced_m) ** 2)
        wavelength_m, reflection = 299_792_458.0 / link.carrier_hz, (sine - root) / (sine + root)
        rays = 1 + reflection * cmath.exp(2j * math.pi * (direct_m - bounced_m) / wavelength_m)
        loss_db = 20 * math.log10(4 * math.pi * direct_m / wavelength_m / abs(rays))
        snr_db = power_dbm - loss_db - noise_dbm(link.bandwidth_hz, link.noise_figure_db)
        return shannon_bps(snr_db, link.bandwidth_hz, link.efficiency, link.max_spectral_efficiency)
