"""Programs, jobs and results in a form that another process can read, on Ray's pickles and object store.

Tensors travel as plain bytes with size and strides: the layout in memory decides in which order a convolution adds, and
so about the last bits. The images that a program draws from are put into the object store once, and every process of a
machine reads them there.
"""

from __future__ import annotations

import io
import pickle
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learners.engines.programs import Program, Tensors, Trained
from vnetsim.errors import RunError, one_line
from vnetsim.plugins import FILE_MODULE

Bytes = NDArray[np.uint8]
Flat = tuple[Bytes, torch.dtype, tuple[int, ...], tuple[int, ...], str]
"""A tensor: its bytes in the order in which they lie, type, size, strides and kind of device."""
Put = Callable[[Any], Any]
"""Puts a value into the object store and returns a reference to it."""


def packed(tensors: Tensors) -> dict[str, Flat]:
    """Return tensors as bytes, which stay those of the tensors where these lie on the CPU."""
    return {name: _flat(tensor.detach()) for name, tensor in tensors.items()}


def unpacked(flat: Mapping[str, Flat]) -> dict[str, Tensor]:
    """Return the tensors of bytes, copied, on the device that ``packed`` found them on."""
    return {name: _tensor(*one) for name, one in flat.items()}


def _flat(tensor: Tensor) -> Flat:
    kind = tensor.device.type
    tensor = tensor.cpu()
    if not (tensor.ndim == 4 and tensor.is_contiguous(memory_format=torch.channels_last)):
        tensor = tensor.contiguous()
    row = tensor.as_strided((tensor.numel(),), (1,))
    return row.view(torch.uint8).numpy(), tensor.dtype, tuple(tensor.shape), tensor.stride(), kind


def _tensor(row: Bytes, dtype: torch.dtype, size: tuple[int, ...], stride: tuple[int, ...], kind: str) -> Tensor:
    own = torch.from_numpy(row.copy()).view(dtype) if row.size else torch.empty(0, dtype=dtype)
    return own.as_strided(size, stride).to(kind)


@dataclass(frozen=True, kw_only=True, eq=False)
class Shipped:
    """A program as it travels.

    Args:
        code: its pickle, with numbers in place of the memory that its tensors lie in.
        storages: references to that memory, by number.
    """

    code: bytes
    storages: Mapping[int, Any]


@dataclass(eq=False)
class Hold:
    """What one engine has put into the object store; memory that several programs share is put there once."""

    put: Put
    _numbers: dict[tuple[int, int], int] = field(default_factory=dict)
    _references: dict[int, Any] = field(default_factory=dict)
    # while they are held nothing else can lie at their addresses
    _held: list[torch.UntypedStorage] = field(default_factory=list)

    def shipped(self, program: Program) -> Shipped:
        """Return a program as it travels.

        Raises:
            RunError: something that it refers to cannot be pickled.
        """
        from ray import cloudpickle  # noqa: PLC0415 - an extra

        for name, module in list(sys.modules.items()):
            if name.startswith(FILE_MODULE):  # no other process can import it
                cloudpickle.register_pickle_by_value(module)
        used: dict[int, Any] = {}

        class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
            def persistent_id(_, value: Any) -> Any:  # noqa: N805
                if not isinstance(value, torch.storage.TypedStorage):
                    return None
                storage = value._untyped_storage  # noqa: SLF001 - as torch.save does
                number = self._number(storage)
                used[number] = self._references[number]
                return number, value.dtype, storage.device.type

        file = io.BytesIO()
        try:
            Pickler(file, protocol=5).dump(program)
        except (TypeError, pickle.PicklingError, AttributeError) as error:
            raise RunError(
                f"--engine ray: the learner's local training cannot be sent to other processes: {one_line(error)}"
            ) from error
        return Shipped(code=file.getvalue(), storages=used)

    def _number(self, storage: torch.UntypedStorage) -> int:
        key = storage.data_ptr(), storage.nbytes()
        if key not in self._numbers:
            self._numbers[key] = number = len(self._numbers)
            row = torch.empty(0, dtype=torch.uint8)
            if storage.nbytes():
                row.set_(storage.cpu())  # type: ignore[no-untyped-call]
            self._references[number] = self.put(row.numpy())
            self._held.append(storage)
        return self._numbers[key]


@dataclass(eq=False)
class Received:
    """Programs and their memory in the process that trains, kept for all rounds."""

    get: Callable[[Any], Any]
    _storages: dict[tuple[int, str], torch.UntypedStorage] = field(default_factory=dict)

    def program(self, shipped: Shipped) -> Program:
        """Return a program that was sent."""

        class Unpickler(pickle.Unpickler):
            def persistent_load(_, pid: Any) -> Any:  # noqa: N805
                number, dtype, kind = pid
                memory = self._storage(number, kind, shipped.storages[number], shared=dtype == torch.uint8)
                typed: Any = torch.storage.TypedStorage
                return typed(wrap_storage=memory, dtype=dtype, _internal=True)

        program: Program = Unpickler(io.BytesIO(shipped.code)).load()
        return program

    def _storage(self, number: int, kind: str, reference: Any, *, shared: bool) -> torch.UntypedStorage:
        """Return memory that was sent; images, into which nobody writes, stay in the object store on a CPU."""
        if (number, kind) not in self._storages:
            row = self.get(reference)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
                memory = torch.from_numpy(row if shared and kind == "cpu" else row.copy())
            self._storages[number, kind] = memory.to(kind).untyped_storage()
        return self._storages[number, kind]


def packed_result(trained: Trained) -> tuple[dict[str, Flat], ...]:
    """Return a result as bytes."""
    return packed(trained.state), packed(trained.optimizer), packed(trained.figures)


def unpacked_result(flat: tuple[Mapping[str, Flat], ...]) -> Trained:
    """Return the result of bytes; its tensors are copies."""
    state, optimizer, figures = (unpacked(part) for part in flat)
    return Trained(state=state, optimizer=optimizer, figures=figures)
