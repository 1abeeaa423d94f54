"""An encoder for the study drive-handover: it learns from frames in a third of the time of ``small``."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Annotated

from torch import nn

from vnetsim.errors.bounds import Within


@dataclass(frozen=True, kw_only=True)
class Strides:
    """Three 3x3 convolutions of stride 2, each batch-normalised, with ReLU.

    Args:
        width: channels of the first convolution, 1 to 512; each further one has twice as many.
    """

    name = "strides"
    source = "Ioffe, Szegedy (2015): Batch normalization, arXiv:1502.03167"

    width: Annotated[int, Within(1, 512, "channels", "more are no small network")] = 16

    def build(self) -> tuple[nn.Module, int]:
        """Return the trunk and its width."""
        widths = (3, self.width, 2 * self.width, 4 * self.width)
        layers: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise(widths):
            layers += [nn.Conv2d(inputs, outputs, 3, 2, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
        return nn.Sequential(*layers), widths[-1]
