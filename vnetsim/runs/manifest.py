"""What produced a run: versions, machine, input hashes."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterable
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from vnetsim.coverage.rsu import Rsu
from vnetsim.coverage.windows import TrafficInfo
from vnetsim.errors import InputError
from vnetsim.paths import refuse_special
from vnetsim.radio.channel import RateUse

PACKAGES = ("eclipse-sumo", "traci", "simpy", "numpy", "scipy", "polars", "torch", "torchvision")


def environment() -> dict[str, Any]:
    """Return the host and the versions of the packages that decide a result."""
    packages = {}
    for name in PACKAGES:
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            continue
    host = {
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "os": f"{platform.system()} {platform.release()}",
    }
    return {"host": host, "packages": packages}


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, read in pieces.

    Raises:
        InputError: when it cannot be read.
    """
    refuse_special(path)
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}.") from error


def input_hashes(inputs: Iterable[str], seen_from: Path | None = None) -> dict[str, str]:
    """Return the SHA-256 of every input file that is still there, by absolute path or as seen from a folder."""
    files = [Path(name) for name in inputs if Path(name).is_file()]
    return {str(path) if seen_from is None else relative(path, seen_from): sha256_of(path) for path in files}


def changed_inputs(recorded: dict[str, str], folder: Path) -> dict[Path, str]:
    """Return the input files recorded in ``folder`` that are gone or changed, with the digests that they had."""
    files = {Path(os.path.normpath(folder / name)): digest for name, digest in recorded.items()}
    return {path: digest for path, digest in files.items() if not path.is_file() or sha256_of(path) != digest}


def relative(path: Path, folder: Path) -> str:
    """Return ``path`` as seen from ``folder``, also where that means going up."""
    return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()


def traffic_record(info: TrafficInfo) -> dict[str, Any]:
    """Return the traffic's description as JSON values, without the lanes (they are a table)."""
    return {
        "kind": info.kind,
        "begin_s": info.begin_s,
        "end_s": info.end_s,
        "step_s": info.step_s,
        "seed": info.seed,
        "command": list(info.command),
        "version": info.version,
        "inputs": list(info.inputs),
        "vehicles": info.vehicles,
        "notes": list(info.notes),
        **({"plugin": dict(info.plugin)} if info.plugin else {}),
    }


def rsu_records(rsus: Iterable[Rsu]) -> list[dict[str, Any]]:
    """Return the RSUs as JSON values."""
    return [asdict(rsu) for rsu in rsus]


def radio_record(links: RateUse, sidelinks: RateUse) -> dict[str, Any]:
    """Return what rates came to as JSON values: the cap, and how often it decided; empty where none has a cap."""
    if links.cap_bps is None:
        return {}

    def counts(use: RateUse) -> dict[str, int]:
        return {"looked_up": use.looked_up, "capped": use.capped}

    return {"cap_bps": links.cap_bps, "links": counts(links), "sidelinks": counts(sidelinks)}
