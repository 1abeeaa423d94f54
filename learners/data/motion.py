"""Motion blur: a camera that moves by L pixels while the shutter is open averages the image along that line."""

from __future__ import annotations

import torch
from torch import Tensor


def motion_blur(images: Tensor, length_px: Tensor) -> Tensor:
    """Return images, floating point, (N, C, H, W), each blurred by a horizontal motion of its own finite length, (N,).

    The kernel is a line of ``length_px`` pixels, centred so that nothing shifts, with fractional ends and unit sum: a
    pixel's weight is the part of the line inside it. The edge pixels repeat beyond the border, so a constant image
    stays constant. Lengths up to 1 px leave an image unchanged, bit for bit.
    """
    count, channels, height, width = images.shape
    length = length_px.to(device=images.device, dtype=images.dtype).clamp(min=1.0)[:, None, None]
    pixel = torch.arange(width, dtype=images.dtype, device=images.device)
    low, high = pixel - 0.5, pixel + 0.5
    low[:1].fill_(-torch.inf)  # the border pixels extend beyond the image
    high[-1:].fill_(torch.inf)
    # the part of the line around each target inside each source pixel, shape (N, source, target)
    covered = torch.minimum(high[:, None] - pixel, length / 2) - torch.maximum(low[:, None] - pixel, -length / 2)
    weights = covered.clamp(min=0) / length
    # one product with an image's own (W, W) matrix, whose cost does not grow with the length
    blurred = torch.bmm(images.reshape(count, channels * height, width), weights).reshape(images.shape)
    return torch.where(length[..., None] > 1, blurred, images)
