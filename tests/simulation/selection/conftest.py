"""Candidates: real ones of hand-made paths, and hand-made ones of which only the figures matter."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from coverage_laws import path_of

from vnetsim.coverage.rsu import Rsu
from vnetsim.experiment.camera import Camera
from vnetsim.learning import Cost
from vnetsim.simulation.selection import Candidate, SelectionContext
from vnetsim.simulation.selection.state import SelectionState
from vnetsim.simulation.vehicle import OpenWindow, Vehicle

RSU = Rsu(id="r", x_m=30.0, y_m=-40.0, range_m=250.0)


@dataclass(kw_only=True)
class Figures:
    """What a policy may ask of a candidate; ``remaining`` in seconds by predictor."""

    vehicle_id: str
    silo: int = 0
    approach: int = 0
    level_px: float = 0.0
    last_round: int = -1
    commits: int = 0
    images: int | None = 100
    loss: float | None = None
    loss_round: int | None = None
    figures: Sequence[tuple[float, int]] = ()
    download_s: float = 1.0
    train_s: float = 3.0
    upload_s: float = 2.0
    transfers: int = 0
    remaining: dict[str, float] = field(default_factory=dict)

    @property
    def loss_and_round(self) -> tuple[float, int] | None:
        return None if self.loss is None or self.loss_round is None else (self.loss, self.loss_round)

    @property
    def parts_s(self) -> tuple[float, float, float]:
        return self.download_s, self.train_s, self.upload_s

    @property
    def duration_s(self) -> float:
        return self.download_s + self.train_s + self.upload_s

    def remaining_s(self, predictor: str = "straight") -> float:
        return self.remaining.get(predictor, 100.0)


def open_window(path: Sequence[tuple[float, float, float, float]], *, approach: int = 0, rsu: Rsu = RSU) -> OpenWindow:
    """Return an open window along ``path`` (t, x, y, speed)."""
    vehicle = Vehicle(id="v", silo=7, approach=approach)
    return OpenWindow(index=0, vehicle=vehicle, rsu=rsu, path=path_of(path, rsu_id=rsu.id), earlier_windows=0)


def candidate_of(window: OpenWindow, now_s: float, **known: Any) -> Candidate:
    """Return the candidate of a window at a time (s)."""
    cost = Cost(download_bytes=1_000_000, upload_bytes=2_000_000, work_flop=3e9)
    link = SimpleNamespace(update_s=0.1, downlink_bps=lambda _: 8e6, uplink_bps=lambda _: 4e6)
    of_world = {"images": {7: 120}, "link": lambda _: link}
    world: Any = SimpleNamespace(
        experiment=SimpleNamespace(camera=Camera()),
        cost=lambda _: cost,
        train_s=lambda _: 3.0,
        channels={"r": SimpleNamespace(active=2)},
        **{name: known.pop(name, value) for name, value in of_world.items()},
    )
    state = SelectionState(**{"world": world, "whole_paths": True, **known})
    state.advance(now_s)
    return Candidate(window, state)


def context(**given: Any) -> SelectionContext:
    """Return a moment: at 0 s, round 0, 60 s to the deadline, nobody in flight, seed 0."""
    base: dict[str, Any] = {"now_s": 0.0, "round": 0, "open_s": 0.0, "deadline_s": 60.0, "in_flight": 0}
    return SelectionContext(**{**base, "generator": np.random.default_rng(0), "cloud_round": 0, **given})


class Makers:
    """What the tests build with."""

    rsu = RSU
    figures = Figures
    window = staticmethod(open_window)
    candidate = staticmethod(candidate_of)
    context = staticmethod(context)


@pytest.fixture(scope="session")
def make():
    return Makers
