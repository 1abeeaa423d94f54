"""The truncated-Gaussian speed model: vehicles drive straight through the disc of one RSU.

Speeds are independent draws from a Gaussian truncated to ``[v_min, v_max]``. Arrivals at the
disc are a Poisson process, and all directions are equally likely. Windows are exact: dwell = chord / speed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import log1p, log_ndtr, logsumexp, ndtr, ndtri_exp

from vnetsim.coverage.rsu import Rsu
from vnetsim.coverage.windows import VehiclePath
from vnetsim.errors.bounds import Within, check_bounds, require
from vnetsim.random_streams import Streams
from vnetsim.scenario.kinds import TrafficRequest
from vnetsim.traffic.paths import Path, PathTraffic, source_info

SpeedKmh = Annotated[float, Within(0.1, 1000, "km/h", "a standing vehicle never leaves, and none on a road is faster")]
DURATION_S, RANGE_M = 900.0, 500.0
"""Defaults if ``traffic.end_s`` and ``traffic.range_m`` are not set: the length of the shipped SUMO scenarios, and half
of the coverage of 1000 m in the authors' code, which is taken as the diameter."""
_KMH_PER_MPS = 3.6
_PATH_POINTS = 9
_BLOCK = 256
DIRECTIONS = ("north", "east", "south", "west")
"""Where vehicles come from: the four arms of a crossing, starting at bearing 0 degrees."""


@dataclass(frozen=True, kw_only=True)
class GaussianSource:
    """Vehicles drive straight through the disc of one RSU, at speeds of a truncated Gaussian.

    With R the coverage radius::

        v_n ~ N(mean_kmh, sd_kmh^2), truncated to [v_min_kmh, v_max_kmh]
        t_n - t_(n-1) ~ Exp(arrivals_per_s)
        direction of n: equally likely among north, east, south and west;  dwell of n = 2 R / v_n

    Args:
        v_min_kmh: lowest speed (km/h).
        v_max_kmh: highest speed (km/h).
        mean_kmh: mean of the untruncated Gaussian (km/h).
        sd_kmh: standard deviation of the untruncated Gaussian (km/h), > 0.
        arrivals_per_s: rate of the Poisson arrivals, all directions together (1/s).
    """

    name: ClassVar[str] = "gaussian"
    source: ClassVar[str] = "FLSimCo (arXiv:2408.00256), Section III: speeds of a truncated Gaussian"
    traffic_settings: ClassVar[tuple[str, ...]] = ("end_s", "range_m")

    v_min_kmh: SpeedKmh = 60.0
    v_max_kmh: SpeedKmh = 150.0
    mean_kmh: Annotated[float, Within(-1000, 1000, "km/h", "further away a tail has no digits left")] = 105.0
    sd_kmh: Annotated[float, Within(0.1, 1000, "km/h", "from one speed for all to any speed alike")] = 25.0
    arrivals_per_s: Annotated[float, Within(1e-6, 1000, "1/s", "a thousand lanes at capacity bring fewer")] = 0.5

    def __post_init__(self) -> None:
        check_bounds("source", self)  # before the condition on two settings
        require(
            self.v_min_kmh < self.v_max_kmh,
            f"source.v_min_kmh must be below source.v_max_kmh, got {self.v_min_kmh} and {self.v_max_kmh}.",
        )

    def open(self, request: TrafficRequest) -> PathTraffic:
        """Open the traffic: one RSU at the origin, by default 900 s and a range of 500 m.

        With ``repeat`` it never ends. Arrivals, speeds and directions have their own random streams, so a setting of
        one does not change the draws of the others. InputError if ``compute.by_type`` is set.
        """
        by_type = request.experiment.compute.by_type
        require(not by_type, "gaussian: the model does not know compute.by_type: it has no types of vehicles.")
        timed = request.experiment.traffic
        end_s = DURATION_S if timed.end_s is None else timed.end_s
        range_m = RANGE_M if timed.range_m is None else timed.range_m
        rsu = Rsu(id="0,0", x_m=0.0, y_m=0.0, range_m=range_m, environment="highway")
        info = source_info(self, end_s=None if request.repeat else end_s, seed=request.streams.seed)
        last_s = math.inf if request.repeat else end_s
        return PathTraffic([rsu], info, lambda: self._make_paths(rsu, last_s, request.streams))

    def _make_paths(self, rsu: Rsu, end_s: float, streams: Streams) -> Iterator[Path]:
        """Yield each vehicle's path and why it ends, sorted by entry; paths are cut at ``end_s`` (s; inf: not cut)."""
        for index, (enter_s, speed_mps, direction) in enumerate(self._draw_vehicles(streams)):
            if enter_s >= end_s:
                return
            whole_s = enter_s + 2.0 * rsu.range_m / speed_mps
            leave_s = min(whole_s, end_s)
            share = np.linspace(0.0, 1.0, _PATH_POINTS)
            along_m = share * (speed_mps * (leave_s - enter_s)) - rsu.range_m
            time_s = enter_s + share * (leave_s - enter_s)
            time_s[-1] = leave_s
            bearing_rad = 2.0 * math.pi * direction / len(DIRECTIONS)
            heading_x, heading_y = -math.sin(bearing_rad), -math.cos(bearing_rad)
            name = DIRECTIONS[direction]
            path = VehiclePath(
                vehicle_id=f"{name}.{index}",
                vehicle_type="gaussian",
                rsu_id=rsu.id,
                entry_cause="crossing",
                entry_edge=name,
                time_s=time_s.tolist(),
                x_m=(along_m * heading_x + 0.0).tolist(),  # no negative zero
                y_m=(along_m * heading_y + 0.0).tolist(),
                speed_mps=[speed_mps] * _PATH_POINTS,
            )
            yield path, "end" if whole_s > end_s else "crossing"

    def _draw_vehicles(self, streams: Streams) -> Iterator[tuple[float, float, int]]:
        """Yield, endlessly, each vehicle's arrival time (s, ascending), speed (m/s) and index into ``DIRECTIONS``."""
        arrivals, speeds, directions = (streams.generator(name) for name in ("arrivals", "speeds", "directions"))
        low, high = ((v - self.mean_kmh) / self.sd_kmh for v in (self.v_min_kmh, self.v_max_kmh))
        time_s = 0.0
        for _ in count():
            gaps_s = arrivals.exponential(1.0 / self.arrivals_per_s, _BLOCK)
            deviation = truncated_normal_quantiles(speeds.random(_BLOCK), low, high)
            speed_kmh = (deviation * self.sd_kmh + self.mean_kmh).clip(self.v_min_kmh, self.v_max_kmh)
            chosen = directions.integers(len(DIRECTIONS), size=_BLOCK)
            times_s = time_s + np.cumsum(gaps_s)
            time_s = float(times_s[-1])
            yield from zip(times_s.tolist(), (speed_kmh / _KMH_PER_MPS).tolist(), chosen.tolist(), strict=True)


def truncated_normal_quantiles(p: NDArray[np.float64], low: float, high: float) -> NDArray[np.float64]:
    """Return the quantiles at ``p``, in (0, 1), of the standard normal distribution truncated to ``[low, high]``.

    Equal to the bit to ``scipy.stats.truncnorm``, whose import takes .8 s; logarithms keep it accurate far from the
    mean.
    """
    if high <= 0.0:
        log_mass = logsumexp([log_ndtr(high), log_ndtr(low) + np.pi * 1j]).real  # log(exp(a) - exp(b))
    elif low > 0.0:
        log_mass = logsumexp([log_ndtr(-low), log_ndtr(-high) + np.pi * 1j]).real
    else:
        log_mass = log1p(-ndtr(low) - ndtr(-high))
    lower = low < 0.0
    log_outside = log_ndtr(low if lower else -high)
    log_inside = (np.log(p) if lower else np.log1p(-p)) + log_mass
    quantiles: NDArray[np.float64] = ndtri_exp(logsumexp([np.full_like(p, log_outside), log_inside], axis=0))
    return quantiles if lower else -quantiles
