"""Lanes for machines without a GPU: one repeats recorded operations of torch, the other calls the function again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from learners.data.moving import fixed_shapes

UNFIT = {torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default}
"""Operations that read a value, or whose shapes depend on one."""


class Slot(int):
    """Place of a tensor among those that a recording computes."""


class Operations(TorchDispatchMode):
    """Records the operations of a call and repeats them, as a CUDA graph does.

    A tensor that the call does not compute keeps its place: it is read and written where it lies.
    """

    def __init__(self, call: Callable[[], None]) -> None:
        super().__init__()
        self._computed: list[Tensor] = []  # alive, so that no other gets its id
        self._slots: dict[int, Slot] = {}
        self._steps: list[tuple[Any, Any, list[Any], list[Slot]]] = []
        with self:
            call()
        self._computed, self._slots = [], {}

    @property
    def read(self) -> list[Tensor]:
        """The tensors with a place of their own in memory that the operations read or write."""
        return [one for _, _, leaves, _ in self._steps for one in leaves if isinstance(one, Tensor)]

    def __torch_dispatch__(self, operation: Any, _types: Any, arguments: Any = (), options: Any = None) -> Any:
        leaves, spec = tree_flatten((arguments, options or {}))
        masked = operation.__name__.startswith("index") and any(
            getattr(one, "dtype", 0) == torch.bool for one in leaves[1:]
        )
        if operation in UNFIT or masked:
            raise RuntimeError(f"called a synchronizing operation: {operation}")
        given = [self._slots.get(id(one), one) if isinstance(one, Tensor) else one for one in leaves]
        known = {id(one) for one in leaves if isinstance(one, Tensor)}
        found = operation(*arguments, **(options or {}))
        computed = [one for one in tree_leaves(found) if isinstance(one, Tensor) and id(one) not in known]
        for one in computed:
            self._slots[id(one)] = Slot(len(self._computed))
            self._computed.append(one)
        self._steps.append((operation, spec, given, [self._slots.get(id(one), Slot(-1)) for one in tree_leaves(found)]))
        return found

    @torch.no_grad()
    def replay(self) -> None:
        """Repeat the operations."""
        tensors: dict[int, Any] = {}
        for operation, spec, leaves, slots in self._steps:
            there = [tensors[one] if isinstance(one, Slot) else one for one in leaves]
            arguments, options = tree_unflatten(there, spec)
            tensors.update(zip(slots, tree_leaves(operation(*arguments, **options)), strict=True))


class CallingLane:
    """Repeats a function by calling it."""

    usable = True

    def record(self, call: Callable[[], None]) -> Callable[[], None]:
        call()
        call()
        return call

    @contextmanager
    def activate(self) -> Iterator[None]:
        with fixed_shapes():
            yield

    def wait_for_others(self) -> None: ...

    def let_others_wait(self) -> None: ...

    def synchronize(self) -> None: ...

    def free_bytes(self) -> int:
        return 2**40


class OperationsLane(CallingLane):
    """Repeats the operations of a function, on the tensors on which it was recorded."""

    def record(self, call: Callable[[], None]) -> Callable[[], None]:
        call()
        return Operations(call).replay
