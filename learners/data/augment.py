"""FLSimCo's two random views of an image, batched on the images' device, every draw made per image.

The operations are those of ``torchvision.transforms`` with its default ranges, applied to float images; torchvision
itself draws once per batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

SCALE = (0.08, 1.0)
"""Range of a crop's share of the image's area; torchvision's default."""
RATIO = (3 / 4, 4 / 3)
"""Range of a crop's width over height; torchvision's default."""
_ATTEMPTS = 10
_LUMA = (0.2989, 0.587, 0.114)


def view_one(
    images: Tensor,
    generator: torch.Generator,
    mean: Sequence[float] = (0.0, 0.0, 0.0),
    std: Sequence[float] = (1.0, 1.0, 1.0),
) -> Tensor:
    """Return the first view: random resized crop, horizontal flip (p 0.5), greyscale (p 0.2), normalised.

    Args:
        images: floating point in [0, 1], shape (N, 3, H, W).
        generator: source of all draws, on the images' device or on the CPU (then the draws are moved).
        mean: of each channel, subtracted last; the default leaves the views in [0, 1].
        std: of each channel, divided by last.

    Returns:
        The views, same shape, type and device.
    """
    box = random_boxes(images, generator)
    flipped = _uniform(images, generator) < 0.5
    grey = _uniform(images, generator) < 0.2
    return _normalised(_grey_where(grey, resized_crop(images, box, flipped)), mean, std)


def view_two(
    images: Tensor,
    generator: torch.Generator,
    mean: Sequence[float] = (0.0, 0.0, 0.0),
    std: Sequence[float] = (1.0, 1.0, 1.0),
) -> Tensor:
    """Return the second view: random resized crop, colour jitter (p 0.8), greyscale (p 0.4), normalised.

    The jitter has strengths (0.4, 0.4, 0.4, 0.1); its four operations come in an order of each image's own.
    Arguments and result as for ``view_one``.
    """
    box = random_boxes(images, generator)
    jittered = _uniform(images, generator) < 0.8
    factors = torch.stack([_uniform(images, generator, 0.6, 1.4) for _ in range(3)], dim=1)
    hue = _uniform(images, generator, -0.1, 0.1)
    keys = torch.rand(len(images), 4, generator=generator, device=generator.device).to(images.device)
    grey = _uniform(images, generator) < 0.4
    views = resized_crop(images, box)
    chosen = jittered.nonzero().squeeze(1)
    views[chosen] = color_jitter(views[chosen], factors[chosen], hue[chosen], keys[chosen].argsort(dim=1))
    return _normalised(_grey_where(grey, views), mean, std)


def _uniform(images: Tensor, generator: torch.Generator, low: float = 0.0, high: float = 1.0) -> Tensor:
    """Draw one number in [low, high) per image."""
    draws = torch.rand(len(images), generator=generator, device=generator.device, dtype=images.dtype)
    return (low + (high - low) * draws).to(images.device)


def random_boxes(images: Tensor, generator: torch.Generator) -> Tensor:
    """Draw one crop per image as ``torchvision.transforms.RandomResizedCrop`` does.

    Area uniform in SCALE, log of the ratio uniform in RATIO, the first of ten attempts that fits, else the largest
    centred crop. In whole pixels: top, left, height and width, shape (N, 4).
    """
    height, width = images.shape[-2:]
    draws = torch.rand(4, len(images), _ATTEMPTS, generator=generator, device=generator.device).to(images.device)
    area = height * width * (SCALE[0] + (SCALE[1] - SCALE[0]) * draws[0])
    ratio = torch.exp(math.log(RATIO[0]) + math.log(RATIO[1] / RATIO[0]) * draws[1])
    wide, high = torch.round(torch.sqrt(area * ratio)), torch.round(torch.sqrt(area / ratio))
    fits = (wide >= 1) & (wide <= width) & (high >= 1) & (high <= height)
    top = torch.floor(draws[2] * (height - high + 1)).minimum(height - high)
    left = torch.floor(draws[3] * (width - wide + 1)).minimum(width - wide)
    first = fits.to(torch.uint8).argmax(dim=1)[:, None]
    boxes = torch.stack([attempts.gather(1, first)[:, 0] for attempts in (top, left, high, wide)], dim=1)
    fallback_height = min(height, round(width / RATIO[0]))
    fallback_width = min(width, round(height * RATIO[1]))
    fallback = boxes.new_tensor(
        [
            (height - fallback_height) // 2,
            (width - fallback_width) // 2,
            fallback_height,
            fallback_width,
        ]
    )
    return torch.where(fits.any(dim=1)[:, None], boxes, fallback).to(torch.int64)


def resized_crop(images: Tensor, boxes: Tensor, flipped: Tensor | None = None) -> Tensor:
    """Return each image's crop, bilinearly resized back to the image's size, mirrored where ``flipped``.

    Equals ``torchvision.transforms.functional.resized_crop`` without antialiasing, which for a crop that is enlarged
    or kept equals the antialiased one. Bilinear interpolation is separable: two products with an image's own matrices.

    Args:
        images: floating point, shape (N, C, H, W).
        boxes: top, left, height and width in whole pixels, inside the image, shape (N, 4).
        flipped: which images to mirror left to right, shape (N,); none by default.
    """
    count, channels, height, width = images.shape
    rows = _interpolation(boxes[:, 0], boxes[:, 2], height, images)
    columns = _interpolation(boxes[:, 1], boxes[:, 3], width, images)
    if flipped is not None:
        columns = torch.where(flipped[:, None, None], columns.flip(1), columns)
    across = torch.bmm(images.reshape(count, channels * height, width), columns.mT)
    return torch.matmul(rows[:, None], across.reshape(images.shape))


def _interpolation(start: Tensor, length: Tensor, size: int, like: Tensor) -> Tensor:
    """Return the weights of source pixels (last axis) in target pixels, shape (N, size, size)."""
    pixel = torch.arange(size, dtype=like.dtype, device=like.device)
    first, extent = start.to(like.dtype)[:, None], length.to(like.dtype)[:, None]
    inside = ((pixel + 0.5) * (extent / size) - 0.5).clamp(min=0).minimum(extent - 1)
    return (1 - ((first + inside)[:, :, None] - pixel).abs()).clamp(min=0)


def greyscale(images: Tensor) -> Tensor:
    """Return the luma of RGB images (ITU-R BT.601 weights, as in torchvision), shape (N, 1, H, W)."""
    red, green, blue = images.unbind(dim=1)
    return (_LUMA[0] * red + _LUMA[1] * green + _LUMA[2] * blue)[:, None]


def _grey_where(chosen: Tensor, images: Tensor) -> Tensor:
    return torch.where(chosen[:, None, None, None], greyscale(images), images)


def color_jitter(images: Tensor, factors: Tensor, hue: Tensor, order: Tensor) -> Tensor:
    """Return the images with brightness, contrast, saturation and hue changed, each image in an order of its own.

    Brightness, contrast and saturation blend the image with black, with its mean luma and with its luma; so one
    operation with an image's own target serves all three, and hue alone is applied to the images whose turn it is.

    Args:
        images: floating point in [0, 1], shape (N, 3, H, W).
        factors: of brightness, contrast and saturation, >= 0, 1 changes nothing, shape (N, 3).
        hue: rotation of the hue as a share of the circle, in [-0.5, 0.5], shape (N,).
        order: a permutation of 0 brightness, 1 contrast, 2 saturation, 3 hue for each image, shape (N, 4).
    """
    factors = torch.cat([factors, torch.ones_like(hue)[:, None]], dim=1)  # a blend by 1 leaves hue's turn alone
    for turn in order.unbind(dim=1):
        factor = factors.gather(1, turn[:, None])[:, :, None, None]
        luma = greyscale(images)
        kind = turn[:, None, None, None]
        target = torch.where(kind == 1, luma.mean(dim=(2, 3), keepdim=True), luma * (kind == 2))
        images = (factor * images + (1 - factor) * target).clamp(0, 1)
        rotated = (turn == 3).nonzero().squeeze(1)
        images[rotated] = rotate_hue(images[rotated], hue[rotated])
    return images


def rotate_hue(images: Tensor, hue: Tensor) -> Tensor:
    """Return the images with the hue turned by ``hue`` (share of the circle, shape (N,)); HSV value and chroma stay."""
    value, chroma, sextant = _hue(images)
    turned = sextant + 6 * hue[:, None, None]
    channels = []
    for offset in (5, 3, 1):
        distance = torch.remainder(turned + offset, 6)
        channels.append(value - chroma * torch.minimum(distance, 4 - distance).clamp(0, 1))
    return torch.stack(channels, dim=1)


def _hue(images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return HSV value, chroma, and hue in sextants (0 for greys), each (N, H, W)."""
    red, green, blue = images.unbind(dim=1)
    value, low = images.amax(dim=1), images.amin(dim=1)
    chroma = value - low
    scale = torch.where(chroma > 0, chroma, 1)
    sextant = torch.where(
        value == red,
        (green - blue) / scale,
        torch.where(value == green, 2 + (blue - red) / scale, 4 + (red - green) / scale),
    )
    return value, chroma, sextant


def _normalised(images: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    center = torch.as_tensor(mean, dtype=images.dtype, device=images.device)[:, None, None]
    spread = torch.as_tensor(std, dtype=images.dtype, device=images.device)[:, None, None]
    return (images - center) / spread
