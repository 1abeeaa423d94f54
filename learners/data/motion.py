"""Motion blur: a camera that moves by L pixels while the shutter is open averages the image along that line."""

from __future__ import annotations

import torch
from torch import Tensor


def motion_blur(images: Tensor, length_px: Tensor) -> Tensor:
    """Return the images blurred by a horizontal motion of their own length each.

    The kernel is a line of ``length_px`` pixels, centred so that nothing shifts, with fractional ends and unit sum:
    the weight of a pixel is the part of the line that it covers. Beyond its border an image repeats its edge, so a
    constant image stays constant. Lengths up to 1 px leave an image unchanged, bit for bit.

    Args:
        images: floating point, shape (N, C, H, W).
        length_px: length of each image's motion (px), finite, shape (N,).
    """
    length = length_px.to(device=images.device, dtype=images.dtype).clamp(min=1.0)
    return torch.where((length > 1)[:, None, None, None], _along_rows(images, length), images)


def _overlap(low: Tensor, high: Tensor, length: Tensor) -> Tensor:
    """Return which part of the interval of ``length`` around 0 lies in [low, high]."""
    half = length / 2
    return (torch.minimum(high, half) - torch.maximum(low, -half)).clamp(min=0) / length


def _along_rows(images: Tensor, length: Tensor) -> Tensor:
    """Blur along x: one product with an image's own (W, W) matrix, whose cost does not grow with the length."""
    count, channels, height, width = images.shape
    pixel = torch.arange(width, dtype=images.dtype, device=images.device)
    low, high = pixel - 0.5, pixel + 0.5
    low[0], high[-1] = -torch.inf, torch.inf  # the border pixels stand for everything beyond them
    weights = _overlap(low[:, None] - pixel, high[:, None] - pixel, length[:, None, None])  # (N, source, target)
    return torch.bmm(images.reshape(count, channels * height, width), weights).reshape(images.shape)
