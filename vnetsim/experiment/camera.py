"""Motion blur of a vehicle's camera: the blur level for aggregation weights, the kernel length for images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from vnetsim.errors.bounds import Within

FOCAL_LENGTH_M, PIXEL_PITCH_M, DEPTH_M = 0.004, 3.0e-6, 10.0
"""Focal length s, side of a pixel Q, distance Z of the scene (m). FLSimCo's weights (Eq. 11) do not change with a
factor common to all vehicles, so these values only set the scale of the level."""


@dataclass(frozen=True, kw_only=True)
class Camera:
    """An on-board camera. FLSimCo publishes none of these values; all are assumptions.

    Args:
        exposure_s: exposure time H (s), > 0.
        scene_width_m: width W that a training thumbnail spans in the scene (m), > 0.
    """

    exposure_s: Annotated[float, Within(1e-6, 1, "s", "no camera of a vehicle opens shorter or longer")] = 0.01
    scene_width_m: Annotated[float, Within(0.01, 1e5, "m", "from the lens to the horizon")] = 4.5

    def level_px(self, speed_mps: float) -> float:
        """Return the blur level L = H s v / (Q Z) on the sensor (px) at a speed v (m/s).

        H is the exposure, s the focal length, Q the pixel pitch, Z the distance of the scene.

        FLSimCo Eq. 2 prints L = (H s / Q) v, whose unit is metre-pixels: it is this value for an object 1 m away.
        Any factor common to all vehicles cancels in the aggregation weights (Eq. 11).
        """
        return self.exposure_s * FOCAL_LENGTH_M * speed_mps / (PIXEL_PITCH_M * DEPTH_M)

    def kernel_px(self, speed_mps: float, image_px: int) -> float:
        """Return the motion kernel's length L = S v H / W (px) in a thumbnail S = ``image_px`` pixels wide."""
        return image_px * speed_mps * self.exposure_s / self.scene_width_m
