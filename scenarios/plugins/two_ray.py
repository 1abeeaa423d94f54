"""Two-ray ground reflection: the direct ray and the one off the road add up, or cancel."""

import cmath
import math
from dataclasses import dataclass
from typing import Annotated

from vnetsim.coverage.rsu import Rsu
from vnetsim.errors.bounds import Within
from vnetsim.radio import PositionM
from vnetsim.radio.capacity import noise_dbm, shannon_bps

NOISE_FIGURE_DB = 9.0
RSU_HEIGHT_M, VEHICLE_HEIGHT_M = 5.0, 1.6


@dataclass(frozen=True, kw_only=True)
class TwoRay:
    """All transmit with the same power, over a road without obstacles.

    Args:
        permittivity: relative permittivity of the road's surface.
        power_dbm: transmit power (dBm).
        carrier_hz: carrier frequency (Hz).
        bandwidth_hz: channel bandwidth (Hz).
    """

    name = "two-ray"
    source = "Sommer, Joerg, Dressler (2012): On the applicability of two-ray path loss models, IEEE VNC"
    update_s = 1.0

    permittivity: Annotated[float, Within(1.001, 100, "", "water has 80")] = 1.02
    power_dbm: Annotated[float, Within(-100, 100, "dBm", "10 MW, above any transmitter")] = 23.0
    carrier_hz: Annotated[float, Within(1e8, 1e12, "Hz", "microwaves")] = 5.9e9
    bandwidth_hz: Annotated[float, Within(1e3, 1e11, "Hz", "all microwave bands")] = 10e6

    def downlink_bps(self, rsu: Rsu, vehicle_m: PositionM, _: None) -> float:
        return self._bps((rsu.x_m, rsu.y_m), vehicle_m, RSU_HEIGHT_M)

    uplink_bps = downlink_bps

    def sidelink_bps(self, _: Rsu, sender_m: PositionM, receiver_m: PositionM, __: None) -> float:
        return self._bps(sender_m, receiver_m, VEHICLE_HEIGHT_M)

    def _bps(self, one_m: PositionM, other_m: PositionM, height_m: float) -> float:
        ground_m = max(1.0, math.dist(one_m, other_m))
        direct_m = math.hypot(ground_m, height_m - VEHICLE_HEIGHT_M)
        bounced_m = math.hypot(ground_m, height_m + VEHICLE_HEIGHT_M)
        sine, root = (height_m + VEHICLE_HEIGHT_M) / bounced_m, self.permittivity
        root = math.sqrt(root - (ground_m / bounced_m) ** 2)
        wavelength_m, reflection = 299_792_458.0 / self.carrier_hz, (sine - root) / (sine + root)
        rays = 1 + reflection * cmath.exp(2j * math.pi * (direct_m - bounced_m) / wavelength_m)
        loss_db = 20 * math.log10(4 * math.pi * direct_m / wavelength_m / abs(rays))
        snr_db = self.power_dbm - loss_db - noise_dbm(self.bandwidth_hz, NOISE_FIGURE_DB)
        return shannon_bps(snr_db, self.bandwidth_hz, efficiency=0.6, max_spectral_efficiency=3.0)
