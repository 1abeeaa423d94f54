"""Record the traffic of a comparison once, find it again by its settings, and check it before it is replayed.

If no RSU is named and SUMO's scenarios have none, one RSU is chosen for all scenarios, so that they are compared at the
same place.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

from vnetsim import __version__
from vnetsim.coverage.placement import NO_RSU
from vnetsim.coverage.rsu import Rsu
from vnetsim.errors import InputError, InUseError, UnfinishedError
from vnetsim.experiment import Experiment
from vnetsim.progress import ProgressDisplay
from vnetsim.runs.manifest import changed_inputs, sha256_of
from vnetsim.runs.traffic_recording import record_mobility
from vnetsim.runs.writer import open_lock
from vnetsim.scenario.kinds import is_sumo, names_source, with_absolute_path
from vnetsim.scenario.settings_file import to_plain
from vnetsim.storage.folder import Folder
from vnetsim.storage.records import COMPARISON, FORMAT, RecordedEntry
from vnetsim.storage.run_directory import RunDirectory
from vnetsim.study.cells import TIME_LIMIT
from vnetsim.study.parts import OpenToChange
from vnetsim.traffic import open_traffic

_FOLDER = re.compile(r"\S*traffic/[0-9a-f]{12}")  # a folder of recorded traffic in the text of a note
WAIT_S = 1.0  # wall time after which a part looks again for traffic that another one records


def give_one_rsu(
    traffics: Sequence[Experiment], run: RunDirectory, progress: ProgressDisplay
) -> tuple[Experiment, ...]:
    """Return ``traffics`` in order; all SUMO scenarios without any RSU get the junction chosen for the first of them.

    Shows a note, and writes the choice to ``comparison.json``. InputError if the net of another lacks the junction.
    """
    record = _read_record(run)
    chosen = record.get("chosen_rsu") or {}
    for traffic in traffics:
        scenario = with_absolute_path(traffic.scenario)
        if not _may_choose(traffic) or scenario in chosen.get("scenarios", ()):
            continue
        found, note = _choose_rsu(traffic, progress)
        if found is None:
            continue
        if not chosen:
            chosen = {"id": found.id, "x_m": found.x_m, "y_m": found.y_m, "note": note, "scenarios": []}
            progress.note(f"{note} All traffic of this comparison has it.")
        elif found.id != chosen["id"] or (found.x_m, found.y_m) != (chosen["x_m"], chosen["y_m"]):
            _refuse_other_net(traffic, chosen)
        chosen = {**chosen, "scenarios": [*chosen["scenarios"], scenario]}
        run.write_json(COMPARISON, {**record, "chosen_rsu": chosen})
    return tuple(
        one.with_values({"traffic.rsu": (chosen["id"],)})
        if _may_choose(one) and with_absolute_path(one.scenario) in chosen.get("scenarios", ())
        else one
        for one in traffics
    )


def _may_choose(traffic: Experiment) -> bool:
    """Return whether the traffic is a SUMO scenario whose settings name no RSU."""
    return is_sumo(traffic.scenario) and not traffic.traffic.rsu


def _choose_rsu(traffic: Experiment, progress: ProgressDisplay) -> tuple[Rsu | None, str]:
    """Open a SUMO scenario; return the RSU chosen for it and the note about it, or None and "" if it has RSUs."""
    progress.stage("opening the traffic")
    with closing(open_traffic(traffic, repeat=False, progress=progress)) as opened:
        note = next((note for note in opened.info.notes if note.startswith(NO_RSU)), "")
        return (opened.rsus[0], note) if opened.info.chosen_rsu else (None, "")


def _refuse_other_net(traffic: Experiment, chosen: Mapping[str, Any]) -> None:
    """Open a scenario; raise InputError unless its net has the junction ``chosen`` at the same position."""
    named = traffic.with_values({"traffic.rsu": (chosen["id"],)})
    with suppress(InputError), closing(open_traffic(named, repeat=False)) as opened:
        if (opened.rsus[0].x_m, opened.rsus[0].y_m) == (chosen["x_m"], chosen["y_m"]):
            return
    raise InputError(
        f"{traffic.scenario}: no RSU is named, and its net has no junction '{chosen['id']}' at ({chosen['x_m']:g}, "
        f"{chosen['y_m']:g}), which was chosen for {chosen['scenarios'][0]}; name the RSU of each condition with "
        'settings.traffic.rsu = ["JUNCTION"].'
    )


def _read_record(run: RunDirectory) -> dict[str, Any]:
    """Return ``comparison.json``, or the entries of a new one; InputError if another version of vnetsim wrote it."""
    if not run.holds(COMPARISON):
        return {"vnetsim": __version__, "format": FORMAT, "traffic": []}
    record = run.comparison()
    if record["vnetsim"] != __version__:
        raise InputError(f"{run.path}: made by vnetsim {record['vnetsim']}; go on with that version, or elsewhere.")
    return record


def record_all(
    traffics: Sequence[Experiment],
    open_to_change: OpenToChange,
    *,
    alone: bool,
    command: Sequence[str],
    progress: ProgressDisplay,
    deadline_s: float,
) -> list[RecordedEntry]:
    """Record the traffic that the folder lacks; return an entry for each of ``traffics``, in their order.

    Waits for recordings that other parts have begun, unless ``alone``. InputError: the folder is of another version, or
    a recording or its input was altered. UnfinishedError: ``deadline_s`` of ``time.monotonic()`` has passed.
    """
    with open_to_change() as run:
        before = {known["folder"] for known in _read_record(run)["traffic"]}
    entries: dict[int, RecordedEntry] = {}
    while True:
        for number, traffic in enumerate(traffics):
            if number in entries:
                continue
            entry = _find_or_record(traffic, open_to_change, alone=alone, command=command, progress=progress)
            if entry is not None:
                entries[number] = entry
            if time.monotonic() >= deadline_s and (entry is None or entry.folder not in before):
                raise UnfinishedError(f"{TIME_LIMIT} after {len(entries)} of {len(traffics)} recordings of traffic.")
        if len(entries) == len(traffics):
            return [entries[number] for number in range(len(traffics))]
        progress.stage("waiting for traffic that another part records")
        time.sleep(WAIT_S)


def _find_or_record(
    traffic: Experiment, open_to_change: OpenToChange, *, alone: bool, command: Sequence[str], progress: ProgressDisplay
) -> RecordedEntry | None:
    """Return the entry of ``traffic``, recorded now if missing; None if another part is recording it."""
    settings = deciding_settings(traffic)
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()
    name = f"traffic/{digest[:12]}"
    with ExitStack() as lock:
        with open_to_change() as run:
            folder = run.path_of(f"{name}/manifest.json").parent
            record = _read_record(run)
            entries = [RecordedEntry(**one) for one in record["traffic"]]
            known = next((one for one in entries if one.folder == name or _has_settings(one, settings, run)), None)
            if known is None:
                if not run.holds(COMPARISON):  # the folder is a comparison's before it has anything else
                    run.write_json(COMPARISON, record)
                try:
                    if not alone:
                        lock.enter_context(open_lock(RunDirectory(folder.parent), f".{folder.name}.lock")[0])
                except InUseError:
                    return None
        if known is not None:
            check_recording(run.path / known.folder, known, settings["scenario"])
            return known
        try:
            new = record_traffic(traffic, run, name, settings, command=command, progress=progress)
        except KeyboardInterrupt:
            raise KeyboardInterrupt from None  # compare adds how to continue
        with open_to_change() as run:
            record = _read_record(run)
            run.write_json(COMPARISON, {**record, "traffic": [*record["traffic"], dataclasses.asdict(new)]})
    return new


def record_traffic(
    traffic: Experiment,
    run: Folder,
    name: str,
    settings: dict[str, Any],
    *,
    command: Sequence[str],
    progress: ProgressDisplay,
) -> RecordedEntry:
    """Record all vehicles into subfolder ``name`` of ``run``, replacing an interrupted recording; return its entry."""
    run.remove(name)
    everybody = traffic.with_values({"traffic.equipped": 1.0})  # each cell draws its own share of them
    folder = record_mobility(everybody, run.path / name, command=command, progress=progress, go_on=shlex.join(command))
    return RecordedEntry(folder=name, settings=settings, sha256=sha256_of(folder / "windows.parquet"))


def _has_settings(known: RecordedEntry, settings: Mapping[str, Any], run: RunDirectory) -> bool:
    """Return whether a recording has these settings; its scenario may have been moved, with unchanged files."""
    now, before = json.loads(json.dumps(settings, default=str)), str(known.settings["scenario"])
    scenario = now["scenario"]
    if {**known.settings, "scenario": scenario} != now or Path(before).name != Path(scenario).name:
        return False
    inputs = _read_inputs(run.path / known.folder, before, scenario)
    return scenario in inputs and not changed_inputs(inputs, run.path)


def _read_inputs(folder: Path, before: str, scenario: str) -> dict[str, str]:
    """Return the SHA-256 of each input file of a recording by path, after a move from ``before`` to ``scenario``."""
    inputs = RunDirectory(folder).manifest()["inputs"]
    if before == scenario:
        return dict(inputs)
    here, there = Path(scenario).parent, Path(before).parent
    return {os.path.normpath(here / os.path.relpath(folder / name, there)): one for name, one in inputs.items()}


def check_recording(folder: Path, known: RecordedEntry, scenario: str = "") -> None:
    """Raise InputError if a recording or its input changed or is missing; ``scenario``: its path if it was moved."""
    windows = folder / "windows.parquet"
    if not windows.is_file() or sha256_of(windows) != known.sha256:
        raise InputError(f"{windows}: changed or gone since it was recorded; start in a new folder.")
    before = str(known.settings["scenario"])
    for path in changed_inputs(_read_inputs(folder, before, scenario or before), folder):
        raise InputError(f"{path}: changed or gone since the traffic was recorded; start in a new folder.")


def deciding_settings(traffic: Experiment) -> dict[str, Any]:
    """Return the settings that decide what is recorded, as TOML values by table; equal ones mean equal traffic."""
    plain = to_plain(traffic)
    source = {"source": plain["source"]} if names_source(traffic.scenario) and "source" in plain else {}
    # with or without a window, and whoever is equipped, the traffic is the same
    own = {key: value for key, value in plain["traffic"].items() if key not in {"gui", "equipped"}}
    return {"scenario": with_absolute_path(traffic.scenario), "seed": plain["seed"], "traffic": own, **source}


class NotesOnce:
    """A display that shows each note once; notes that differ only in the folder of recorded traffic count as equal."""

    def __init__(self, progress: ProgressDisplay) -> None:
        self.stage = progress.stage
        self.advance = progress.advance
        self._progress = progress
        self._said: set[str] = set()

    def note(self, text: str) -> None:
        """Show a note unless it was shown before."""
        if (said := _FOLDER.sub("", text)) not in self._said:
            self._said.add(said)
            self._progress.note(text)
