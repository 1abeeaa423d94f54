"""Frames drawn by the program: the streets of the net (``streets``) as a front camera sees them (``windscreen``).

A frame's class is that of the nearest visible sign; its steering angle leads, by pure pursuit, to the point of the
vehicle's own path LOOK_AHEAD_M further on (``driven``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from learners.data import sign_designs, streets, windscreen
from learners.data.driven import Driven, Frames, Seen
from learners.data.image_cache import load_or_draw
from learners.data.sign_designs import DESIGNS
from learners.data.streets import Ground, Integers, Net, Signs, place_signs
from learners.data.windscreen import Poses, find_visible_signs, render
from vnetsim.errors.bounds import Within
from vnetsim.experiment import DataSettings
from vnetsim.random_streams import Streams

_PLACE_M = 30.0


@dataclass(frozen=True, kw_only=True)
class Drive(Driven):
    """What the vehicles of the run see on the streets of its net, drawn by the program: 32 x 32.

    With classes an image's label is the nearest visible sign, in colour; with steering angles frames are grey.

    Args:
        noon_s: the traffic's time at which it is noon (s): 43200 for a scenario whose time counts from midnight.
    """

    name: ClassVar[str] = "drive"
    source: ClassVar[str] = "built in"
    sight: ClassVar[str] = "a visible sign"

    noon_s: Annotated[float, Within(-1e7, 1e7, "s", "four months")] = 0.0

    @property
    def facts(self) -> Mapping[str, str]:
        """The time of noon in a sentence, for manifest and report."""
        return {"Light": f"noon is at {self.noon_s:g} s"}

    def view(self, net: Net, data: DataSettings, streams: Streams) -> DrawnView:  # noqa: ARG002 - as of all views
        """Return the streets of the net, with signs where seed and net place them."""
        seed = streams.integer("drive", "places")
        return DrawnView(net, place_signs(net, seed), seed, self.noon_s, streams)


@dataclass(frozen=True)
class DrawnView:
    """Streets with signs; a frame's place is the sign that it shows or, without one, the square in which the car is."""

    net: Net
    signs: Signs
    seed: int
    noon_s: float
    streams: Streams
    class_names: ClassVar[tuple[str, ...]] = tuple(DESIGNS)

    def see(self, frames: Frames) -> Seen:
        """Return class and place of each frame: of the nearest visible sign; without one, -1 and the car's square."""
        sign = find_visible_signs(Poses(*frames[:4]), self.signs)[0][:, 0]
        square = np.floor(np.column_stack([frames.x_m, frames.y_m]) / _PLACE_M).astype(np.int64)
        bare = np.unique(square, axis=0, return_inverse=True)[1].reshape(-1)
        none = len(self.signs.label)
        labels = np.append(self.signs.label, -1)[np.where(sign >= 0, sign, none)]
        return Seen(labels, np.where(sign >= 0, sign, none + bare))

    def pictures(self, frames: Frames, places: Integers, side_px: int, *, grey: bool) -> NDArray[np.uint8]:  # noqa: ARG002
        """Return drawn frames, (N, 3, P, P), or (N, 1, P, P) if ``grey``, from disk if drawn before."""
        poses = Poses(*frames[:4])

        def draw() -> NDArray[np.uint8]:
            """Return the frames as ``pictures`` does, drawn now."""
            ground = Ground(self.net, self.seed, np.column_stack([poses.x_m, poses.y_m]))
            noise = self.streams.generator("drive", "noise")
            images = render(poses, ground, self.signs, side_px=side_px, noon_s=self.noon_s, noise=noise)
            return np.rint(images.mean(axis=1, keepdims=True)).astype(np.uint8) if grey else images

        lanes = [(*lane[:3], lane.shape.tobytes(), *lane[4:]) for lane in self.net.lanes]
        key = self.seed, self.noon_s, grey, lanes, [column.tobytes() for column in (*poses, *self.signs)]
        code = (__file__, streets.__file__, windscreen.__file__, sign_designs.__file__)
        return load_or_draw(draw, (len(poses.time_s), 1 if grey else 3, side_px, side_px), key, code=code)
