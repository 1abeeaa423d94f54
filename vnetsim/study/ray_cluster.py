"""A Ray cluster: refused before anything begins where it cannot be had, connected to, and left again."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

from vnetsim.errors import InputError, one_line

Cluster = Mapping[str, Any]
"""Arguments of ``ray.init``."""

PATIENCE_S, JOIN_S = 5.0, 60.0
"""How long to wait for a machine to answer, and for a cluster to be joined."""


def cluster_of(workers: int, engine: str, address: str | None) -> Cluster | None:
    """Return the cluster that the options ask for, None for this machine without Ray.

    Args:
        workers: CPUs of a cluster of this machine; a cluster with an address knows its size itself.
        engine: ``"local"`` or ``"ray"``.
        address: HOST:PORT of its head, or ``auto``; None for a new one.

    Raises:
        InputError: Ray is not installed, the options do not go together, or nothing listens at the address.
    """
    if engine == "ray":
        _loaded()
    elif address is not None:
        raise InputError(f"--address {address}: is that of a Ray cluster; add --engine ray.")
    if workers < 1:
        raise InputError(f"--workers {workers}: must be at least 1.")
    if engine != "ray":
        return None
    if address is None:
        return {"num_cpus": workers, "include_dashboard": False}
    if workers != 1:
        raise InputError(f"--workers {workers}: the cluster of --address decides how many cells run at once.")
    if address != "auto":
        _refuse_others(address)
    return {"address": address}


def _loaded() -> Any:
    """Return Ray, with the settings that it reads as it is loaded."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody is told what is computed here
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # silences a warning on tasks without GPUs
    # Ray gives workers the lowest priority but four, at which a machine with other work starves them
    os.environ.setdefault("RAY_worker_niceness", "0")
    # Ray prints a page of a lost raylet, and a line of every worker that it starts anew: nothing of it is for the user
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    try:
        import ray  # noqa: PLC0415 - an extra
    except ImportError:
        raise InputError("--engine ray: Ray is not installed; do that with: pip install 'vnetsim[ray]'.") from None
    return ray


def _refuse_others(address: str) -> None:
    """Refuse an address at which nothing listens, or something else than Ray: Ray itself would try without end."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in address:
        raise InputError(f"--address {address}: write HOST:PORT of the cluster's head (ray start --head), or auto.")
    try:
        socket.create_connection((host, int(port)), timeout=PATIENCE_S).close()
    except (OSError, OverflowError) as error:
        raise InputError(f"--address {address}: no Ray cluster answers there: {one_line(error)}.") from None
    joining = "import ray, sys; ray.init(address=sys.argv[1], log_to_driver=False)"
    try:
        subprocess.run(  # noqa: S603 - this interpreter
            [sys.executable, "-c", joining, address], check=True, timeout=JOIN_S, capture_output=True
        )
    except (subprocess.SubprocessError, OSError):
        raise InputError(
            f"--address {address}: something listens there, but no Ray cluster of this Ray {version('ray')} and Python "
            f"could be joined within {JOIN_S:.0f} s."
        ) from None


@contextmanager
def connected(cluster: Cluster) -> Iterator[None]:
    """Connect to a cluster or start one, and leave or end it afterwards.

    Raises:
        InputError: no cluster answers.
    """
    ray = _loaded()
    try:
        with _nothing_said():
            ray.init(**cluster, logging_level="error", log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        where = f"--address {cluster.get('address')}"
        raise InputError(f"{where}: no Ray cluster answers: {one_line(error)[:300]}") from None
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _nothing_said() -> Iterator[None]:
    """Keep what Ray's own libraries write into standard error from the user: which level of its log it was told."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
