"""The traffics of a comparison: each recorded once, found again by its settings, and checked before it is replayed."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vnetsim import __version__
from vnetsim.errors import InputError
from vnetsim.experiment import Experiment
from vnetsim.manifest import changed_inputs, sha256_of
from vnetsim.run_directory import RunDirectory
from vnetsim.runner import record_mobility
from vnetsim.settings_file import to_plain
from vnetsim.terminal import ProgressDisplay

RECORD = "comparison.json"


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A traffic that the cells replay; an entry of the record's ``traffic``.

    Args:
        folder: where it lies in the folder of the comparison.
        settings: all that decided it.
        sha256: of its ``windows.parquet``.
    """

    folder: str
    settings: Mapping[str, Any]
    sha256: str


def recorded(traffic: Experiment, run: RunDirectory, *, command: Sequence[str], progress: ProgressDisplay) -> Recorded:
    """Record a traffic unless the folder of the comparison, ``run``, holds it.

    Raises:
        InputError: the folder is of another version, or the recording or what it was made from was altered.
        RunError: the simulator failed.
    """
    settings = _settings(traffic)
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()
    name = f"traffic/{digest[:12]}"
    folder = run.path / name
    record: dict[str, Any] = {"vnetsim": __version__, "traffic": []}
    if (run.path / RECORD).is_file():
        record = run.read_json(RECORD)
    if record.get("vnetsim") != __version__:
        raise InputError(f"{run.path}: made by vnetsim {record.get('vnetsim')}; go on with that version, or elsewhere.")
    for known in record["traffic"]:
        if known["folder"] != name:
            continue
        windows = folder / "windows.parquet"
        if not windows.is_file() or sha256_of(windows) != known["sha256"]:
            raise InputError(f"{windows}: changed or gone since it was recorded; start in a new folder.")
        changed = changed_inputs(RunDirectory(folder).manifest().get("inputs", {}), folder)
        if changed:
            raise InputError(f"{changed[0]}: changed or gone since the traffic was recorded; start in a new folder.")
        return Recorded(**known)
    run.write_json(RECORD, record)
    if folder.exists():  # of a call that was cut short
        shutil.rmtree(folder)
    record_mobility(traffic, folder, command=command, progress=progress)
    made = Recorded(folder=name, settings=settings, sha256=sha256_of(folder / "windows.parquet"))
    run.write_json(RECORD, {**record, "traffic": [*record["traffic"], dataclasses.asdict(made)]})
    return made


def _settings(traffic: Experiment) -> dict[str, Any]:
    """Return everything that decides what is recorded."""
    plain = to_plain(traffic)
    located = traffic.scenario if traffic.scenario == "gaussian" else str(Path(traffic.scenario).resolve())
    chosen = {key: plain[key] for key in ("seed", "traffic", "gaussian", "camera")}
    # the two backends, with or without a window, give the same traffic
    chosen["traffic"] = {key: value for key, value in chosen["traffic"].items() if key not in {"backend", "gui"}}
    return {"scenario": located, **chosen}
