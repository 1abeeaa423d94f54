"""Movement without roads: vehicles change from one RSU to another, at random or according to a log.

A vehicle is always at the position of its RSU. Its speed affects only the motion blur.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Annotated, ClassVar, Literal

import numpy as np
import polars as pl

from vnetsim.coverage.rsu import Rsu
from vnetsim.coverage.windows import VehiclePath
from vnetsim.errors import InputError
from vnetsim.errors.bounds import Share, Within
from vnetsim.errors.paths import resolve_path
from vnetsim.experiment import Experiment
from vnetsim.experiment.traffic import REACH_M
from vnetsim.scenario.kinds import TrafficRequest
from vnetsim.storage.run_directory import damage_as_input_error
from vnetsim.traffic.paths import FARTHEST, Path, PathTraffic, source_info

_BOTH_S = 1e-3
"""Time (s) that a vehicle spends at both RSUs when it changes, so that a change is a handover and not a gap."""
_COLUMNS = {"vehicle": pl.String, "rsu": pl.String, "enter_s": pl.Float64, "exit_s": pl.Float64}
SpeedKmh = Annotated[float, Within(0, 1000, "km/h", "no vehicle on a road is faster")]


def _place_on_ring(names: list[str], experiment: Experiment) -> list[Rsu]:
    """Return RSUs with these ids and the experiment's range on a circle; their discs do not overlap."""
    range_m = experiment.traffic.range_m or REACH_M
    radius_m = 1.5 * range_m / math.sin(math.pi / max(2, len(names)))
    angles = [2 * math.pi * place / len(names) for place in range(len(names))]
    return [
        Rsu(id=name, x_m=radius_m * math.sin(angle), y_m=radius_m * math.cos(angle), range_m=range_m)
        for name, angle in zip(names, angles, strict=True)
    ]


@dataclass(frozen=True, kw_only=True)
class JumpsSource:
    """Vehicles are at RSUs on a ring; at every step each goes to another RSU with a given probability.

    The second largest eigenvalue of this Markov chain, with N RSUs and probability P, is::

        ring:     lambda_2 = 1 - P (1 - cos(2 pi / N))
        uniform:  lambda_2 = 1 - P N / (N - 1)

    Args:
        rsus: number of RSUs, N.
        vehicles: number of vehicles; at the beginning they are distributed evenly over the RSUs.
        moves: ``ring`` goes to one of the two neighbours, ``uniform`` to any other RSU, all equally likely.
        probability: probability of going to another RSU at a step, P.
        step_s: time between two steps (s).
        duration_s: length of the simulated time (s).
        speed_kmh: the speed that vehicles report (km/h).
    """

    name: ClassVar[str] = "jumps"
    source: ClassVar[str] = "Zhang et al., MIDDLE, ICPP 2023: devices change the edge with probability P at each step"
    traffic_settings: ClassVar[tuple[str, ...]] = ("range_m",)

    rsus: Annotated[int, Within(2, 10_000, "", "between fewer nobody moves")] = 10
    vehicles: Annotated[int, Within(1, 1_000_000, "", "more are no town")] = 100
    moves: Literal["ring", "uniform"] = "ring"
    probability: Share = 0.5
    step_s: Annotated[float, Within(0.1, 1e6, "s", "longer than any round")] = 60.0
    duration_s: Annotated[float, Within(0.1, 1e8, "s", "three years")] = 3600.0
    speed_kmh: SpeedKmh = 50.0

    def open(self, request: TrafficRequest) -> PathTraffic:
        """Open the traffic; it ends after ``duration_s``, even with ``traffic.repeat``."""
        generator = request.streams.generator("jumps")
        seed = int(generator.integers(2**63))  # the paths may be read several times with the same draws
        info = source_info(self, end_s=self.duration_s, seed=request.streams.seed)
        rsus = _place_on_ring([f"rsu_{place}" for place in range(self.rsus)], request.experiment)
        return PathTraffic(rsus, info, lambda: self._make_paths(rsus, seed))

    def _make_paths(self, rsus: Sequence[Rsu], seed: int) -> Iterator[Path]:
        """Yield a path and why it ends, for each stay of a vehicle at an RSU; sorted by time of entry."""
        generator = np.random.default_rng(seed)
        coming = [(0, vehicle, vehicle % self.rsus) for vehicle in range(self.vehicles)]  # sorted, so a heap
        last = math.ceil(self.duration_s / self.step_s)
        while coming:
            step, vehicle, place = heapq.heappop(coming)
            stay = int(min(generator.geometric(self.probability), last)) if self.probability else last
            times_s = [self.step_s * at for at in range(step, min(step + stay, last))]
            times_s.append(min(self.step_s * (step + stay) + _BOTH_S, self.duration_s))
            yield _make_path(f"vehicle_{vehicle}", rsus[place], times_s, self.duration_s, self.speed_kmh)
            if step + stay < last:
                if self.moves == "uniform":
                    ahead = int(generator.integers(1, self.rsus))
                else:
                    ahead = 1 if generator.random() < 0.5 else -1
                heapq.heappush(coming, (step + stay, vehicle, (place + ahead) % self.rsus))


@dataclass(frozen=True, kw_only=True)
class AccessLogSource:
    """Log of the vehicles at each RSU and their times, such as access logs of base stations or taxis mapped to RSUs.

    The file is CSV with the columns ``vehicle``, ``rsu``, ``enter_s`` and ``exit_s``, with rows in any order. A vehicle
    may be at several RSUs at a time, or at none.

    Args:
        file: the log.
        speed_kmh: the speed that vehicles report (km/h); the log contains none.
    """

    name: ClassVar[str] = "access-log"
    source: ClassVar[str] = "the log itself"
    traffic_settings: ClassVar[tuple[str, ...]] = ("range_m",)

    file: str
    speed_kmh: SpeedKmh = 50.0

    def open(self, request: TrafficRequest) -> PathTraffic:
        """Open the traffic, with the log's RSUs on a ring; InputError for a missing or faulty file."""
        log = self._read_log()
        begin_s, end_s = float(log["enter_s"].min()), float(log["exit_s"].max())  # type: ignore[arg-type]
        rsus = _place_on_ring(log["rsu"].unique(maintain_order=True).to_list(), request.experiment)
        by_id = {rsu.id: rsu for rsu in rsus}
        inputs = (str(resolve_path(FilePath(self.file))),)
        info = source_info(self, begin_s=begin_s, end_s=end_s, seed=None, inputs=inputs)

        def paths() -> Iterator[Path]:
            """Yield a path and why it ends, for each row of the log; sorted by time of entry."""
            for vehicle, rsu, enter_s, exit_s in log.iter_rows():
                yield _make_path(vehicle, by_id[rsu], [enter_s, exit_s], end_s, self.speed_kmh)

        return PathTraffic(rsus, info, paths)

    def _read_log(self) -> pl.DataFrame:
        """Return the log's rows (``_COLUMNS``), sorted by time of entry; InputError for a faulty file or row."""
        path, what = FilePath(self.file), f"no access log, a CSV file with the columns {', '.join(_COLUMNS)}"
        # polars would read a path as a pattern or a web address
        with damage_as_input_error(path, what), path.open("rb") as file:
            log = pl.read_csv(file, columns=list(_COLUMNS), schema_overrides=_COLUMNS).select(*_COLUMNS)
        log = log.with_row_index("line", offset=2)
        before = pl.col("exit_s").shift().over("vehicle", "rsu", order_by="enter_s")
        wrong: pl.Series = log.filter(
            pl.any_horizontal(pl.all().is_null())
            | ~pl.all_horizontal(pl.col("enter_s", "exit_s").abs() <= FARTHEST)
            | ~(pl.col("enter_s") < pl.col("exit_s"))
            | (pl.col("enter_s") < before)
        )["line"]
        if log.is_empty():
            raise InputError(f"{self.file}: an access log without rows.")
        if len(wrong):
            raise InputError(
                f"{self.file}: line {min(wrong)}: a row names a vehicle and an RSU, enters before it exits, "
                f"names no time beyond {FARTHEST:g} s, and does not overlap another one of the same vehicle at the "
                "same RSU."
            )
        return log.drop("line").sort("enter_s", maintain_order=True)


def _make_path(vehicle_id: str, rsu: Rsu, times_s: list[float], end_s: float, speed_kmh: float) -> Path:
    """Return a path at the RSU's place, a point each time, and exit cause: ``end`` at ``end_s``, else ``crossing``."""
    count = len(times_s)
    path = VehiclePath(
        vehicle_id=vehicle_id,
        vehicle_type="",
        rsu_id=rsu.id,
        entry_cause="crossing",
        entry_edge="",
        time_s=times_s,
        x_m=[rsu.x_m] * count,
        y_m=[rsu.y_m] * count,
        speed_mps=[speed_kmh / 3.6] * count,
    )
    return path, "crossing" if times_s[-1] < end_s else "end"
