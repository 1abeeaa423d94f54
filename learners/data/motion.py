"""Motion blur: a camera that moves by L pixels while the shutter is open averages the image along that line."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional


def motion_blur(images: Tensor, length_px: Tensor, angle_rad: float | Tensor = 0.0) -> Tensor:
    """Return the images blurred by a linear motion of their own length each.

    The kernel is a line of ``length_px`` pixels, centred so that nothing shifts, with fractional ends and unit sum:
    the weight of a pixel is the part of the line that it covers. Beyond its border an image repeats its edge, so a
    constant image stays constant. Lengths up to 1 px leave an image unchanged, bit for bit.

    Args:
        images: floating point, shape (N, C, H, W).
        length_px: length of each image's motion (px), finite, shape (N,).
        angle_rad: direction of the motion from the image's +x axis towards +y, which points down (rad); one for all
            images or shape (N,). The float 0.0, horizontal motion, takes a faster way to the same result.

    Returns:
        The blurred images, same shape, type and device.
    """
    length = length_px.to(device=images.device, dtype=images.dtype).clamp(min=1.0)
    horizontal = isinstance(angle_rad, float | int) and angle_rad == 0
    blurred = _along_rows(images, length) if horizontal else _along_angle(images, length, angle_rad)
    return torch.where((length > 1)[:, None, None, None], blurred, images)


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


def _along_angle(images: Tensor, length: Tensor, angle_rad: float | Tensor) -> Tensor:
    """Blur along any direction: the 1-D kernel's taps, one pixel apart, shared bilinearly among the pixels they hit."""
    count, channels, height, width = images.shape
    if count == 0:
        return images
    angle = torch.as_tensor(angle_rad, dtype=images.dtype, device=images.device).expand(count)
    radius = math.ceil((length.max().item() - 1) / 2)
    taps = torch.arange(-radius, radius + 1, dtype=images.dtype, device=images.device)
    weights = _overlap(taps - 0.5, taps + 0.5, length[:, None])  # (N, taps)
    across = _hat(taps[:, None] * torch.cos(angle)[:, None, None] - taps)  # (N, taps, K)
    down = _hat(taps[:, None] * torch.sin(angle)[:, None, None] - taps)
    kernels = torch.einsum("nt,nty,ntx->nyx", weights, down, across)
    padded = functional.pad(images, (radius, radius, radius, radius), mode="replicate")
    stacked = padded.reshape(1, count * channels, height + 2 * radius, width + 2 * radius)
    filters = kernels.repeat_interleave(channels, dim=0)[:, None]
    return functional.conv2d(stacked, filters, groups=count * channels).reshape(images.shape)


def _hat(offset: Tensor) -> Tensor:
    """Return bilinear interpolation's weight of a pixel at a distance (px)."""
    return (1 - offset.abs()).clamp(min=0)
