"""Writes ``manifest.json``: versions, machine, hashes of inputs, traffic, learner, results, wall time of a run."""

from __future__ import annotations

import os
import platform
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from vnetsim import __version__
from vnetsim.coverage.windows import TrafficInfo, TrafficStream
from vnetsim.errors import InputError
from vnetsim.experiment import Experiment
from vnetsim.learner_facts import Series
from vnetsim.learning import Learner
from vnetsim.learning.device import device_record, peak_memory
from vnetsim.plugins import code_file, without_folder
from vnetsim.radio.channel import RateUse
from vnetsim.runs.tables import map_rows
from vnetsim.scenario.settings_file import to_toml
from vnetsim.storage.checksums import file_sha256
from vnetsim.storage.folder import json_bytes
from vnetsim.storage.records import FORMAT, TrafficEntry
from vnetsim.storage.run_directory import RunDirectory
from vnetsim.storage.tables import to_parquet

PACKAGES = ("eclipse-sumo", "traci", "simpy", "numpy", "scipy", "polars", "torch", "torchvision")

SPREAD = Series(
    name="spread",
    label="Spread of models",
    unit="%",
    caption="How far the RSUs' models are from their mean, on average and relative to its length; where models are "
    "averaged, right before.",
    result=False,
)
"""The metric that all runs with several models have."""


def _read_processor_name() -> str:
    """Return the model name of the processor, which affects rounding; empty if unknown."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


@cache  # a study asks for each of its cells
def _installed_version(package: str) -> str | None:
    """Return the version of a package; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def environment() -> dict[str, Any]:
    """Return the manifest's ``host`` (machine, Python, system) and ``packages`` (version by name, if installed)."""
    packages = {name: found for name in PACKAGES if (found := _installed_version(name))}
    host = {
        "machine": platform.machine(),
        "processor": _read_processor_name(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "os": f"{platform.system()} {platform.release()}",
    }
    return {"host": host, "packages": packages}


def sha256_of(path: Path) -> str:
    """Return the SHA-256 (hexadecimal) of a file; InputError if it cannot be read."""
    try:
        return file_sha256(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}.") from error


def input_hashes(inputs: Iterable[str], seen_from: Path | None = None) -> dict[str, str]:
    """Return the SHA-256 of those ``inputs`` that are files, by path, relative to ``seen_from`` unless that is None."""
    files = [Path(name) for name in inputs if Path(name).is_file()]
    return {str(path) if seen_from is None else relative(path, seen_from): sha256_of(path) for path in files}


def changed_inputs(recorded: dict[str, str], folder: Path) -> dict[Path, str]:
    """Return recorded SHA-256 by path of missing or changed files; ``recorded`` has it by path from ``folder``."""
    files = {Path(os.path.normpath(folder / name)): digest for name, digest in recorded.items()}
    return {path: digest for path, digest in files.items() if not path.is_file() or sha256_of(path) != digest}


def relative(path: Path, folder: Path) -> str:
    """Return ``path`` relative to ``folder`` as a POSIX path, with ``..`` if necessary; resolves symbolic links."""
    return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()


def traffic_record(info: TrafficInfo, equipped: float) -> dict[str, Any]:
    """Return the manifest's entry on the traffic; ``equipped`` is the share of equipped vehicles in [0, 1]."""
    entries = {one.name: getattr(info, one.name) for one in fields(TrafficEntry) if one.name != "equipped"}
    entries |= {"equipped": equipped}
    return {name: value for name, value in entries.items() if name != "plugin" or value}


def radio_record(links: RateUse, sidelinks: RateUse) -> dict[str, Any]:
    """Return the manifest's entry on data rates: the cap (bit/s), and how often rates reached it; {} without a cap."""
    if links.cap_bps is None:
        return {}
    counts = {
        kind: {"looked_up": use.looked_up, "capped": use.capped, "states": dict(use.states.most_common())}
        for kind, use in (("links", links), ("sidelinks", sidelinks))
    }
    return {"cap_bps": links.cap_bps, "notes": list(links.notes), **counts}


class Clock:
    """A stopwatch for the stages of a run: wall time of successive stages, and of parts taken out of them (s)."""

    def __init__(self) -> None:
        self._stages: dict[str, float] = defaultdict(float)
        self._last = time.perf_counter()

    @property
    def stages(self) -> dict[str, float]:
        """The wall time of each finished stage and part so far (s), rounded to milliseconds."""
        return {stage: round(seconds, 3) for stage, seconds in self._stages.items()}

    def mark(self, stage: str) -> None:
        """Add the time since the previous mark or the start, without that of parts, to the time of ``stage``."""
        now = time.perf_counter()
        self._stages[stage] += now - self._last
        self._last = now

    @contextmanager
    def part(self, stage: str) -> Iterator[None]:
        """Return a context that adds the time of the block to ``stage`` and not to the next mark; do not nest it."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - begin
            self._stages[stage] += seconds
            self._last += seconds


class Manifest:
    """The manifest of a run, of the type ``kind``; ``more`` are further entries, which win over the usual ones.

    Making it writes ``manifest.json``, ``experiment.toml``, the table ``map``, and ``others`` (content by file name).
    """

    def __init__(
        self,
        run: RunDirectory,
        experiment: Experiment,
        traffic: TrafficStream,
        command: Sequence[str],
        *,
        kind: str,
        more: Mapping[str, Any] | None = None,
        others: Mapping[str, bytes] | None = None,
    ) -> None:
        self._run = run
        self._traffic, self._equipped = traffic, experiment.traffic.equipped
        # the folders of plug-ins depend on the machine: only the manifest has them, not experiment.toml
        plugin_files = {key: str(code_file(one)) for key, one in experiment.plugins().items() if _is_absolute(one)}
        self._record: dict[str, Any] = {
            "vnetsim": __version__,
            "format": FORMAT,
            "kind": kind,
            "command": list(command),
            "created": _format_now(),
            "finished": None,
            "status": "running",
            "ended_by": None,
            "seed": experiment.seed,
            "traffic": traffic_record(traffic.info, experiment.traffic.equipped),
            "rsus": [asdict(rsu) for rsu in traffic.rsus],
            "inputs": input_hashes(traffic.info.inputs),
            "plugin_files": plugin_files,
            **environment(),
            **(more or {}),
        }
        rows = to_parquet("map", map_rows(traffic.info))
        files = {"experiment.toml": settings_file(experiment), "map.parquet": rows, **(others or {})}
        run.put({**files, "manifest.json": json_bytes(self._record)})

    def close(
        self,
        status: str,
        *,
        time_s: float,
        wall_s: Mapping[str, float],
        ended_by: str | None = None,
        radio: Mapping[str, Any] | None = None,
        facts: Mapping[str, str] | None = None,
        outcomes: Mapping[str, float] | None = None,
    ) -> None:
        """Write the manifest again with the end of the run: simulated time (s), wall time by stage (s), peak memory.

        ``facts`` replace the learner's facts of the start; None and {} keep those. ``outcomes``: ``traffic_outcomes``.
        """
        ending: dict[str, Any] = {
            "status": status,
            "finished": _format_now(),
            "time_s": time_s,
            "wall_s": dict(wall_s),
            "ended_by": ended_by,
            "radio": dict(radio or {}),
            "peak_memory_bytes": peak_memory(),
            # it may have changed while it was read
            "traffic": traffic_record(self._traffic.info, self._equipped),
        }
        if facts:
            ending["learner"] = {**self._record["learner"], "facts": dict(facts)}
        if outcomes:
            ending["traffic_outcomes"] = dict(outcomes)
        self._run.write_json("manifest.json", {**self._record, **ending})
        self._run.settle()


def settings_file(experiment: Experiment) -> bytes:
    """Return the content of ``experiment.toml``: all settings; absolute paths of plug-ins become ``file.py:Class``."""
    named = {key: without_folder(name) for key, name in experiment.plugins().items() if _is_absolute(name)}
    return to_toml(experiment.with_values(named)).encode()


def _is_absolute(name: str) -> bool:
    """Return whether the name of a plug-in, as ``file.py:Class``, has an absolute path."""
    file = code_file(name)
    return file is not None and file.is_absolute()


def _format_now() -> str:
    """Return the present date and time in UTC as ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def learner_record(
    learner: Learner, settings: Mapping[str, Any], device: str, *, several: bool = False
) -> dict[str, Any]:
    """Return ``device``, ``learner``, ``series``, ``exchange`` of the manifest; ``several`` models add ``SPREAD``."""
    description = learner.describe()
    return {
        "device": device_record(device),
        "learner": {
            "name": learner.name,
            "task": learner.task,
            "paper": learner.paper,
            "encoder": without_folder(description.encoder),
            "parameters": description.parameters,
            "image_shape": list(description.image_shape),
            "facts": dict(description.facts),
            "settings": {key: without_folder(one) if key == "encoder" else one for key, one in settings.items()},
            "cost": asdict(learner.cost(0)),
        },
        "series": [asdict(series) for series in [*learner.series(), *[SPREAD] * several]],
        "exchange": None if description.exchange is None else asdict(description.exchange),
    }
