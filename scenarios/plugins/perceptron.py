"""An encoder of one's own that costs next to nothing: a layer of perceptrons over the whole image, made small."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from torch import nn

from vnetsim.errors.bounds import Within


@dataclass(frozen=True, kw_only=True)
class Perceptron:
    """Means over squares of pixels, one linear layer over all of them, ReLU.

    Args:
        width: units of the layer, 1 to 4096.
        side: number of squares along each side, 1 to 32.
    """

    name = "perceptron"
    source = "Rosenblatt (1958): The perceptron, Psychological Review 65"

    width: Annotated[int, Within(1, 4096, "units", "more are no small network")] = 64
    side: Annotated[int, Within(1, 32, "squares", "more are no small network")] = 8

    def build(self) -> tuple[nn.Module, int]:
        """Return the trunk and its width."""
        squares, layer = nn.AdaptiveAvgPool2d(self.side), nn.Linear(3 * self.side**2, self.width)
        as_image = nn.Unflatten(1, (self.width, 1, 1))  # dense features of one position
        return nn.Sequential(squares, nn.Flatten(), layer, nn.ReLU(), as_image), self.width
