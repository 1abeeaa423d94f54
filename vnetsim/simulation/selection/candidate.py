"""What an RSU knows of a vehicle that may be invited."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

from vnetsim.coverage.windows import crossings, position_m
from vnetsim.errors import InputError
from vnetsim.simulation.compute import energy_j
from vnetsim.simulation.participation import PredictedRest
from vnetsim.simulation.selection.state import SelectionState
from vnetsim.simulation.vehicle import OpenWindow

ExitPredictor = Literal["straight", "oracle", "history"]


class Candidate:
    """A vehicle in coverage that may be invited now. It is read-only.

    Properties are computed when they are read, so a policy pays only for what it uses. They always describe the present
    moment, even if a policy kept the candidate from an earlier selection.
    """

    __slots__ = ("_state", "_window")

    def __init__(self, window: OpenWindow, state: SelectionState) -> None:
        self._window = window
        self._state = state

    @property
    def vehicle_id(self) -> str:
        """The vehicle's id."""
        return self._window.vehicle.id

    @property
    def silo(self) -> int:
        """Index of the vehicle's local data."""
        return self._window.vehicle.silo

    @property
    def approach(self) -> int:
        """Sector from which the vehicle first entered coverage, of ``silos.approaches``: 0 is north, then clockwise."""
        return self._window.vehicle.approach

    @property
    def rsu_id(self) -> str:
        """The id of the RSU that serves the vehicle."""
        return self._window.rsu.id

    @property
    def enter_s(self) -> float:
        """When the vehicle entered the coverage of its RSU (s)."""
        return self._window.enter_s

    @property
    def speed_mps(self) -> float:
        """Speed at entry into coverage (m/s), which the vehicle reports."""
        return self._window.speed_mps

    @property
    def level_px(self) -> float:
        """Level of the motion blur at the speed at entry, ``speed_mps`` (px)."""
        return self._state.world.experiment.camera.level_px(self._window.speed_mps)

    @property
    def position_m(self) -> tuple[float, float]:
        """Where the vehicle is now: x and y in net coordinates (m)."""
        return position_m(self._window.path, self._state.now_s)

    @property
    def velocity_mps(self) -> tuple[float, float]:
        """Velocity, x and y (m/s), at the last path point so far; at the entry, with its direction towards the RSU."""
        # the path may already have later points, which nobody can know yet
        return _velocity_mps(self._window, bisect_right(self._window.path.time_s, self._state.now_s))

    @property
    def commits(self) -> int:
        """Number of accepted updates of this vehicle so far."""
        return self._state.commits.get(self.vehicle_id, 0)

    @property
    def last_round(self) -> int:
        """The latest round of its aggregator that invited the vehicle or received its update; -1 before the first."""
        return self._state.last_round.get(self.vehicle_id, -1)

    @property
    def images(self) -> int | None:
        """Number of images in the vehicle's silo; None if the task does not report it."""
        return self._state.world.images.get(self._window.vehicle.silo)

    @property
    def loss(self) -> float | None:
        """Mean training loss of the last accepted update of the vehicle's silo; None before the first."""
        return (self.loss_and_round or (None, None))[0]

    @property
    def loss_round(self) -> int | None:
        """The round of ``loss``; None before the first."""
        return (self.loss_and_round or (None, None))[1]

    @property
    def loss_and_round(self) -> tuple[float, int] | None:
        """``loss`` and ``loss_round`` in one look-up; None before the first."""
        return self._state.losses.get(self._window.vehicle.silo)

    @property
    def figures(self) -> Sequence[tuple[float, int]]:
        """Pairs of the policy's ``figure`` and the round, one for each accepted update of the silo, oldest first."""
        return self._state.figures.get(self._window.vehicle.silo, ())

    @property
    def download_s(self) -> float:
        """Time that the download would take with the whole airtime at the present position (s)."""
        return self.parts_s[0]

    @property
    def train_s(self) -> float:
        """Time of the share of the training that the pace planned (s); of the whole training if it planned none."""
        state, window = self._state, self._window
        return (window.train_s or state.world.train_s(window)) * state.work_share

    @property
    def steps(self) -> int:
        """Number of local steps of the whole training; 0 if it cannot be divided."""
        return self._state.world.cost(self.silo).steps

    @property
    def upload_s(self) -> float:
        """Time that the upload would take with the whole airtime at the present position (s)."""
        return self.parts_s[2]

    @property
    def duration_s(self) -> float:
        """Download, training and upload together (s), with the whole airtime."""
        download_s, train_s, upload_s = self.parts_s
        return download_s + train_s + upload_s

    @property
    def parts_s(self) -> tuple[float, float, float]:
        """``download_s``, ``train_s`` and ``upload_s`` in one look-up."""
        download_s, upload_s = self._window.transfers_s or self._transfers_s()
        return download_s, self.train_s, upload_s

    @property
    def transfers(self) -> int:
        """Number of transfers, of all vehicles, that share the airtime of the vehicle's RSU now."""
        return self._state.world.channels[self._window.rsu.id].active

    @property
    def energy_j(self) -> float | None:
        """Energy on board of download, training and upload (J); None if the computer's power is not known."""
        seconds = dict(zip(("download", "training", "upload"), self.parts_s, strict=True))
        computer = self._window.vehicle.computer  # set since its training time was read
        joules = {} if computer is None else energy_j(defaultdict(float, seconds), computer.watts, worked_s=0.0)
        return math.fsum(joules.values()) if joules else None

    def remaining_s(self, predictor: ExitPredictor = "straight") -> float:
        """Return the predicted rest of the vehicle's window (s), >= 0.

        Args:
            predictor: ``straight``: straight on at the present speed, infinite for 0. ``oracle``: the recorded exit.
                ``history``: the mean length of earlier windows from the same approach; ``straight`` before the first.

        Raises:
            InputError: ``oracle``, and the traffic does not know exits beforehand (live traffic, FCD recordings).
        """
        if predictor == "straight":
            return self._straight_s()
        if predictor == "oracle":
            if not self._state.whole_paths:
                raise InputError(
                    "the predictor that knows the exit (oracle) needs traffic whose paths are known beforehand: "
                    "replay a run or a recording of traffic (vnetsim mobility), or take the Gaussian model."
                )
            return max(0.0, self._window.path.time_s[-1] - self._state.now_s)
        mean_s = self._state.mean_dwell_s(self._window)
        if mean_s is None:
            return self._straight_s()
        return max(0.0, mean_s - (self._state.now_s - self._window.enter_s))

    def predict(self) -> PredictedRest:
        """Return the predicted rest of the window (s); ``history_s`` is None until an earlier window has ended."""
        return PredictedRest(
            straight_s=self._straight_s(),
            history_s=None if self._state.mean_dwell_s(self._window) is None else self.remaining_s("history"),
        )

    def _transfers_s(self) -> tuple[float, float]:
        """Return the time of download and of upload, with the whole airtime (s); cached if rates never change."""
        state, window = self._state, self._window
        cost, link = state.world.cost(window.vehicle.silo), state.world.link(window)
        download_s = 8 * cost.download_bytes / link.downlink_bps(state.now_s)
        upload_s = 8 * cost.upload_bytes / link.uplink_bps(state.now_s)
        if link.update_s is None:
            window.transfers_s = download_s, upload_s
        return download_s, upload_s

    def _straight_s(self) -> float:
        """Return the rest of the window (s) if the vehicle drives straight on, >= 0; infinite if it stands."""
        # the position between two points is not known either: until the next point only time passes
        window, now_s = self._window, self._state.now_s
        points = bisect_right(window.path.time_s, now_s)
        found = window.straight_exit
        if found is None or found[0] != points:
            window.straight_exit = found = points, _straight_exit_s(window, points)
        remaining_s = found[1] - now_s
        return remaining_s if remaining_s > 0 else 0.0


def _velocity_mps(window: OpenWindow, points: int) -> tuple[float, float]:
    """Return the velocity, x and y (m/s), at path point ``points`` (from 1); at the first it is towards the RSU."""
    path, last = window.path, points - 1
    if last < 1:
        last = 0
        x_m, y_m = window.rsu.x_m - path.x_m[0], window.rsu.y_m - path.y_m[0]
    else:
        x_m, y_m = path.x_m[last] - path.x_m[last - 1], path.y_m[last] - path.y_m[last - 1]
    speed_mps = path.speed_mps[last]
    length_m = math.hypot(x_m, y_m)
    return (speed_mps * x_m / length_m, speed_mps * y_m / length_m) if length_m > 0 else (0.0, 0.0)


def _straight_exit_s(window: OpenWindow, points: int) -> float:
    """Return when (s) a straight line from path point ``points`` (from 1) leaves the disc; infinite for speed 0."""
    rsu, path, last = window.rsu, window.path, max(points - 1, 0)
    u, v = _velocity_mps(window, points)
    if u == v == 0:
        return math.inf
    return path.time_s[last] + crossings(path.x_m[last] - rsu.x_m, path.y_m[last] - rsu.y_m, u, v, rsu.range_m)[1]
