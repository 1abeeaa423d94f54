"""FLSimCo's two random views of an image, computed in batches on the images' device; each image has its own draws.

The operations are those of ``torchvision.transforms`` with its default ranges, for float images; torchvision itself
draws once per batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from learners.data.moving import has_fixed_shapes, to_device

SCALE = (0.08, 1.0)
"""Range of a crop's share of the image's area; torchvision's default."""
RATIO = (3 / 4, 4 / 3)
"""Range of a crop's width over height; torchvision's default."""
HUE = 3
"""Number of the change of hue in the order of a colour jitter."""
NUMBERS_ONE, NUMBERS_TWO = 42, 50
"""Uniform numbers that the draws of an image's first and second view take."""
_ATTEMPTS = 10
_OF_BOX = 4 * _ATTEMPTS
_LUMA = (0.2989, 0.587, 0.114)
Channels = Sequence[float] | Tensor
"""One value a channel; a tensor has as many elements, and is best on the images' device."""


def first_view_draws(numbers: Tensor, size: Sequence[int]) -> dict[str, Tensor]:
    """Return ``box``, ``flipped`` (p 0.5), ``grey`` (p 0.2) of first views: random resized crop, mirror, greyscale.

    ``numbers`` are independent and uniform in [0, 1), on the CPU, shape (batches, ``NUMBERS_ONE`` * images); ``size``
    is height and width of the images. Draws have the shape (batches, images, ...); no batch depends on another.
    """
    crops, flipped, grey = _split_numbers(numbers, [_OF_BOX, 1, 1])
    return {"box": random_boxes(crops, size), "flipped": flipped < 0.5, "grey": grey < 0.2}


def second_view_draws(numbers: Tensor, size: Sequence[int]) -> dict[str, Tensor]:
    """Return ``box``, ``jittered`` (p 0.8), ``factors``, ``hue``, ``order``, ``grey`` (p 0.4) of second views; no flip.

    The colour jitter has strengths (0.4, 0.4, 0.4, 0.1); the order of its four operations is drawn for each image.
    Arguments and shapes are those of ``first_view_draws``, with ``NUMBERS_TWO`` numbers an image.
    """
    crops, jittered, factors, hue, order, grey = _split_numbers(numbers, [_OF_BOX, 1, 3, 1, 4, 1])
    return {
        "box": random_boxes(crops, size),
        "jittered": jittered < 0.8,
        "factors": _scale(factors.reshape(len(numbers), 3, -1), 0.6, 1.4).mT,
        "hue": _scale(hue, -0.1, 0.1),
        "order": order.reshape(len(numbers), -1, 4).argsort(dim=2),
        "grey": grey < 0.4,
    }


def _split_numbers(numbers: Tensor, per_image: Sequence[int]) -> Sequence[Tensor]:
    """Split each batch's numbers into one piece for each entry of ``per_image``, with that many numbers an image."""
    count = numbers.shape[1] // sum(per_image)
    return torch.split(numbers, [one * count for one in per_image], dim=1)


def apply_view(images: Tensor, draws: Mapping[str, Tensor], mean: Channels, std: Channels) -> Tensor:
    """Return the normalised views of images, given the draws of first or second views.

    Images are floating point in [0, 1], shape (N, 3, H, W), and are not changed; they may belong to several vehicles.
    ``mean`` is subtracted from each channel last, then the channel is divided by ``std``. With fixed shapes (see
    ``has_fixed_shapes``) an operation computes all images, otherwise only the images that it changes; the result is the
    same bit for bit on the CPU.
    """
    there = to_device(draws, images.device)
    views = resized_crop(images, there["box"], there.get("flipped"))
    change = _change_masked if has_fixed_shapes(images.device) else _change_indexed
    if "jittered" in draws:
        drawn = [there["factors"].to(images.dtype), there["hue"].to(images.dtype), there["order"]]
        views = change(views, there["jittered"], color_jitter, *drawn)
    views = change(views, there["grey"], lambda some: greyscale(some).expand(-1, 3, -1, -1))
    mean, std = (torch.as_tensor(values, dtype=images.dtype, device=images.device) for values in (mean, std))
    # in place: allocating memory costs more than the arithmetic
    return views.sub_(mean.view(-1, 1, 1)).div_(std.view(-1, 1, 1))


def _change_indexed(images: Tensor, which: Tensor, change: Callable[..., Tensor], *given: Tensor) -> Tensor:
    """Change, in place, the images where ``which`` is True, given their rows of ``given``; return all images."""
    rows = which.nonzero()[:, 0]
    images[rows] = change(images[rows], *(one[rows] for one in given))
    return images


def _change_masked(images: Tensor, which: Tensor, change: Callable[..., Tensor], *given: Tensor) -> Tensor:
    """Return what ``_change_indexed`` returns, as new images; computes the change of all images."""
    return torch.where(which[:, None, None, None], change(images, *given), images)


def _scale(shares: Tensor, low: float, high: float) -> Tensor:
    """Return numbers in [0, 1) scaled to [low, high)."""
    return low + (high - low) * shares


def random_boxes(numbers: Tensor, size: Sequence[int]) -> Tensor:
    """Return one crop per image of ``size`` (height, width) as ``torchvision.transforms.RandomResizedCrop`` draws it.

    Area uniform in SCALE, log of the ratio uniform in RATIO, the first of ten attempts that fits, else the largest
    centred crop. ``numbers`` are uniform in [0, 1), shape (batches, 40 * images). The result is top, left, height and
    width in whole pixels, shape (batches, images, 4).
    """
    height, width = size
    draws = numbers.reshape(len(numbers), 4, -1, _ATTEMPTS)
    area = height * width * _scale(draws[:, 0], *SCALE)
    ratio = torch.exp(math.log(RATIO[0]) + math.log(RATIO[1] / RATIO[0]) * draws[:, 1])
    # heights and widths together, in few operations: on small batches each takes longer than its arithmetic
    sides, most = torch.stack([area / ratio, area * ratio], 1).sqrt_().round_(), draws.new_tensor(size)[:, None, None]
    fits = ((sides >= 1) & (sides <= most)).all(dim=1)
    first = fits.view(torch.uint8).argmax(dim=2)[:, None, :, None].expand(-1, 2, -1, -1)
    sides, corners = sides.gather(3, first), draws[:, 2:].gather(3, first)
    corners = corners.mul_(most - sides + 1).floor_()
    boxes = torch.cat([corners, sides], dim=1)[..., 0].mT
    high_most, wide_most = min(height, round(width / RATIO[0])), min(width, round(height * RATIO[1]))
    central = boxes.new_tensor([(height - high_most) // 2, (width - wide_most) // 2, high_most, wide_most])
    return torch.where(fits.any(dim=2)[..., None], boxes, central).to(torch.int64)


def resized_crop(images: Tensor, boxes: Tensor, flipped: Tensor | None = None) -> Tensor:
    """Return each image's crop, bilinearly resized back to the image's size, mirrored where ``flipped``.

    Equals ``torchvision.transforms.functional.resized_crop`` without antialiasing. Images are floating point, shape (N,
    C, H, W). ``boxes`` are top, left, height and width in whole pixels, inside the image, shape (N, 4); ``flipped``
    says which images to mirror left to right, shape (N,), none by default.
    """
    count, _, height, width = images.shape
    rows = _source_positions(boxes[:, 0], boxes[:, 2], height, images)
    columns = _source_positions(boxes[:, 1], boxes[:, 3], width, images)
    if flipped is not None:
        columns = torch.where(flipped[:, None], columns.flip(1), columns)
    grid = torch.stack(
        [columns[:, None, :].expand(count, height, width), rows[:, :, None].expand(count, height, width)], dim=3
    )
    return functional.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)


def _source_positions(start: Tensor, length: Tensor, size: int, like: Tensor) -> Tensor:
    """Return where in the image each pixel of a resized crop is read along an axis, in [-1, 1], shape (N, size)."""
    pixel = torch.arange(size, dtype=like.dtype, device=like.device)
    first, extent = start.to(like.dtype)[:, None], length.to(like.dtype)[:, None]
    inside = ((pixel + 0.5) * (extent / size) - 0.5).clamp(min=0).minimum(extent - 1)
    return (2 * (first + inside) + 1) / size - 1


def greyscale(images: Tensor) -> Tensor:
    """Return the luma of RGB images (ITU-R BT.601, as torchvision rounds its weights), shape (N, 1, H, W)."""
    red, green, blue = images.unbind(dim=1)
    return (red * _LUMA[0]).add_(green, alpha=_LUMA[1]).add_(blue, alpha=_LUMA[2])[:, None]


def color_jitter(images: Tensor, factors: Tensor, hue: Tensor, order: Tensor) -> Tensor:
    """Return the images with brightness, contrast, saturation and hue changed, each image in its own ``order``.

    Brightness, contrast and saturation blend the image with black, with its mean luma and with its luma, so one
    operation with a target per image does all three; hue is then changed for the images whose turn it is.

    Images are floating point in [0, 1], shape (N, 3, H, W). ``factors``, shape (N, 3), of brightness, contrast and
    saturation are >= 0; 1 changes nothing. ``hue`` is a rotation as a share of the circle, in [-0.5, 0.5], shape (N,).
    ``order`` is each image's permutation of 0 brightness, 1 contrast, 2 saturation, 3 hue, shape (N, 4).
    """
    factors = torch.cat([factors, torch.ones_like(hue)[:, None]], dim=1)  # a blend by 1 changes nothing
    images = images.clone()
    if not has_fixed_shapes(images.device):
        for turn in order.unbind(dim=1):
            images = _blend(images, turn, factors)
            images = _change_indexed(images, turn == HUE, rotate_hue, hue)
        return images
    # blends before hue, hue of all images at once, and blends after it: as few operations as possible
    places = order.argsort(dim=1)  # where each kind is in its image's order
    before = places < places[:, HUE:]
    for turn in order[:, :-1].unbind(dim=1):
        images = _blend(images, turn, torch.where(before, factors, 1))
    images = rotate_hue(images, hue)
    for turn in order[:, 1:].unbind(dim=1):
        images = _blend(images, turn, torch.where(before, 1, factors))
    return images


def _blend(images: Tensor, kind: Tensor, factors: Tensor) -> Tensor:
    """Change each image's brightness (``kind`` 0), contrast (1), saturation (2) or nothing (3) in place; return all."""
    factor = factors.gather(1, kind[:, None])[:, :, None, None]
    kind = kind[:, None, None, None]
    luma = greyscale(images)
    target = torch.where(kind == 1, luma.mean(dim=(2, 3), keepdim=True), luma * (kind == 2))
    return images.mul_(factor).add_(target.mul_(1 - factor)).clamp_(0, 1)


def rotate_hue(images: Tensor, hue: Tensor) -> Tensor:
    """Return images in [0, 1] with their hue rotated by shares of the circle, shape (N,); HSV value and chroma stay."""
    red, green, blue = images.unbind(dim=1)
    value, low = images.amax(dim=1), images.amin(dim=1)
    chroma = value - low
    scale = torch.where(chroma > 0, chroma, 1)
    sextant = torch.where(
        value == red,
        (green - blue).div_(scale),
        torch.where(value == green, (blue - red).div_(scale).add_(2), (red - green).div_(scale).add_(4)),
    )
    sextant += 6 * hue[:, None, None]
    sextant -= torch.floor(sextant / 6).mul_(6)  # several times faster on the CPU than remainder
    shares = (
        (sextant - 3).abs_().sub_(1),
        (sextant - 2).abs_().neg_().add_(2),
        (sextant - 4).abs_().neg_().add_(2),
    )
    return torch.stack([share.clamp_(0, 1).mul_(chroma).add_(low) for share in shares], dim=1)
