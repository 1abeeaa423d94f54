"""Copies of many tensors between memory and a device in one transfer, and computations of fixed shapes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn

_ALIGNED = 64
"""Alignment of tensors in one packed copy (bytes); no kernel needs more."""
_FIXED: ContextVar[bool] = ContextVar("fixed_shapes", default=False)


@contextmanager
def fixed_shapes() -> Iterator[None]:
    """Make ``has_fixed_shapes`` true for the CPU in this thread's ``with`` block: code computes as on a GPU."""
    token = _FIXED.set(True)
    try:
        yield
    finally:
        _FIXED.reset(token)


def has_fixed_shapes(device: torch.device) -> bool:
    """Return whether shapes must not depend on values: on a GPU always, on a CPU only in ``fixed_shapes``."""
    return device.type != "cpu" or _FIXED.get()


def to_device(tensors: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """Return the tensors on a device, in the same order; tensors on a device of its type are not copied.

    The others, all on one device, go in one copy, detached and contiguous, and share its memory. A copy to a CUDA
    device uses pinned memory and returns before it has ended; a copy from it waits once.
    """
    away = {name: tensor.detach() for name, tensor in tensors.items() if tensor.device.type != device.type}
    if not away:
        return dict(tensors)
    packed = pack(away, pinned=device.type == "cuda")
    arrived = packed.to(device, non_blocking=packed.device.type == "cpu")
    return {**tensors, **unpack(arrived, away)}


def pack(tensors: Mapping[str, Tensor], *, pinned: bool = False) -> Tensor:
    """Return a copy of tensors, all on one device, as one row of bytes there, which ``unpack`` splits again.

    With ``pinned``, of tensors on the CPU, the row is in page-locked memory, for a copy to CUDA that does not wait.
    """
    device = next((tensor.device for tensor in tensors.values()), None)
    packed = torch.empty(sum(packed_sizes(tensors)), dtype=torch.uint8, device=device, pin_memory=pinned)
    copy_each(list(unpack(packed, tensors).values()), list(tensors.values()))
    return packed


def copy_each(places: Sequence[Tensor], tensors: Sequence[Tensor]) -> None:
    """Copy each tensor into the place of the same index; on a GPU in one kernel for each pair of types and layout."""
    groups: dict[object, tuple[list[Tensor], list[Tensor]]] = {}
    for place, tensor in zip(places, tensors, strict=True):
        kind = place.device.type != "cpu" and (place.dtype, tensor.dtype, _strides(place) == _strides(tensor))
        into, of = groups.setdefault(kind, ([], []))
        into.append(place)
        of.append(tensor)
    for into, of in groups.values():
        torch._foreach_copy_(into, of)


def copy_into(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Copy a state, with at least a module's names and on its device, into the module; ValueError for other shapes."""
    places = module.state_dict()
    if wrong := [name for name in places if state[name].shape != places[name].shape]:
        raise ValueError(f"{wrong[0]}: shape {tuple(state[wrong[0]].shape)}, expected {tuple(places[wrong[0]].shape)}")
    copy_each(list(places.values()), [state[name].detach() for name in places])


def _strides(tensor: Tensor) -> list[int]:
    """Return the strides of the dimensions that have more than one element."""
    return [stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size != 1]


def unpack(packed: Tensor, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Undo ``pack``: return tensors with the names, types and shapes of ``like``, as views of ``packed``.

    Rows of shape (..., bytes) give tensors with these leading dimensions before the shapes of ``like``.
    """
    pieces = torch.split(packed, packed_sizes(like), dim=-1)
    return {
        name: piece[..., : tensor.nbytes].view(tensor.dtype).view((*packed.shape[:-1], *tensor.shape))
        for piece, (name, tensor) in zip(pieces, like.items(), strict=True)
    }


def packed_sizes(tensors: Mapping[str, Tensor]) -> list[int]:
    """Return the bytes of each tensor in a packed row, padded so that each begins aligned."""
    return [-(-tensor.nbytes // _ALIGNED) * _ALIGNED for tensor in tensors.values()]
