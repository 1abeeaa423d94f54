"""Copies of many tensors between this machine's memory and a device, in one transfer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

_ALIGNED = 64
"""Alignment of tensors in one packed copy (bytes); no kernel needs more."""


def to_device(tensors: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """Return the tensors on a device, in the same order; tensors that are already there are returned themselves.

    The others go in one copy, detached and contiguous. Copies to a CUDA device use pinned memory and return at once; a
    copy
    from it waits for it once.
    """
    away = {name: tensor.detach() for name, tensor in tensors.items() if tensor.device.type != device.type}
    if not away:
        return dict(tensors)
    source = next(iter(away.values())).device
    sizes = [-(-tensor.nbytes // _ALIGNED) * _ALIGNED for tensor in away.values()]
    pinned = device.type == "cuda"
    packed = torch.empty(sum(sizes), dtype=torch.uint8, device=source, pin_memory=pinned)
    torch._foreach_copy_(_pieces(packed, sizes, away), list(away.values()))
    arrived = packed.to(device, non_blocking=source.type == "cpu")
    return {**tensors, **dict(zip(away, _pieces(arrived, sizes, away), strict=True))}


def _pieces(packed: Tensor, sizes: Sequence[int], like: Mapping[str, Tensor]) -> list[Tensor]:
    """Split a row of bytes into tensors with the types and shapes of ``like``."""
    return [
        row[: tensor.nbytes].view(tensor.dtype).view(tensor.shape)
        for row, tensor in zip(torch.split(packed, list(sizes)), like.values(), strict=True)
    ]
