"""What runs and recordings of traffic have in common before they begin and when they end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from vnetsim.coverage.windows import TrafficStream
from vnetsim.errors import InputError
from vnetsim.experiment import Experiment
from vnetsim.paths import FILES, PLUGIN_FILES, resolved
from vnetsim.plugins import at_folder
from vnetsim.progress import ProgressDisplay
from vnetsim.scenario.kinds import scenario_anywhere
from vnetsim.storage.run_directory import RunDirectory
from vnetsim.traffic import open_traffic

SUMO = "sumo"


@contextmanager
def opened(experiment: Experiment, progress: ProgressDisplay, run: RunDirectory) -> Iterator[TrafficStream]:
    """Open the traffic of a run, and show its notes."""
    traffic = open_traffic(experiment, outputs=run.path / SUMO, progress=progress)
    try:
        shown = traffic.info.notes
        if traffic.info.kind != "replay":  # what was said of it when it was recorded stands in the record
            for note in shown:
                progress.note(note)
        yield traffic
        for note in traffic.info.notes[len(shown) :]:  # what showed while it was read
            progress.note(note)
    finally:
        traffic.close()


def ended_as(error: BaseException) -> str:
    """Return the status of a run that an error ended."""
    return "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"


def plugin_files(experiment: Experiment) -> dict[str, str]:
    """Return the files that settings of plug-ins name as ``file``, by the tables they stand in."""
    named = {table: getattr(experiment, table).get(key) for table, key in sorted(PLUGIN_FILES)}
    return {table: file for table, file in named.items() if isinstance(file, str) and file}


def located(experiment: Experiment) -> Experiment:
    """Return the experiment with paths that hold from any working directory.

    Raises:
        InputError: one of them could never exist; whether it does is said by who opens it.
    """
    changes: dict[str, Any] = {"scenario": scenario_anywhere(experiment.scenario)}
    for table, key in sorted(FILES):
        settings = changes.get(table, getattr(experiment, table))
        value = settings.get(key) if isinstance(settings, Mapping) else getattr(settings, key)
        if isinstance(value, str) and value:
            try:
                found = {key: str(resolved(value))}
            except InputError as error:
                raise InputError(f"{table}.{key}: {error}") from None
            changes[table] = {**settings, **found} if isinstance(settings, Mapping) else replace(settings, **found)
    plugins = {key: at_folder(name, Path.cwd()) for key, name in experiment.plugins().items()}
    return replace(experiment, **changes).with_plugins(plugins)
