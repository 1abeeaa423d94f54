"""Settings of local training that all learners here share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from learners.robust import AveragingSettings
from vnetsim.errors import InputError


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(AveragingSettings):
    """Local steps, the engine that takes them, and averaging.

    Args:
        engine: how the vehicles of a round are trained: ``sequential``, one after the other; ``batched``, many at a
            time; ``auto``, whichever was measured to be faster on the device.
        precision: of the network's convolutions in training: ``float32``, or ``bfloat16``, with 8 bits of precision in
            place of 24, which takes half the memory and less time where the device has it; evaluation is always in
            float32.
        batch: images per step, >= 2; a smaller silo gives all it has.
        steps: optimizer steps per visit.
        lr: learning rate.
        weight_decay: factor of the parameters added to their gradients.
    """

    engine: Literal["auto", "sequential", "batched"] = "auto"
    precision: Literal["float32", "bfloat16"] = "float32"
    batch: int = 16
    steps: int = 8
    lr: float = 0.05
    weight_decay: float = 5e-4

    def __post_init__(self) -> None:
        """Refuse values without meaning.

        Raises:
            InputError: naming the key.
        """
        super().__post_init__()
        at_least(self, batch=2, steps=1)
        positive(self, "lr")
        if not (math.isfinite(self.weight_decay) and self.weight_decay >= 0):
            raise InputError(f"learning.weight_decay must be at least 0 and finite, got {self.weight_decay}.")


def at_least(settings: object, **least: int) -> None:
    """Refuse settings below the least value that has a meaning.

    Raises:
        InputError: naming the first of them.
    """
    for name, value in least.items():
        if getattr(settings, name) < value:
            raise InputError(f"learning.{name} must be at least {value}, got {getattr(settings, name)}.")


def positive(settings: object, *names: str) -> None:
    """Refuse settings that are not positive and finite.

    Raises:
        InputError: naming the first of them.
    """
    for name in names:
        value = getattr(settings, name)
        if not (math.isfinite(value) and value > 0):
            raise InputError(f"learning.{name} must be positive and finite, got {value}.")


def in_unit_interval(settings: object, name: str, *, with_one: bool) -> None:
    """Refuse a setting outside [0, 1], or [0, 1) where 1 has no meaning.

    Raises:
        InputError: naming it.
    """
    value = getattr(settings, name)
    if not (0 <= value < 1 or (with_one and value == 1)):
        raise InputError(f"learning.{name} must be in [0, 1{']' if with_one else ')'}, got {value}.")
