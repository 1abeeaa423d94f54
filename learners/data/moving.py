"""Tensors on their way between this machine's memory and a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

_ALIGNED = 64
"""Bytes at whose multiples tensors begin in a copy of many: more than any kernel asks for."""


def moved(tensors: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """Return tensors on a device, in their order; those that lie there already are returned themselves.

    All others go in one copy, detached and in the plain memory layout. A CUDA device is sent them from pinned memory,
    so that this thread goes on at once; to copy from it, the device is waited for once.
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
    """Return tensors of given types and shapes whose bytes lie one after the other in a row, each in so many."""
    return [
        row[: tensor.nbytes].view(tensor.dtype).view(tensor.shape)
        for row, tensor in zip(torch.split(packed, list(sizes)), like.values(), strict=True)
    ]
