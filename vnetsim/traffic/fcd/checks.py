"""Checks that positions, speeds, times and lanes of a recording agree."""

from __future__ import annotations

import math

import numpy as np
import shapely
from numpy.typing import NDArray

from vnetsim.coverage.windows import Floats
from vnetsim.errors import InputError
from vnetsim.traffic.fcd.tables import FcdPart
from vnetsim.traffic.net_file import NetFile

_ENOUGH_M, _SLOW_MPS, _SHARE = 200.0, 1.0, 1e-3
"""If positions are degrees, vehicles that drove ``_ENOUGH_M`` by their speeds (above ``_SLOW_MPS``) moved by less than
the share ``_SHARE`` of it: even at 89 degrees north, one degree of longitude is 1.9 km."""
_ENOUGH_DRIVES, _CRAWL = 1000, 0.01
"""This many drives are enough too. A lower mean speed (m/s) while moving means that positions are degrees."""
_STRAIGHT = 0.95
"""Two drives are straight if they lead this share of their length away: the chord is then the distance driven."""
_LONGEST_DRIVE_S = 10.0
"""In a longer time a vehicle may accelerate and brake, so the speeds at both ends say little about the distance."""
_ALIKE, _AS_KNOWN = 1.25, 1.1
"""Largest ratio of two factors with the same cause, and of a factor to that of a known cause."""
_FRAMES = (10, 12, 15, 20, 25, 30, 50, 60, 100, 120)
_CAUSES = {
    3.6: ("speeds in km/h", "--speed-unit km/h"),
    1 / 0.3048: ("speeds in feet a second", "--speed-unit ft/s"),
    1 / 0.44704: ("speeds in miles an hour", "--speed-unit mph"),
    0.3048: ("positions in feet", "--length-unit ft"),
    1000.0: ("times in milliseconds", "--time-unit ms"),
    1 / 60: ("times in minutes", "--time-unit 60"),
    **{float(rate): (f"times as frames, {rate} a second", f"--time-unit 1/{rate}") for rate in _FRAMES},
}
"""Cause and remedy by the factor by which speeds are too high."""
_WITHOUT = "--columns speed= has them computed from the positions"
_OFF_M, _ENOUGH_ROWS = 20.0, 100
"""No vehicle is this far (m) from its lane, not even parked; and the number of rows to check."""


class Agreement:
    """Compares positions with speeds and lanes while a recording is read; the net may be empty."""

    def __init__(self, net: NetFile) -> None:
        self._net = net
        self._judged = False
        self._drives = 0
        self._driven_m = self._moved_driving_m = self._moved_m = self._straight_m = 0.0
        self._fastest_mps = self._farthest = 0.0
        self._crawl: list[Floats] = []
        self._factors: list[Floats] = []
        self._away_m: list[float] = []
        self._unknown_lanes = 0

    def check(self, part: FcdPart) -> None:
        """Check the next part of the recording; does nothing once earlier parts had enough drives and lanes to judge.

        InputError if positions are in degrees, units do not agree, or the net is the wrong one.
        """
        if not self._judged:
            self._measure(part)
            if max(self._driven_m, self._moved_m) >= _ENOUGH_M or self._drives >= _ENOUGH_DRIVES:
                self._judge(part.where[0])
        if self._net.path is not None and len(self._away_m) + self._unknown_lanes < _ENOUGH_ROWS:
            self._measure_lanes(part)
            if len(self._away_m) >= _ENOUGH_ROWS:
                self._judge_lanes(part.where[0])

    def finish(self, where: str) -> None:
        """Judge what ``check`` could not judge because the recording is too short; same InputError, with ``where``."""
        if not self._judged:
            self._judge(where)
        if len(self._away_m) < _ENOUGH_ROWS:
            self._judge_lanes(where)

    def make_note(self) -> str:
        """Return a warning for the user if the net has none of the recorded lanes; otherwise empty."""
        if self._unknown_lanes and not self._away_m:
            return f"None of the lanes that the recording names is in {self._net.path}: is it the net of another one?"
        return ""

    def _measure(self, part: FcdPart) -> None:
        """Add a part to the sums of distances by speeds and by positions, to the extremes and to the factors."""
        order = np.lexsort((part.step, part.vehicle))
        vehicle, speed_mps, time_s = part.vehicle[order], part.speed_mps[order], part.time_s[part.step[order]]
        same = vehicle[1:] == vehicle[:-1]
        step_s = np.diff(time_s)
        dx_m, dy_m = np.diff(part.x_m[order]), np.diff(part.y_m[order])
        moved_m = np.hypot(dx_m, dy_m)
        driven_m = (speed_mps[1:] + speed_mps[:-1]) / 2 * step_s
        drives = same & (np.minimum(speed_mps[1:], speed_mps[:-1]) > _SLOW_MPS)
        straight = np.zeros_like(same)
        two_m = np.hypot(dx_m[1:] + dx_m[:-1], dy_m[1:] + dy_m[:-1])
        straight[:-1] = same[1:] & same[:-1] & (two_m >= _STRAIGHT * (moved_m[1:] + moved_m[:-1]))
        moves = same & (moved_m > 0)
        self._drives += int(moves.sum())
        self._driven_m += float(driven_m[drives].sum())
        self._moved_m += float(moved_m[moves].sum())
        self._straight_m += float(moved_m[straight].sum())
        self._moved_driving_m += float(moved_m[drives].sum())
        self._fastest_mps = max(self._fastest_mps, float(speed_mps.max(initial=0.0)))
        self._farthest = max(self._farthest, *(float(np.abs(m).max(initial=0)) for m in (part.x_m, part.y_m)))
        self._crawl.append(moved_m[moves] / step_s[moves])
        usable = drives & straight & ((moved_m < driven_m) | (step_s <= _LONGEST_DRIVE_S))
        self._factors.append(_speed_factors(vehicle[:-1][usable], driven_m[usable], moved_m[usable]))

    def _judge(self, where: str) -> None:
        """Raise InputError, with ``where``, if what was measured shows degrees or wrong units; set ``_judged``."""
        self._judged = True
        crawl = np.concatenate([*self._crawl, [math.inf]])
        degrees = self._farthest <= 180 and float(np.median(crawl)) < _CRAWL
        if degrees or 0 < self._moved_driving_m < _SHARE * self._driven_m:
            raise InputError(
                f"{where}: positions are in degrees: vehicles drove {self._driven_m:.3g} m by their speeds and moved "
                f"by {self._moved_m:.2g}. Record without --fcd-output.geo, name a net that says where in UTM it lies "
                "with --net, or convert them to metres."
            )
        if self._fastest_mps == 0 and self._straight_m >= max(_ENOUGH_M, self._moved_m) / 2:
            raise InputError(f"{where}: all speeds are 0, while vehicles moved {self._moved_m:.3g} m; {_WITHOUT}.")
        factors = np.concatenate([*self._factors, []])
        if not len(factors):
            return
        factor = float(np.median(factors))
        alike = np.abs(np.log(factors / factor)) <= math.log(_ALIKE)
        cause = min(_CAUSES, key=lambda known: abs(math.log(factor / known)))
        known = abs(math.log(factor / cause)) <= math.log(_AS_KNOWN)
        if known and not 0.5 <= factor <= 2 and 2 * alike.sum() > len(factors):
            why, remedy = _CAUSES[cause]
            raise InputError(
                f"{where}: speeds are {factor:.3g} times what positions and times say: {why}? Then {remedy}; else mend "
                f"units with --time-unit, --length-unit or --speed-unit. Where the speeds are wrong, {_WITHOUT}."
            )

    def _measure_lanes(self, part: FcdPart) -> None:
        """Measure the distances (m) of vehicles in at most 100 rows from their recorded lanes; count unknown lanes."""
        rows = np.unique(np.linspace(0, len(part.ids) - 1, min(len(part.ids), _ENOUGH_ROWS)).astype(np.int64))
        for row in rows.tolist():
            lane = part.lanes[row] or ""
            shape = self._net.lane_shape(lane)
            if shape is not None:
                self._away_m.append(shapely.LineString(shape).distance(shapely.Point(part.x_m[row], part.y_m[row])))
            elif lane and not lane.startswith(":"):
                self._unknown_lanes += 1

    def _judge_lanes(self, where: str) -> None:
        """Raise InputError, with ``where``, if vehicles are, in the median, farther than 20 m from their lanes."""
        away_m = float(np.median(self._away_m)) if self._away_m else 0.0
        if away_m > _OFF_M:
            raise InputError(
                f"{where}: vehicles are {away_m:.0f} m, in the median, from the lanes that the recording names: "
                f"{self._net.path} is another net, or has another offset; name the one that it was recorded in."
            )


def _speed_factors(vehicle: NDArray[np.int64], driven_m: Floats, moved_m: Floats) -> Floats:
    """Return the ratio of distance by speeds to distance by positions of each vehicle that moved far enough."""
    numbers, index = np.unique(vehicle, return_inverse=True)
    drove_m, went_m = (np.bincount(index, weights=m, minlength=len(numbers)) for m in (driven_m, moved_m))
    moves = (went_m > 0) & (drove_m + went_m > 10)
    factors: Floats = drove_m[moves] / went_m[moves]
    return factors
