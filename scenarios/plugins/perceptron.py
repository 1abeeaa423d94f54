"""An encoder of one's own that costs next to nothing: a layer of perceptrons over the whole image, made small."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from torch import nn

from vnetsim.errors.bounds import Within

SIDE_PX = 32


@dataclass(frozen=True, kw_only=True)
class Perceptron:
    """Means over squares of pixels, one linear layer over all of them, ReLU.

    Args:
        width: units of the layer, 1 to 4096.
        shrink: side of the squares, 1 to 16: of 32 x 32 pixels 8 x 8 are left at 4.
    """

    name = "perceptron"
    source = "Rosenblatt (1958): The perceptron, Psychological Review 65"

    width: Annotated[int, Within(1, 4096, "units", "more are no small network")] = 64
    shrink: Annotated[int, Within(1, 16, "px", "of 32 px 2 are left")] = 4

    def build(self) -> tuple[nn.Module, int]:
        """Return the trunk and its width."""
        whole = nn.Conv2d(3, self.width, SIDE_PX // self.shrink)
        return nn.Sequential(nn.AvgPool2d(self.shrink), whole, nn.ReLU()), self.width
