"""Settings of local training that all learners here share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from vnetsim.setting_checks import Within, check_bounds

Temperature = Annotated[float, Within(1e-3, 1e3, "", "beyond these a softmax is a maximum or flat")]
Momentum = Annotated[float, Within(0, 0.9999, "", "at 1 the optimizer never forgets")]
Steps = Annotated[int, Within(1, 1_000_000, "", "more are many passes over any silo")]


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """Local steps, and the engine that takes them.

    Args:
        engine: how the vehicles of a round are trained: ``sequential``, one after the other; ``batched``, many at a
            time; ``auto``, whichever is faster: on a CPU ``batched``, on CUDA what the run's first steps show.
        precision: of the network's convolutions in training: ``float32``, or ``bfloat16``, with 8 bits of precision in
            place of 24, which takes half the memory and less time where the device has it; evaluation is always in
            float32.
        batch: images per step, >= 2; a smaller silo gives all it has.
        steps: optimizer steps per local training.
        lr: learning rate.
        weight_decay: factor of the parameters added to their gradients.
    """

    engine: Literal["auto", "sequential", "batched"] = "auto"
    precision: Literal["float32", "bfloat16"] = "float32"
    batch: Annotated[int, Within(2, 1_000_000, "images", "BatchNorm needs two; no step holds more in memory")] = 16
    steps: Steps = 8
    lr: Annotated[float, Within(1e-12, 1e6, "", "below it no bit of a weight changes, above it all overflow")] = 0.05
    weight_decay: Annotated[float, Within(0, 1e3, "", "more turns the weights around at each step")] = 5e-4

    def __post_init__(self) -> None:
        """Refuse values outside their bounds, also of the classes that derive from this one.

        Raises:
            InputError: naming the key.
        """
        check_bounds("learning", self)
