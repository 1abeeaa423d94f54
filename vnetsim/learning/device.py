"""The device a learner runs on: its choice, cores and memory, and whether tensors on it are finite."""

from __future__ import annotations

import math
import os
import resource
import sys
from collections.abc import Collection, Sequence
from typing import Any

from vnetsim.errors import InputError

CORES = "VNETSIM_CORES"
"""Environment variable: how many cores local training may use; without it, as many as torch has threads."""


def resolve_device(name: str) -> str:
    """Return ``"cpu"``, ``"cuda"`` or ``"cuda:N"``; ``auto`` is CUDA if available. InputError if other or missing."""
    import torch  # noqa: PLC0415 - two seconds that only runs with a learner spend; so are the imports below

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cpu":
        return name
    kind, _, index = name.partition(":")
    if kind != "cuda" or (":" in name and not index.isdigit()):
        raise InputError(f"--device {name}: must be auto, cpu, cuda or cuda:N.")
    if not torch.cuda.is_available():
        raise InputError(f"--device {name}: no CUDA device is available here. Use --device cpu or auto.")
    if index and int(index) >= torch.cuda.device_count():
        raise InputError(f"--device {name}: this machine has {torch.cuda.device_count()} CUDA device(s).")
    return name


def device_record(device: str) -> dict[str, object]:
    """Return the manifest's entry on a resolved device: its name, hardware, and the number of torch's CPU threads."""
    import torch  # noqa: PLC0415

    hardware = torch.cuda.get_device_name(device) if device.startswith("cuda") else "CPU"
    return {"name": device, "hardware": hardware, "threads": torch.get_num_threads()}


def cores() -> int:
    """Return how many vehicles the CPU may train at once: environment variable ``CORES`` if > 0, or torch's threads."""
    import torch  # noqa: PLC0415

    given = os.environ.get(CORES, "")
    return int(given) if given.isdecimal() and int(given) else torch.get_num_threads()


OUT_OF_MEMORY = (
    "can't allocate memory",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED",
)
"""Texts of torch's and its libraries' RuntimeErrors when memory does not suffice."""


def out_of_memory(error: BaseException) -> bool:
    """Return whether an error, or an error in its chain of causes, is a lack of memory on any device."""
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    said = isinstance(error, RuntimeError) and any(text in str(error) for text in OUT_OF_MEMORY)
    return named or said or (error.__cause__ is not None and out_of_memory(error.__cause__))


def peak_memory() -> dict[str, int]:
    """Return the peak memory of this process so far (bytes): ``host``, and ``device``, the largest, if it used CUDA."""
    unit = 1 if sys.platform == "darwin" else 1024  # of getrusage: bytes on macOS, kilobytes on Linux
    peak = {"host": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit}
    torch = sys.modules.get("torch")  # a process that has not loaded it has used no device
    if torch is not None and torch.cuda.is_initialized():
        peak["device"] = max(torch.cuda.max_memory_allocated(i) for i in range(torch.cuda.device_count()))
    return peak


def all_finite(groups: Sequence[Collection[Any]]) -> list[bool]:
    """Return for each group of torch's tensors whether all values are finite; True for integers and empty groups."""
    return [math.isfinite(modulus) for modulus in read([largest_modulus(group) for group in groups])]


def largest_modulus(group: Collection[Any]) -> Any:
    """Return the largest modulus of all float values, a float64 tensor () on their device: NaN for NaN, 0 for none."""
    import torch  # noqa: PLC0415

    tensors = [one for one in group if (one.is_floating_point() or one.is_complex()) and one.numel()]
    if all(one.device.type == "cpu" for one in tensors):  # where the norm takes four times as long
        real = [torch.view_as_real(one) if one.is_complex() else one for one in tensors]
        ends: Sequence[Any] = [end for one in real for end in torch.aminmax(one)] or [torch.zeros(())]
    else:
        ends = torch._foreach_norm(tensors, math.inf)  # noqa: SLF001
    return torch.stack([end.to(ends[0].device) for end in ends]).double().abs().amax()


def read(values: Sequence[Any]) -> list[float]:
    """Return the values of torch's tensors of shape (), in order; waits for the device only once."""
    import torch  # noqa: PLC0415

    if not values:
        return []
    numbers: list[float] = torch.stack([one.to(values[0].device, torch.float64) for one in values]).tolist()
    return numbers
