"""Learners for tests of comparisons in several processes, which see no monkeypatch: to be named by this file.

Their model takes a random walk. A file named by the environment variable ``WALK_TROUBLE`` that holds a line such as
``kill Walk 1`` makes the process of Walk at seed 1 die in its third round; ``once`` behind it makes that happen once.
``full Walk 0`` makes the disk full there, and other seeds wait in that round until somebody ends them; ``hold`` makes
all of them wait there. ``pause`` makes every round take half a second.
"""

import errno
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from vnetsim.learning import Aggregation, Cost, Description, LearnerContext, Participant, Series, Update
from vnetsim.runs import runner

runner.SAFE_EVERY_S = 0.0  # also in the processes of workers: whoever is ended after a round has saved it

HELD_S = 1500
"""Longer than any test may take: what is held is ended, and a test that forgets it leaves nothing for ever."""


def full(_: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@dataclass(frozen=True, kw_only=True)
class NoSettings:
    """Nothing to set."""


class Walk:
    name: ClassVar[str] = "walk"
    task: ClassVar[str] = "random walk"
    paper: ClassVar[str] = "none"
    Settings: ClassVar[type] = NoSettings
    offset: ClassVar[float] = 0.0

    def __init__(self, context: LearnerContext) -> None:
        self._streams = context.streams
        self._silos = context.experiment.silos.count
        self._model = torch.zeros(4, dtype=torch.float64)

    @classmethod
    def create(cls, context: LearnerContext, settings: Any) -> "Walk":  # noqa: ARG003 - the protocol's name
        return cls(context)

    def describe(self) -> Description:
        counts = np.ones((self._silos, 1), dtype=np.int64)
        return Description(
            encoder="none", parameters=4, image_shape=(3, 8, 8), class_names=("thing",), silo_label_counts=counts
        )

    def series(self) -> Sequence[Series]:
        return [Series(name="distance", label="Distance", unit="", caption="From the origin.")]

    def cost(self, silo: int) -> Cost:
        return Cost(download_bytes=100_000, upload_bytes=100_000, work_flop=1e8 * (1 + silo % 3))

    def train(self, participants: Sequence[Participant]) -> Sequence[Update]:
        self._trouble(participants)
        return [self._update(participant) for participant in participants]

    def _trouble(self, participants: Sequence[Participant]) -> None:
        path = Path(os.environ.get("WALK_TROUBLE", "nowhere"))
        if not path.is_file():
            return
        if path.read_text() == "pause":
            time.sleep(0.5)
            return
        if not participants or participants[0].round != 2:
            return
        kind, learner, seed, *rest = f"{path.read_text()} - -1".split()
        if kind == "hold" or (kind == "full" and int(seed) != self._streams.seed):
            time.sleep(HELD_S)
        if (learner, int(seed)) != (type(self).__name__, self._streams.seed):
            return
        if "once" in rest:
            path.unlink()
        if kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "full":
            os.fsync = full

    def _update(self, participant: Participant) -> Update:
        step = self._streams.generator("training", participant.round, participant.vehicle_id).normal(size=4)
        state = {"w": self._model + torch.from_numpy(step)}
        return Update(participant=participant, state=state, loss=float(np.square(step).sum()), finite=True)

    def aggregate(self, updates: Sequence[Update]) -> Aggregation:
        if not updates:
            return Aggregation(weights=[], metrics={})
        self._model = torch.stack([update.state["w"] for update in updates]).mean(0)
        return Aggregation(weights=[1 / len(updates)] * len(updates), metrics={})

    def evaluate(self, *, final: bool) -> Mapping[str, float]:  # noqa: ARG002 - the protocol's name
        return {"distance": float(self._model.norm()) + self.offset}

    def state_dict(self) -> dict[str, Any]:
        return {"model.w": self._model}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._model = state["model.w"]

    def sample_images(self, kernels_px: Sequence[float], count: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        return np.zeros((len(kernels_px), count, 8, 8, 3), dtype=np.uint8)


class Shifted(Walk):
    """Its result is larger by one."""

    name: ClassVar[str] = "shifted"
    offset: ClassVar[float] = 1.0
