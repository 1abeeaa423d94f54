"""An encoder of one's own: convolutions of stride 2 without shortcuts, group-normalised."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Annotated

from torch import nn

from vnetsim.errors.bounds import Within


@dataclass(frozen=True, kw_only=True)
class PlainCnn:
    """Convolution, group normalisation, ReLU: all of it per image, so that no statistics of others' are averaged.

    Args:
        width: channels of the first layer, 8 to 512; each further layer has twice as many.
        layers: convolutions, 1 to 4; each halves the image.
    """

    name = "plain-cnn"
    source = "Wu, He (2018): Group normalization, arXiv:1803.08494"

    width: Annotated[int, Within(8, 512, "channels", "normalised in groups of 8; more are no small network")] = 16
    layers: Annotated[int, Within(1, 4, "", "of 32 px 2 are left")] = 3

    def build(self) -> tuple[nn.Module, int]:
        """Return the trunk and its width."""
        widths = [3, *(self.width * 2**layer for layer in range(self.layers))]
        parts: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise(widths):
            parts += [nn.Conv2d(inputs, outputs, 3, 2, padding=1), nn.GroupNorm(max(1, outputs // 8), outputs)]
            parts += [nn.ReLU()]
        return nn.Sequential(*parts), widths[-1]
