"""Windows per second of the event loop alone: no SUMO, constant link, learning that does nothing.

Run with ``pytest tests/benchmarks --benchmark-only -s``; prints, and asserts nothing about time.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from vnetsim.coverage import CoverageEvent, Entered, Left, Track, TrafficInfo, Window
from vnetsim.experiment import Experiment, LinkSettings
from vnetsim.learning import Cost, Participant
from vnetsim.random_streams import Streams
from vnetsim.rsu import Rsu
from vnetsim.simulation import RoundResult, RoundSummary, simulate

SIZES = (1_000, 10_000, 100_000)
EXPERIMENT = Experiment(scenario="benchmark", rounds=10**9, link=LinkSettings(model="constant", rate_bps=20e6))


class SteadyTraffic:
    """One vehicle every two seconds, 20 to 40 s in coverage; its events are made beforehand."""

    rsus = (Rsu(id="r", x_m=0.0, y_m=0.0, range_m=250.0),)
    info = TrafficInfo(kind="replay", begin_s=0.0, end_s=None, step_s=None, seed=None)
    time_s = 0.0

    def __init__(self, windows: int) -> None:
        dwell_s = np.random.default_rng(0).uniform(20, 40, windows)
        self._events: list[CoverageEvent] = []
        leaving: list[tuple[float, int, Left]] = []
        for index in range(windows):
            enter_s = 2.0 * index
            while leaving and leaving[0][0] <= enter_s:
                self._events.append(heapq.heappop(leaving)[2])
            track, left = self._pass(f"v{index}", enter_s, enter_s + float(dwell_s[index]))
            self._events.append(Entered(time_s=enter_s, track=track))
            heapq.heappush(leaving, (left.time_s, index, left))
        self._events.extend(heapq.heappop(leaving)[2] for _ in range(len(leaving)))

    @staticmethod
    def _pass(vehicle_id: str, enter_s: float, exit_s: float) -> tuple[Track, Left]:
        t, x, y, v = [enter_s, exit_s], [-250.0, 250.0], [0.0, 0.0], [500.0 / (exit_s - enter_s)] * 2
        track = Track(
            vehicle_id=vehicle_id,
            vehicle_type="car",
            rsu_id="r",
            entry_cause="crossing",
            entry_edge="",
            time_s=t,
            x_m=x,
            y_m=y,
            speed_mps=v,
        )
        window = Window(
            vehicle_id=vehicle_id,
            vehicle_type="car",
            rsu_id="r",
            enter_s=enter_s,
            exit_s=exit_s,
            entry_cause="crossing",
            exit_cause="crossing",
            entry_edge="",
            exit_edge="",
            entry_speed_mps=v[0],
            mean_speed_mps=v[0],
            max_speed_mps=v[0],
            path_length_m=500.0,
            path_time_s=np.array(t),
            path_x_m=np.array(x),
            path_y_m=np.array(y),
            path_speed_mps=np.array(v),
        )
        return track, Left(time_s=exit_s, track=track, window=window)

    def events(self) -> Iterator[CoverageEvent]:
        return iter(self._events)

    def close(self) -> None:
        """Nothing is open."""


class NoLearning:
    """The payload of a small encoder, and no training."""

    def cost(self, _silo: int) -> Cost:
        return Cost(download_bytes=700_000, upload_bytes=700_000, work_flop=2e12)

    def close_round(self, _summary: RoundSummary, participants: Sequence[Participant]) -> RoundResult:
        return RoundResult(weights=[1.0] * len(participants), losses=[0.0] * len(participants))


def test_growth_of_the_loop_with_windows(benchmark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    seconds = {}
    for size in SIZES[:-1]:
        traffic = SteadyTraffic(size)
        start = time.perf_counter()
        simulate(EXPERIMENT, traffic, NoLearning(), Streams(seed=0))
        seconds[size] = time.perf_counter() - start
    size = SIZES[-1]
    traffic = SteadyTraffic(size)
    start = time.perf_counter()
    result = benchmark.pedantic(
        simulate, args=(EXPERIMENT, traffic, NoLearning(), Streams(seed=0)), rounds=1, iterations=1
    )
    seconds[size] = time.perf_counter() - start
    assert len(result.log.windows) == size
    with capsys.disabled():
        print()
        for size, elapsed in seconds.items():
            print(f"{size:>7} windows: {elapsed:8.3f} s, {size / elapsed:8.0f} windows/s")
        for small, large in pairwise(SIZES):
            growth = seconds[large] / seconds[small]
            print(f"{large // small} x the windows from {small} on: {growth:.2f} x the time")
        ended = Counter(record.outcome for record in result.log.participations)
        print(f"{ended.total() / seconds[size]:.0f} participations/s, {dict(ended)}")
