"""A data set of one's own: gratings of four directions under noise, drawn by the program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from vnetsim.learners.data import ImageSet
from vnetsim.learners.data.sets import Part, classed_set

from vnetsim.errors.bounds import Within
from vnetsim.experiment import DataSettings
from vnetsim.random_streams import Streams

DIRECTIONS = ("horizontal", "rising", "vertical", "falling")
SIDE_PX = 32


@dataclass(frozen=True, kw_only=True)
class Gratings:
    """Sine gratings whose direction is the class, each with a phase of its own: 32 x 32, colour.

    Args:
        period_px: length of a period (px), 2 to 32.
        noise: standard deviation of the noise, in parts of the grating's amplitude, 0 to 100.
    """

    name = "gratings"
    source = "drawn by the program"
    targets = "classes"

    period_px: Annotated[float, Within(2, 32, "px", "finer ones alias; the image is no wider")] = 8.0
    noise: Annotated[float, Within(0, 100, "", "beyond it nothing is seen")] = 1.0

    def load(self, data: DataSettings, streams: Streams) -> ImageSet:
        """Return the images; training and test images come from streams of their own."""
        train = self.drawn(data.train_images or 4000, streams.generator("gratings", "train"))
        test = self.drawn(data.test_images or 800, streams.generator("gratings", "test"))
        return classed_set(self.name, data.root, train=train, test=test, class_names=DIRECTIONS)

    def drawn(self, count: int, generator: np.random.Generator) -> Part:
        """Return ``count`` images, uint8, shape (N, 3, 32, 32), and their classes, shape (N,)."""
        labels = generator.integers(len(DIRECTIONS), size=count)
        angle = (np.pi / 4 * labels)[:, None, None]
        y, x = np.mgrid[:SIDE_PX, :SIDE_PX]
        way = x * np.sin(angle) + y * np.cos(angle)
        wave = np.sin(2 * np.pi * (way / self.period_px + generator.random((count, 1, 1))))
        noisy = wave[:, None] + self.noise * generator.standard_normal((count, 3, SIDE_PX, SIDE_PX))
        return np.clip(128 + 40 * noisy, 0, 255).astype(np.uint8), labels
