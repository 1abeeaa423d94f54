"""Windows per second of the event loop alone: no SUMO, constant link, learning that does nothing.

Run with ``pytest tests/benchmarks --benchmark-only -s``; prints, and asserts nothing about time.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np

from vnetsim.coverage.rsu import Rsu
from vnetsim.coverage.windows import CoverageEvent, Entered, Left, TrafficInfo, VehiclePath, Window
from vnetsim.experiment import Experiment
from vnetsim.learning import Cost, Participant
from vnetsim.random_streams import Streams
from vnetsim.simulation.log import RoundResult, RoundSummary
from vnetsim.simulation.loop import SimulationResult, simulate
from vnetsim.simulation.plugins import simulation_plugins

SIZES = (1_000, 10_000, 100_000)
EXPERIMENT = Experiment(scenario="benchmark", rounds=10**6, radio={"name": "constant", "rate_bps": 20e6})

COST = Cost(download_bytes=700_000, upload_bytes=700_000, work_flop=2e12)


class SteadyTraffic:
    """Vehicles at equal intervals, 20 to 40 s in coverage, at one RSU after the other; all is made beforehand."""

    info = TrafficInfo(kind="replay", begin_s=0.0, end_s=None, step_s=None, seed=None)
    time_s = 0.0

    def __init__(self, windows: int, rsus: int = 1, interval_s: float = 2.0) -> None:
        self.rsus = tuple(Rsu(id=f"r{i}", x_m=1000.0 * i, y_m=0.0, range_m=250.0) for i in range(rsus))
        dwell_s = np.random.default_rng(0).uniform(20, 40, windows).tolist()
        passes = (
            self._pass(f"v{i}", self.rsus[i % rsus], interval_s * i, interval_s * i + dwell_s[i])
            for i in range(windows)
        )
        self._events: list[CoverageEvent] = [event for both in passes for event in both]
        self._events.sort(key=attrgetter("time_s"))

    @staticmethod
    def _pass(vehicle_id: str, rsu: Rsu, enter_s: float, exit_s: float) -> tuple[Entered, Left]:
        t, x, y, v = [enter_s, exit_s], [rsu.x_m - 250, rsu.x_m + 250], [0.0, 0.0], [500.0 / (exit_s - enter_s)] * 2
        who: Any = {"vehicle_id": vehicle_id, "vehicle_type": "car", "rsu_id": rsu.id}
        entry: Any = {"entry_cause": "crossing", "entry_edge": ""}
        path = VehiclePath(**who, **entry, time_s=t, x_m=x, y_m=y, speed_mps=v)
        window = Window(
            **who,
            **entry,
            enter_s=enter_s,
            exit_s=exit_s,
            exit_cause="crossing",
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
        return Entered(time_s=enter_s, path=path), Left(time_s=exit_s, path=path, window=window)

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


def played(
    experiment: Experiment, traffic: SteadyTraffic, learning: NoLearning, **more: Any
) -> tuple[SimulationResult, float]:
    """Return what a simulation came to, and the processor time that it took (s)."""
    gc.collect()  # not what was left by the one before
    start_s = time.process_time()
    result = simulate(experiment, traffic, learning, Streams(seed=0), simulation_plugins(experiment), **more)
    return result, time.process_time() - start_s


CAN_COMMIT = Cost(download_bytes=700_000, upload_bytes=700_000, work_flop=5e12)
"""Ten seconds of work on the default computer, which most vehicles can do within their windows."""


def test_growth_of_the_loop_with_rsus(benchmark, capsys):
    """One RSU against a hundred: the same traffic among them, and that of each as dense as at the one.

    Where there is a hundred times the traffic, there are a hundred times the places too, or as many as before.
    """
    size, many = int(os.environ.get("VNETSIM_WINDOWS", SIZES[-1])), 100
    rules = EXPERIMENT.round
    wide = replace(EXPERIMENT, round=replace(rules, invited=many * rules.invited, quorum=many * rules.quorum))
    cases = {
        "the same traffic": (EXPERIMENT, 2.0),
        f"{many} x the traffic": (EXPERIMENT, 2.0 / many),
        f"{many} x the traffic and places": (wide, 2.0 / many),
    }

    def grow() -> list[str]:
        lines = []
        for case, (experiment, interval_s) in cases.items():
            # side by side: how fast the machine is changes with what else it does
            one, one_s = played(EXPERIMENT, SteadyTraffic(size), NoLearning(CAN_COMMIT))
            result, taken_s = played(experiment, SteadyTraffic(size, many, interval_s), NoLearning(CAN_COMMIT))
            assert len(one.log.windows) == len(result.log.windows) == size
            lines.append(
                f"{many} RSUs, {case}: {size / taken_s:.0f} windows/s, {size / one_s:.0f} with one RSU: "
                f"{taken_s / one_s:.2f} x the time"
            )
        return lines

    lines = benchmark.pedantic(grow, rounds=1, iterations=1)
    with capsys.disabled():
        print("", *lines, sep="\n")
