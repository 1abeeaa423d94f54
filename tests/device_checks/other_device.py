"""Tensors that count as lying on another device, for machines that have none.

They hold their numbers in the host's memory and say that their device is ``meta``; every operation is checked as CUDA
would: tensors of one device alone, but for numbers without dimensions and indices. So what a GPU would refuse is found
without one. What it computes, and how fast, is not.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

NAME = "meta"
"""A device that torch knows on every machine, and for whose backward pass it wants no driver."""
MOVES = {torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default}
_WAITS = {torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default, torch.ops.aten.equal.default}
"""Operations for which the host waits: their value, or the shape of their result, depends on the device's values."""
_TESTS = Path(__file__).resolve().parent
reads: Counter[str] = Counter()
"""How often the host has waited for the other device, by file and line; a test clears it."""


def _count_read() -> None:
    """Count a wait at the line of vnetsim or of the learners that asked for it."""
    frame = sys._getframe(1)
    ours = ("/learners/", "/vnetsim/")
    while frame.f_back and (
        Path(frame.f_code.co_filename).parent == _TESTS or not any(part in frame.f_code.co_filename for part in ours)
    ):
        frame = frame.f_back
    reads[f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"] += 1


class There(Tensor):
    """A tensor on the other device."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> Self:
        made: Self = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, held.shape, strides=held.stride(), storage_offset=held.storage_offset(), dtype=held.dtype, device=NAME
        )
        made.held = held
        return made

    def tolist(self) -> Any:
        _count_read()
        return self.held.tolist()

    @classmethod
    def __torch_dispatch__(cls, operation: Any, _types: Any, arguments: Any = (), options: Any = None) -> Any:
        return _run(operation, arguments, options or {})


class _Watching(TorchDispatchMode):
    def __torch_dispatch__(self, operation: Any, _types: Any, arguments: Any = (), options: Any = None) -> Any:
        return _run(operation, arguments, options or {})


def _run(operation: Any, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
    tensors = [one for one in tree_leaves((arguments, dict(options))) if isinstance(one, Tensor)]
    there = [one for one in tensors if isinstance(one, There)]
    here = [one for one in tensors if not isinstance(one, There)]
    if there and operation not in MOVES:
        indexed = operation.__name__.startswith(("index.", "index_put")) and isinstance(arguments[0], There)
        if not indexed and any(one.ndim for one in here):
            shapes = [(str(one.device), tuple(one.shape)) for one in tensors]
            raise RuntimeError(f"{operation}: tensors on two devices: {shapes}")
    wanted = options.get("device")
    given = {**options, **({} if wanted is None else {"device": torch.device("cpu")})}
    if there and (operation in _WAITS or _brings_back(operation, arguments, options)):
        _count_read()
    held, given = tree_map(lambda one: one.held if isinstance(one, There) else one, (arguments, given))
    found = operation(*held, **given)
    if operation is torch.ops.aten.copy_.default:
        return arguments[0]
    if operation is torch.ops.aten._local_scalar_dense.default:
        return found
    known = {id(one.held): one for one in there}  # of an operation in place
    goes = bool(there) if wanted is None else torch.device(wanted).type == NAME

    def placed(one: Any) -> Any:
        if not goes or not isinstance(one, Tensor):
            return one
        return known[id(one)] if id(one) in known else There(one)

    return tree_map(placed, found)


def _brings_back(operation: Any, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> bool:
    """Return whether an operation copies values to the host, or picks elements by a mask on the device."""
    if operation is torch.ops.aten._to_copy.default:
        return options.get("device") is not None and torch.device(options["device"]).type != NAME
    if operation is torch.ops.aten.copy_.default:
        return not isinstance(arguments[0], There)
    masks = [one for one in tree_leaves(arguments[1:]) if isinstance(one, There) and one.dtype == torch.bool]
    return operation.__name__.startswith("index.") and bool(masks)


class _NoGrad:
    """In place of ``torch.inference_mode``."""

    before: bool

    def __enter__(self) -> None:
        self.before = torch.is_grad_enabled()
        torch.set_grad_enabled(False)

    def __exit__(self, *_: object) -> None:
        torch.set_grad_enabled(self.before)


def _moved(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a function that makes tensors of numbers, and brings them to a device where the mode above sees it."""

    def made(*arguments: Any, device: Any = None, **options: Any) -> Tensor:
        found = make(*arguments, **options)
        return found if device is None else found.to(device)

    return made


@contextmanager
def other_device() -> Iterator[str]:
    """Have tensors on a device called ``NAME`` count as lying there."""
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", "for .* to a meta parameter", UserWarning)  # `There` copies
        for name in ("tensor", "as_tensor"):
            stack.enter_context(mock.patch.object(torch, name, _moved(getattr(torch, name))))
        for name in ("__enter__", "__exit__"):  # tensors of the inference mode cannot be held by others
            stack.enter_context(mock.patch.object(torch.inference_mode, name, getattr(_NoGrad, name)))
        # a module converts its parameters by making new ones, not by changing what they hold
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        stack.callback(torch.__future__.set_overwrite_module_params_on_conversion, False)
        stack.enter_context(_Watching())
        yield NAME
