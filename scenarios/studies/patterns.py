"""A data set that a small network learns within seconds: ten patterns under noise, drawn by the program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from vnetsim.learners.data import ImageSet
from vnetsim.learners.data.sets import Part, classed_set

from vnetsim.errors.bounds import Within
from vnetsim.experiment import DataSettings
from vnetsim.random_streams import Streams

CLASSES = 10
SQUARES = 8
"""Squares of one colour along a side."""
SQUARE_PX = 4


@dataclass(frozen=True, kw_only=True)
class Patterns:
    """Ten patterns of 8 x 8 squares in random colours under noise of the same grain: 32 x 32, colour.

    Args:
        noise: standard deviation of the noise, in those of the patterns' colours, 0 to 100.
    """

    name = "patterns"
    source = "drawn by the program"
    targets = "classes"

    noise: Annotated[float, Within(0, 100, "", "beyond it nothing is seen")] = 4.0

    def load(self, data: DataSettings, streams: Streams) -> ImageSet:
        """Return the images; patterns, training and test images come from streams of their own."""
        patterns = streams.generator("patterns").standard_normal((CLASSES, 3, SQUARES, SQUARES))
        train = self.drawn(data.train_images or 2000, patterns, streams.generator("patterns", "train"))
        test = self.drawn(data.test_images or 1000, patterns, streams.generator("patterns", "test"))
        return classed_set(self.name, data.root, train=train, test=test, class_names=tuple(map(str, range(CLASSES))))

    def drawn(self, count: int, patterns: np.ndarray, generator: np.random.Generator) -> Part:
        """Return ``count`` images, uint8, shape (N, 3, 32, 32), and their classes, shape (N,)."""
        labels = generator.integers(CLASSES, size=count)
        noisy = patterns[labels] + self.noise * generator.standard_normal((count, *patterns.shape[1:]))
        squares = np.clip(128 + 100 / (1 + self.noise) * noisy, 0, 255).astype(np.uint8)
        return squares.repeat(SQUARE_PX, axis=2).repeat(SQUARE_PX, axis=3), labels
