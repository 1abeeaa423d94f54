"""How a device computes in float32, said by the experiment and set for a run, instead of inherited from torch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

from vnetsim.errors.bounds import TRAINS

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
"""Environment variable without which cuBLAS does not promise the same bits; it is read at its first use."""


@dataclass(frozen=True, kw_only=True)
class Arithmetic:
    """Precision and order of sums on the device; torch keeps both for the whole process.

    Args:
        tf32: whether a CUDA device may compute float32 products and convolutions with TF32, whose factors have 10 bits
            after the point in place of 23. torch by itself allows it for convolutions and not for products. Without
            effect on a CPU.
        deterministic: whether torch takes algorithms alone that give the same bits each time, as on a CPU all do here,
            and refuses an operation that has none; on a CPU it changes no bit. What it costs was not measured.
    """

    tf32: Annotated[bool, TRAINS] = False
    deterministic: Annotated[bool, TRAINS] = False

    @classmethod
    def present(cls) -> Arithmetic:
        """Return what this process computes with; TF32 only where both products and convolutions may use it."""
        import torch  # noqa: PLC0415 - the traffic command does without

        allowed = torch.backends.cuda.matmul.allow_tf32 and torch.backends.cudnn.allow_tf32
        return cls(tf32=allowed, deterministic=torch.are_deterministic_algorithms_enabled())

    def set(self) -> Callable[[], None]:
        """Compute so from now on, in all threads; return what puts everything back as it was."""
        import torch  # noqa: PLC0415

        products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
        flags = [
            (products, "allow_tf32"),
            *((convolutions, name) for name in ("allow_tf32", "deterministic", "benchmark")),
        ]
        before = [getattr(owner, name) for owner, name in flags]
        enabled = torch.are_deterministic_algorithms_enabled()
        warns = torch.is_deterministic_algorithms_warn_only_enabled()
        workspace = os.environ.get(WORKSPACE)
        dtype, place = torch.get_default_dtype(), torch.get_default_device()

        def restore() -> None:
            torch.set_default_dtype(dtype)
            if place.type != "cpu":
                torch.set_default_device(place)
            for (owner, name), value in zip(flags, before, strict=True):
                setattr(owner, name, value)
            _choose_algorithms(deterministic=enabled, warn_only=warns)
            if workspace is None:
                os.environ.pop(WORKSPACE, None)

        torch.set_default_dtype(torch.float32)  # learners name neither: a notebook may have set others
        if place.type != "cpu":
            torch.set_default_device(None)
        # the fastest of several algorithms, found by trial, is not the same one each time
        values = self.tf32, self.tf32, self.deterministic, convolutions.benchmark and not self.deterministic
        for (owner, name), value in zip(flags, values, strict=True):
            setattr(owner, name, value)
        _choose_algorithms(deterministic=self.deterministic, warn_only=False)
        if self.deterministic:
            os.environ.setdefault(WORKSPACE, ":4096:8")
        return restore

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Compute so within; afterwards all is as it was."""
        restore = self.set()
        try:
            yield
        finally:
            restore()


def _choose_algorithms(*, deterministic: bool, warn_only: bool) -> None:
    """Have torch take deterministic algorithms or not; where it does so already, its compiler need not be loaded."""
    import torch  # noqa: PLC0415

    present = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    if present != (deterministic, warn_only):
        torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
