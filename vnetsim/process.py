"""What a process that vnetsim has for itself is set up with before it trains, and what follows when it dies."""

from __future__ import annotations

import os
import sys
import warnings

from vnetsim.errors import InputError

RETRIES = 3
"""How often a cell, or a vehicle's training, is begun again when its worker died: it may be what workers die of."""

_LOADED_BYTES = 1.25e9
"""What loading torch and the libraries beside it takes: .83 GB with two cores, and some for each thread more."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Numbers of glibc's options, from malloc.h."""


_USE = {"begun": False, "forked": False}
"""Whether vnetsim computed in this process, and whether the process was forked from one in which it had."""
os.register_at_fork(after_in_child=lambda: _USE.update(forked=_USE["begun"]))


def refuse_forked() -> None:
    """Refuse to compute in a process forked from one that had: threads of polars and torch are waited for in vain.

    Raises:
        InputError: says how to start a process that can.
    """
    if _USE["forked"]:
        raise InputError(
            "this process was forked from one that had used vnetsim, and would wait for its threads for ever; start "
            "processes with multiprocessing.get_context('spawn')."
        )
    _USE["begun"] = True


def refuse_little_memory() -> None:
    """Refuse to load torch where it may not have the memory: libraries in C++ then end the process without a word.

    Raises:
        InputError: the process's limit is below what loading takes.
    """
    if sys.platform == "win32" or "torch" in sys.modules:
        return
    import resource  # noqa: PLC0415 - not on Windows

    for kind, option in ((resource.RLIMIT_DATA, "-d"), (resource.RLIMIT_AS, "-v")):
        limit = resource.getrlimit(kind)[0]
        if limit != resource.RLIM_INFINITY and limit < _LOADED_BYTES:
            raise InputError(
                f"this process may hold {limit / 1e9:.2g} GB of memory (ulimit {option}), and loading what trains "
                f"takes {_LOADED_BYTES / 1e9:g} GB; call ulimit {option} unlimited."
            )


def prepare_process() -> None:
    """Set this process up to train.

    For the program and the workers of a comparison, before torch is loaded; never for a process of the user's, such as
    a notebook's.
    """
    # On a machine that does other work, threads that spin for milliseconds while they wait for each other make a run
    # several times slower; spinning for microseconds costs nothing. Read once, when torch loads GNU OpenMP.
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")
    # a warning for programs with packages of their own, of which there are none here; see own_packages
    warnings.filterwarnings("ignore", message=r"'import (learners|analysis)' gives vnetsim's package")
    keep_freed_memory()


def keep_freed_memory() -> None:
    """Let glibc keep the memory that this process frees, for its next arrays; other C libraries are left alone.

    By itself it returns every array above some size, 32 MiB at most, to the system: in a step of ResNet-18 on a CPU
    that costs hundreds of thousands of page faults, and up to a third of its time. The most memory held grows a little
    (from 2.2 to 2.5 GiB in such a step of 128 images).
    """
    import ctypes  # noqa: PLC0415 - of no use to who only imports vnetsim

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        for option in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD):
            mallopt(option, 2**31 - 1)
