"""Windows per second of the event loop alone: no SUMO, constant link, learning that does nothing.

Run with ``pytest tests/benchmarks --benchmark-only -s``; prints, and asserts nothing about time.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from vnetsim.coverage.rsu import Rsu
from vnetsim.coverage.windows import CoverageEvent, Entered, Left, TrafficInfo, VehiclePath, Window
from vnetsim.experiment import Experiment, LinkSettings
from vnetsim.learning import Cost, Participant
from vnetsim.random_streams import Streams
from vnetsim.simulation.log import RoundResult, RoundSummary
from vnetsim.simulation.loop import simulate
from vnetsim.simulation.plugins import simulation_plugins
from vnetsim.simulation.selection import SELECTIONS
from vnetsim.simulation.world import World

SIZES = (1_000, 10_000, 100_000)
EXPERIMENT = Experiment(scenario="benchmark", rounds=10**6, link=LinkSettings(model="constant", rate_bps=20e6))

COST = Cost(download_bytes=700_000, upload_bytes=700_000, work_flop=2e12)


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
            path, left = self._pass(f"v{index}", enter_s, enter_s + float(dwell_s[index]))
            self._events.append(Entered(time_s=enter_s, path=path))
            heapq.heappush(leaving, (left.time_s, index, left))
        self._events.extend(heapq.heappop(leaving)[2] for _ in range(len(leaving)))

    @staticmethod
    def _pass(vehicle_id: str, enter_s: float, exit_s: float) -> tuple[VehiclePath, Left]:
        t, x, y, v = [enter_s, exit_s], [-250.0, 250.0], [0.0, 0.0], [500.0 / (exit_s - enter_s)] * 2
        path = VehiclePath(
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
        return path, Left(time_s=exit_s, path=path, window=window)

    def events(self) -> Iterator[CoverageEvent]:
        return iter(self._events)

    def close(self) -> None:
        """Nothing is open."""


@dataclass
class NoLearning:
    """The payload of a small encoder, and no training."""

    asked: Cost = COST  # one object, as a run asks its learner once for each silo

    def cost(self, _silo: int) -> Cost:
        return self.asked

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


CAN_COMMIT = Cost(download_bytes=700_000, upload_bytes=700_000, work_flop=2e10)
"""For policies that look at durations: as much work as most vehicles can do within their windows."""


@dataclass
class Timed:
    """A policy, and the seconds that it took.

    ``made``: of them, those for links and computers of vehicles, which an invitation needs as well, once a window.
    """

    policy: Any
    seconds: float = 0.0
    made: float = 0.0
    _begun: float | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.policy, name)

    def select(self, candidates: Sequence[Any], free: int, context: Any) -> Iterator[Any]:
        chosen = self._timed(lambda: iter(self.policy.select(candidates, free, context)))
        while (candidate := self._timed(lambda: next(chosen, None))) is not None:
            yield candidate

    def after_round(self, records: Sequence[Any]) -> None:
        self._timed(lambda: self.policy.after_round(records))

    def _timed(self, call: Callable[[], Any]) -> Any:
        self._begun = begun = time.perf_counter()  # plain calls: a context manager takes as long as a quick policy
        found = call()
        self.seconds += time.perf_counter() - begun
        self._begun = None
        return found

    def watching(self, make: Callable[..., Any]) -> Callable[..., Any]:
        """Return a method of ``World`` whose time counts when the policy is who calls it."""

        def called(*arguments: Any) -> Any:
            start = time.perf_counter()
            found = make(*arguments)
            if self._begun is not None:
                self.made += time.perf_counter() - start
            return found

        return called


def test_share_and_growth_of_selection(benchmark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    lines = benchmark.pedantic(lambda: [_share_and_growth(name) for name in SELECTIONS.names()], rounds=1, iterations=1)
    with capsys.disabled():
        print("", *lines, sep="\n")


def _share_and_growth(selection: str) -> str:
    settings = replace(EXPERIMENT, round=replace(EXPERIMENT.round, selection=selection))
    seconds, shares, made = {}, {}, {}
    for size in SIZES[:2]:
        plugins = simulation_plugins(settings)
        timed, traffic = Timed(plugins.selection), SteadyTraffic(size)
        with pytest.MonkeyPatch.context() as patch:
            for name in ("link", "train_s"):
                patch.setattr(World, name, timed.watching(getattr(World, name)))
            start = time.perf_counter()
            result = simulate(
                settings,
                traffic,
                NoLearning(CAN_COMMIT),
                Streams(seed=0),
                plugins=replace(plugins, selection=timed),
                images=dict.fromkeys(range(95), 100),
            )
            seconds[size] = time.perf_counter() - start
        shares[size] = (timed.seconds - timed.made) / seconds[size]
        made[size] = timed.made / seconds[size]
        assert len(result.log.windows) == size
        assert any(record.outcome == "committed" for record in result.log.participations)
    small, large = SIZES[:2]
    return (
        f"{selection:16} {shares[small]:6.1%} {shares[large]:6.1%} of the loop, and {made[large]:5.1%} for links and "
        f"computers; {large // small} x the windows: {seconds[large] / seconds[small]:.1f} x the time"
    )
