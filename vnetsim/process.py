"""Set-up of worker processes (OpenMP, malloc), and how often a dead worker is restarted."""

from __future__ import annotations

import os
import sys
import warnings

from vnetsim.errors import InputError

RETRIES = 3
"""How often a cell, or a vehicle's training, is repeated when its worker died: the work itself may be the cause."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Numbers of glibc's options, from malloc.h."""

_USE = {"begun": False, "forked": False}
"""Whether vnetsim has computed in this process; whether this process is a fork of one in which it had."""
os.register_at_fork(after_in_child=lambda: _USE.update(forked=_USE["begun"]))


def refuse_forked() -> None:
    """Raise InputError in a fork of a process that has called this function; to be called before any computation.

    In such a fork, polars and torch would wait for their threads forever.
    """
    if _USE["forked"]:
        raise InputError(
            "this process was forked from one that had used vnetsim, and would wait for its threads for ever; start "
            "processes with multiprocessing.get_context('spawn')."
        )
    _USE["begun"] = True


def prepare_process() -> None:
    """Set up a process of our own (not a notebook's) to train: OpenMP, warnings, malloc; call before torch loads."""
    # On a busy machine, threads that spin for milliseconds while they wait make a run several times slower;
    # spinning for microseconds costs nothing. GNU OpenMP reads this once, when torch loads it.
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")
    # this process imports no packages of the user's that ours could hide; see own_packages
    warnings.filterwarnings("ignore", message=r"'import (learners|analysis)' gives vnetsim's package")
    keep_freed_memory()


def keep_freed_memory() -> None:
    """Let glibc keep freed memory of this process for the next arrays; does nothing with other C libraries."""
    # By default glibc returns large arrays (32 MiB at most) to the system. In a step of ResNet-18 on a CPU that costs
    # up to a third of the time. Peak memory grows a little (from 2.2 to 2.5 GiB in a step of 128 images).
    import ctypes  # noqa: PLC0415 - keeps importing vnetsim quick

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        for option in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD):
            mallopt(option, 2**31 - 1)
