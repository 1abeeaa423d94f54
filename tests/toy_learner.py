"""A learner that knows nothing of images, for tests of what is around learners."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from vnetsim.learning import Aggregation, Cost, Description, LearnerContext, Participant, Series, Update


@dataclass(frozen=True, kw_only=True)
class ToySettings:
    """Settings of the toy.

    Args:
        payload_bytes: size of its model on the link.
    """

    payload_bytes: int = 100_000


class Toy:
    """Its model is four numbers that every vehicle moves a little at random; the simulator sees only the protocol."""

    name: ClassVar[str] = "toy"
    task: ClassVar[str] = "random walk"
    paper: ClassVar[str] = "none"
    Settings: ClassVar[type] = ToySettings
    defaults: ClassVar[Mapping[str, object]] = {
        "cost.model": "trained", "round.quorum": 5, "round.invited": 8, "round.max_staleness": 0,
    }  # fmt: skip

    def __init__(self, context: LearnerContext, settings: ToySettings) -> None:
        self._streams = context.streams
        self._settings = settings
        self._silos = context.experiment.silos.count
        self._model = torch.zeros(4, dtype=torch.float64)

    @classmethod
    def create(cls, context: LearnerContext, settings: Any) -> Toy:
        return cls(context, settings)

    def describe(self) -> Description:
        counts = np.ones((self._silos, 1), dtype=np.int64)
        return Description(
            encoder="none", parameters=4, image_shape=(3, 8, 8), class_names=("thing",), silo_label_counts=counts
        )

    def series(self) -> Sequence[Series]:
        return [Series(name="distance", label="Distance", unit="", caption="From the origin.")]

    def cost(self, silo: int) -> Cost:
        size = self._settings.payload_bytes
        return Cost(download_bytes=size, upload_bytes=size, work_flop=1e8 * (1 + silo % 3), steps=4)

    def train(self, participants: Sequence[Participant]) -> Sequence[Update]:
        return [self._update(participant) for participant in participants]

    def _update(self, participant: Participant) -> Update:
        step = self._streams.generator("training", participant.round, participant.vehicle_id).normal(size=4)
        state = {"w": self._model + torch.from_numpy(step * participant.work_share)}
        return Update(participant=participant, state=state, loss=float(np.square(step).sum()), finite=True)

    def aggregate(self, updates: Sequence[Update]) -> Aggregation:
        if not updates:
            return Aggregation(weights=[], metrics={})
        self._model = torch.stack([update.state["w"] for update in updates]).mean(0)
        return Aggregation(weights=[1 / len(updates)] * len(updates), metrics={})

    def evaluate(self, *, final: bool) -> Mapping[str, float]:  # noqa: ARG002 - the protocol's name
        return {"distance": float(self._model.norm())}

    def state_dict(self) -> dict[str, Any]:
        return {"model.w": self._model}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._model = state["model.w"]

    def sample_images(self, kernels_px: Sequence[float], count: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        return np.stack([np.full((count, 8, 8, 3), math.floor(kernel) % 256, dtype=np.uint8) for kernel in kernels_px])
