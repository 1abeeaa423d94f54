"""Float32 arithmetic of a device, which the experiment sets for a run instead of inheriting it from the process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

from vnetsim.errors.bounds import TRAINS

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
"""Environment variable that cuBLAS needs for reproducible results; cuBLAS reads it at its first use."""


@dataclass(frozen=True, kw_only=True)
class Arithmetic:
    """Precision and order of sums on the device; in torch both belong to the whole process.

    Args:
        tf32: whether a CUDA device may compute float32 products and convolutions with TF32, whose factors have 10 bits
            after the point in place of 23. torch by itself allows it for convolutions and not for products. Without
            effect on a CPU.
        deterministic: whether torch uses only algorithms that give the same bits each time and refuses an operation
            without one. On a CPU all algorithms used here do, so it changes no bit. Its cost was not measured.
    """

    tf32: Annotated[bool, TRAINS] = False
    deterministic: Annotated[bool, TRAINS] = False

    @contextmanager
    def applied(self) -> Iterator[None]:
        """For a ``with`` block: set this arithmetic, dtype float32 and the CPU in the process, then restore them."""
        import torch  # noqa: PLC0415

        products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
        # benchmark finds the fastest algorithm by trial, which may be a different one each time
        benchmark = convolutions.benchmark and not self.deterministic
        flags = [
            (products, "allow_tf32", self.tf32),
            (convolutions, "allow_tf32", self.tf32),
            (convolutions, "deterministic", self.deterministic),
            (convolutions, "benchmark", benchmark),
            # with deterministic algorithms torch fills all memory, for those who read before they write
            (torch.utils.deterministic, "fill_uninitialized_memory", False),
        ]
        before = [getattr(owner, name) for owner, name, _ in flags]
        enabled = torch.are_deterministic_algorithms_enabled()
        warns = torch.is_deterministic_algorithms_warn_only_enabled()
        workspace = os.environ.get(WORKSPACE)
        dtype, place = torch.get_default_dtype(), torch.get_default_device()
        torch.set_default_dtype(torch.float32)  # learners rely on the defaults, which a notebook may have changed
        if place.type != "cpu":
            torch.set_default_device(None)
        for owner, name, value in flags:
            setattr(owner, name, value)
        _choose_algorithms(deterministic=self.deterministic, warn_only=False)
        if self.deterministic:
            os.environ.setdefault(WORKSPACE, ":4096:8")
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)
            if place.type != "cpu":
                torch.set_default_device(place)
            for (owner, name, _), value in zip(flags, before, strict=True):
                setattr(owner, name, value)
            _choose_algorithms(deterministic=enabled, warn_only=warns)
            if workspace is None:
                os.environ.pop(WORKSPACE, None)


def _choose_algorithms(*, deterministic: bool, warn_only: bool) -> None:
    """Set torch's two flags of deterministic algorithms, only if they differ: the call imports torch's compiler."""
    import torch  # noqa: PLC0415

    present = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    if present != (deterministic, warn_only):
        torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
