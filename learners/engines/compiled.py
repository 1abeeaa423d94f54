"""``learning.engine = compiled``: functions of a step whose operations ``torch.compile`` joins into few kernels."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib.util import find_spec
from typing import ParamSpec, TypeVar

import torch

from vnetsim.errors import InputError, RunError

Given = ParamSpec("Given")
Result = TypeVar("Result")

COMPILED = "compiled"
"""Name of the setting's value."""
BACKEND = "inductor"
MOST_COMPILED = 64
"""Shapes and programs that are compiled; torch computes later ones without compilation."""


def require_compiler(device: torch.device) -> None:
    """Raise InputError unless ``torch.compile`` can make kernels for the device."""
    if device.type != "cuda":
        raise InputError(
            f"learning.engine = {COMPILED}: is for a GPU, and this run trains on {device.type}; take auto, or "
            "--device cuda."
        )
    if find_spec("triton") is None:
        raise InputError(
            f"learning.engine = {COMPILED}: the Python package triton, which torch.compile needs for a GPU, is not "
            "installed; install it, or take auto."
        )


def compile_call(call: Callable[Given, Result]) -> Callable[Given, Result]:
    """Return a function with the results of ``call`` up to rounding, compiled for each shape of its tensors.

    When called, it raises RunError if torch cannot compile. The process's limit of compilations rises to MOST_COMPILED.
    """
    from torch import _dynamo as dynamo  # noqa: PLC0415 - takes seconds to import

    dynamo.config.recompile_limit = max(MOST_COMPILED, dynamo.config.recompile_limit)
    fast = torch.compile(call, dynamic=False, backend=BACKEND)

    @wraps(call)
    def run(*arguments: Given.args, **named: Given.kwargs) -> Result:
        """Return the compiled call's result; RunError if torch cannot compile it."""
        with convert_compile_errors(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The .grad attribute of a Tensor that is not a leaf")  # torch's own
            return fast(*arguments, **named)

    return run


@contextmanager
def convert_compile_errors() -> Iterator[None]:
    """Raise RunError for torch's compile errors in the ``with`` block, also a backward pass's; pass on other errors."""
    try:
        yield
    except Exception as error:
        dynamo = sys.modules.get("torch._dynamo")  # not loaded: nothing was compiled
        if dynamo is None or not isinstance(error, dynamo.exc.TorchDynamoException):
            raise
        said = " ".join(str(error).strip().partition("\n\n")[0].split())
        raise RunError(f"learning.engine = {COMPILED}: torch.compile failed ({said}); take auto.") from error
