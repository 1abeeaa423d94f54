"""Settings of local training that the tasks share, and bounds of settings that methods share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from learners.encoders import require_encoder
from learners.mathematics.robust import AveragingSettings
from vnetsim.errors.bounds import TRAINS, Within

Temperature = Annotated[float, Within(1e-3, 1e3, "", "beyond these a softmax is a maximum or flat"), TRAINS]
Momentum = Annotated[float, Within(0, 0.9999, "", "at 1 the optimizer never forgets"), TRAINS]
Steps = Annotated[int, Within(1, 1_000_000, "", "more are many passes over any silo")]


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(AveragingSettings):
    """Local steps, the engine that takes them, and averaging.

    Args:
        engine: how the vehicles of a round are trained: ``auto``, several at a time, on CUDA by recorded steps;
            ``sequential``, one after the other, with the same results; ``compiled``, as ``auto`` with a step that
            ``torch.compile`` makes faster, for long runs on CUDA, with other rounding.
        precision: of the network's convolutions in training: ``float32``, or ``bfloat16``, with 8 bits of precision
            instead of 24, which takes half the memory and, on devices that support it, less time; evaluation always
            uses float32.
        batch: images per step, >= 2; a smaller silo uses all it has.
        steps: optimizer steps per local training.
        lr: learning rate.
        weight_decay: factor of the parameters that is added to their gradients.
    """

    engine: Annotated[Literal["auto", "sequential", "compiled"], TRAINS] = "auto"
    precision: Annotated[Literal["float32", "bfloat16"], TRAINS] = "float32"
    batch: Annotated[int, Within(2, 1_000_000, "images", "BatchNorm needs two; no step holds more in memory")] = 16
    steps: Steps = 8
    lr: Annotated[
        float, Within(1e-12, 1e6, "", "below it no bit of a weight changes, above it all overflow"), TRAINS
    ] = 0.05
    weight_decay: Annotated[float, Within(0, 1e3, "", "more turns the weights around at each step"), TRAINS] = 5e-4


@dataclass(frozen=True, kw_only=True)
class EncoderSettings(TrainingSettings):
    """Local training by SGD of a network on an encoder chosen by name, and averaging.

    Args:
        encoder: ``small`` (86 thousand parameters), ``resnet18`` (11.2 million), or a plug-in of the kind encoder, by
            name or as ``path/to/file.py:Class``; its settings are those of the table ``encoder``.
        lr: learning rate of the first round; it falls along a cosine.
        momentum: of SGD, in [0, 1); each local training starts a new optimizer.
    """

    encoder: str = "small"
    momentum: Momentum = 0.9

    def __post_init__(self) -> None:
        """Raise InputError for values outside their bounds and unknown encoders."""
        super().__post_init__()
        require_encoder(self.encoder)
