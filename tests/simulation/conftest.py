"""Hand-made traffic and learning: small enough to know every outcome beforehand.

Unless a test says otherwise the link carries 1 MB/s, and a participation alone takes 1 s of download, 3 s of training
and 2 s of upload.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from vnetsim.coverage.rsu import Rsu
from vnetsim.coverage.windows import CoverageEvent, Entered, Left, TrafficInfo, VehiclePath, Window
from vnetsim.experiment import (
    AssociationSettings,
    BackhaulSettings,
    ComputeSettings,
    ExchangeSettings,
    Experiment,
    HandoverSettings,
    RoundSettings,
    SiloSettings,
    TopologySettings,
)
from vnetsim.learning import Cost, ModelKey, Participant
from vnetsim.plugins.results import errors_of_plugins
from vnetsim.random_streams import Streams
from vnetsim.simulation.log import Mixing, RoundResult, RoundSummary, SimulationLog
from vnetsim.simulation.loop import SimulationResult, simulate
from vnetsim.simulation.plugins import SimulationPlugins, simulation_plugins
from vnetsim.storage.rows import ParticipationRecord

RSU = Rsu(id="r", x_m=0.0, y_m=0.0, range_m=250.0)
CONSTANT = {"name": "constant", "rate_bps": 8e6}
EQUAL = ComputeSettings(preset="ecu", median_flops=1e9, spread=0.0)
COST = Cost(download_bytes=1_000_000, upload_bytes=2_000_000, work_flop=3e9)


def window(
    vehicle_id: str,
    enter_s: float,
    exit_s: float,
    *,
    rsu_id: str = "r",
    exit_cause: str = "crossing",
    path: Sequence[tuple[float, float, float]] = (),
    start: tuple[float, float] = (0.0, 100.0),
    speed_mps: float = 10.0,
) -> Window:
    """Return a window along straight lines through ``path`` (t, x, y), by default from ``start`` to the east."""
    points = path or [
        (enter_s, *start),
        *(
            (float(t), start[0] + speed_mps * (t - enter_s), start[1])
            for t in range(math.floor(enter_s) + 1, math.ceil(exit_s))
        ),
        (exit_s, start[0] + speed_mps * (exit_s - enter_s), start[1]),
    ]
    t, x, y = (np.array(values, dtype=float) for values in zip(*points, strict=True))
    length = float(np.hypot(np.diff(x), np.diff(y)).sum())
    return Window(
        vehicle_id=vehicle_id,
        vehicle_type="car",
        rsu_id=rsu_id,
        enter_s=enter_s,
        exit_s=exit_s,
        entry_cause="crossing",
        exit_cause=exit_cause,  # type: ignore[arg-type]
        entry_edge="in",
        exit_edge="out",
        entry_speed_mps=speed_mps,
        mean_speed_mps=length / (exit_s - enter_s),
        max_speed_mps=speed_mps,
        path_length_m=length,
        path_time_s=t,
        path_x_m=x,
        path_y_m=y,
        path_speed_mps=np.full(len(t), speed_mps),
    )


class HandMadeTraffic:
    """Plays windows; a path is known up to the first path point after the present, as with a live source, or whole."""

    def __init__(
        self,
        windows: Sequence[Window],
        rsus: Sequence[Rsu] = (RSU,),
        begin_s: float = 0.0,
        end_s: float | None = None,
        *,
        whole: bool = False,
    ) -> None:
        self.whole = whole
        self.windows = tuple(windows)
        self.rsus = tuple(rsus)
        self.info = TrafficInfo(kind="replay", begin_s=begin_s, end_s=end_s, step_s=1.0, seed=None, whole_paths=True)
        self.time_s = begin_s
        self.closed = False

    def events(self) -> Iterator[CoverageEvent]:
        paths: dict[int, VehiclePath] = {}
        plan = sorted(
            [(w.enter_s, 1, i) for i, w in enumerate(self.windows)]
            + [(w.exit_s, 0, i) for i, w in enumerate(self.windows)]
        )
        for time_s, entering, i in plan:
            self.time_s = time_s
            w = self.windows[i]
            if entering:
                who = ("vehicle_id", "vehicle_type", "rsu_id", "entry_cause", "entry_edge")
                nothing: dict[str, Any] = {name: [] for name in ("time_s", "x_m", "y_m", "speed_mps")}
                paths[i] = VehiclePath(**{name: getattr(w, name) for name in who}, **nothing)
            for j, growing in paths.items():
                path = self.windows[j]
                known = min(int(np.searchsorted(path.path_time_s, time_s, side="right")) + 1, len(path.path_time_s))
                for k in range(len(growing.time_s), len(path.path_time_s) if self.whole else known):
                    growing.time_s.append(float(path.path_time_s[k]))
                    growing.x_m.append(float(path.path_x_m[k]))
                    growing.y_m.append(float(path.path_y_m[k]))
                    growing.speed_mps.append(float(path.path_speed_mps[k]))
            yield (
                Entered(time_s=time_s, path=paths[i]) if entering else Left(time_s=time_s, path=paths.pop(i), window=w)
            )

    def close(self) -> None:
        self.closed = True


@dataclass
class HandMadeLearning:
    """Equal weights, loss = round + 0.5; rejects the vehicles it is told to."""

    cost_of: Mapping[int, Cost] = field(default_factory=dict)
    every: Cost = COST
    rejects: frozenset[str] = frozenset()
    calls: list[tuple[RoundSummary, list[Participant]]] = field(default_factory=list)
    mixed: list[Mixing] = field(default_factory=list)
    needed: list[set[ModelKey]] = field(default_factory=list)

    def cost(self, silo: int) -> Cost:
        return self.cost_of.get(silo, self.every)

    def mix(self, mixing: Mixing) -> None:
        self.mixed.append(mixing)

    def close_round(self, summary: RoundSummary, participants: Sequence[Participant]) -> RoundResult:
        self.calls.append((summary, list(participants)))
        self.needed.append(set(summary.needed()))
        rejected = [i for i, p in enumerate(participants) if p.vehicle_id in self.rejects]
        kept = len(participants) - len(rejected)
        return RoundResult(
            weights=[None if i in rejected else 1 / kept for i in range(len(participants))],
            losses=[summary.round + 0.5] * len(participants),
            rejected=rejected,
        )


class Scene:
    """What the tests build with."""

    rsu = RSU
    beside = Rsu(id="s", x_m=100.0, y_m=0.0, range_m=250.0)
    constant = CONSTANT
    cost = COST
    slow = ComputeSettings(median_flops=3e8, spread=0.0)
    window = staticmethod(window)
    traffic = HandMadeTraffic
    learning = HandMadeLearning

    @staticmethod
    def experiment(
        *,
        rounds: int | None = 1,
        time_s: float | None = None,
        seed: int = 0,
        radio: Mapping[str, Any] = CONSTANT,
        selection: str = "random",
        pace: str | Mapping[str, Any] = "quorum",
        by: str = "arrival",
        silos: int = 95,
        compute: ComputeSettings = EQUAL,
        topology: Mapping[str, Any] | None = None,
        association: Mapping[str, Any] | None = None,
        handover: Mapping[str, Any] | None = None,
        backhaul: Mapping[str, Any] | None = None,
        exchange: Mapping[str, Any] | None = None,
        **rules: Any,
    ) -> Experiment:
        rules = {"quorum": 1, "invited": 8, "deadline_s": 60.0, "max_staleness": 0, **rules}
        return Experiment(
            scenario="hand-made",
            seed=seed,
            rounds=rounds,
            time_s=time_s,
            radio=radio,
            selection={"name": selection},
            pace={"name": pace} if isinstance(pace, str) else pace,
            compute=compute,
            round=RoundSettings(**rules),
            silos=SiloSettings(count=silos, by=by),  # type: ignore[arg-type]
            topology=TopologySettings(**topology or {}),
            association=AssociationSettings(**association or {}),
            handover=HandoverSettings(**handover or {}),
            backhaul=BackhaulSettings(**backhaul or {}),
            exchange=ExchangeSettings(**exchange or {}),
        )

    @staticmethod
    def of(log: SimulationLog, who: str) -> dict[tuple[str, float], ParticipationRecord]:
        """Return a vehicle's participations by RSU and entry."""
        return {(record.rsu_id, record.enter_s): record for record in log.participations if record.vehicle_id == who}

    @staticmethod
    def simulate(
        experiment: Experiment, *given: Any, plugins: SimulationPlugins | None = None, **more: Any
    ) -> SimulationResult:
        plugins = plugins or simulation_plugins(experiment)
        with errors_of_plugins(*plugins.by_kind):
            return simulate(experiment, *given, plugins=plugins, **more)

    @classmethod
    def run(
        cls,
        windows: Sequence[Window],
        *,
        learning: HandMadeLearning | None = None,
        rsus: Sequence[Rsu] = (RSU,),
        end_s: float | None = None,
        whole: bool = False,
        plugins: Mapping[str, Any] | None = None,
        more: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> SimulationResult:
        """Return a run; ``plugins`` replaces some by objects, ``more`` are arguments of ``simulate``."""
        experiment = cls.experiment(**settings)
        return cls.simulate(
            experiment,
            HandMadeTraffic(windows, rsus, end_s=end_s, whole=whole),
            learning or HandMadeLearning(),
            Streams(seed=experiment.seed),
            plugins=replace(simulation_plugins(experiment), **plugins or {}),
            **more or {},
        )


@pytest.fixture(scope="session")
def scene():
    return Scene
