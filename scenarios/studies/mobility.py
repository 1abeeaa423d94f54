"""For studies of many short runs: ten classes of coloured patterns under noise, 8 x 8, and a network of one layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from torch import nn
from vnetsim.learners.data import ImageSet
from vnetsim.learners.data.sets import Part, classed_set

from vnetsim.errors.bounds import Within
from vnetsim.experiment import DataSettings
from vnetsim.random_streams import Streams

CLASSES = 10
PATTERNS = 4
"""Patterns of a class: with one alone a linear layer would tell all classes apart."""


@dataclass(frozen=True, kw_only=True)
class Patterns:
    """Ten classes of four patterns each, 4 x 4 coloured squares under noise: 8 x 8, colour.

    The patterns are the same at every seed, the images are not.

    Args:
        noise: standard deviation of the noise, in parts of that of the patterns, 0 to 100.
    """

    name = "patterns"
    source = "drawn by the program"
    targets = "classes"

    noise: Annotated[float, Within(0, 100, "", "beyond it nothing is seen")] = 2.5

    def load(self, data: DataSettings, streams: Streams) -> ImageSet:
        """Return the images; training and test images come from streams of their own."""
        train = self.drawn(data.train_images or 2000, streams.generator("patterns", "train"))
        test = self.drawn(data.test_images or 1000, streams.generator("patterns", "test"))
        names = tuple(f"class {number}" for number in range(CLASSES))
        return classed_set(self.name, data.root, train=train, test=test, class_names=names)

    def drawn(self, count: int, generator: np.random.Generator) -> Part:
        """Return ``count`` images, uint8, shape (N, 3, 8, 8), and their classes, shape (N,)."""
        patterns = np.random.default_rng(0).standard_normal((CLASSES, PATTERNS, 3, 4, 4))
        labels = generator.permutation(np.arange(count) % CLASSES)
        shown = patterns[labels, generator.integers(PATTERNS, size=count)].repeat(2, axis=2).repeat(2, axis=3)
        noisy = shown + self.noise * generator.standard_normal(shown.shape)
        return np.clip(128 + 30 * noisy, 0, 255).astype(np.uint8), labels


@dataclass(frozen=True, kw_only=True)
class OneLayer:
    """Means over 8 x 8 squares, of images of any size, one linear layer over all of them, ReLU.

    Args:
        width: units of the layer, 1 to 4096.
    """

    name = "one-layer"
    source = "Rosenblatt (1958): The perceptron, Psychological Review 65"

    width: Annotated[int, Within(1, 4096, "units", "more are no small network")] = 64

    def build(self) -> tuple[nn.Module, int]:
        """Return the trunk and its width."""
        squares, layer = nn.AdaptiveAvgPool2d(8), nn.Linear(3 * 8 * 8, self.width)
        as_image = nn.Unflatten(1, (self.width, 1, 1))  # dense features of one position
        return nn.Sequential(squares, nn.Flatten(), layer, nn.ReLU(), as_image), self.width
