"""Records the coverage windows of traffic; also opens the traffic of runs, and saves runs that fail."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from vnetsim.coverage.windows import Left, TrafficStream
from vnetsim.errors import NotFiniteError, RunError, UnfinishedError, VnetsimError
from vnetsim.experiment import Experiment
from vnetsim.progress import ProgressDisplay
from vnetsim.runs.assembly import with_absolute_paths
from vnetsim.runs.manifest import Clock, Manifest
from vnetsim.runs.tables import window_pieces
from vnetsim.runs.writer import SUMO, lock_directory
from vnetsim.scenario.plugins import ResolvedPlugin
from vnetsim.scenario.trust import asks_for_trust
from vnetsim.storage.run_directory import RunDirectory
from vnetsim.traffic import open_traffic
from vnetsim.traffic.sumo.trips import traffic_outcomes

REPORT_EVERY = 64  # windows between two updates of the progress line
SAFE_EVERY_S = 5.0
"""Wall time (s) between two saves of a run or recording; saving takes longer than a quick round."""


def record_mobility(
    experiment: Experiment,
    folder: Path,
    *,
    command: Sequence[str],
    progress: ProgressDisplay,
    began: Mapping[str, Any] | None = None,
    go_on: str | None = None,
) -> Path:
    """Write the coverage windows of one pass of the traffic into ``folder``, and return it. Imports no torch.

    ``folder`` must be empty or missing, unless the recording is resumed. ``began`` are then the old manifest's entries
    to keep, and the traffic is played again from the start. See ``saved_on_failure`` for ``go_on`` and errors.
    """
    experiment = with_absolute_paths(experiment.with_values({"traffic.repeat": False}))
    clock, run = Clock(), RunDirectory(folder)
    progress.stage("opening the traffic")
    with lock_directory(run, fresh=began is None), open_run_traffic(experiment, progress, run) as traffic:
        progress.stage("recording the traffic")
        manifest = Manifest(run, experiment, traffic, command, kind="mobility", more=began)
        windows = window_pieces(run, experiment)

        def close(status: str) -> None:
            """Save the windows so far, and write ``status`` to the manifest; called if the recording stops early."""
            run.put(windows.unsaved())
            manifest.close(status, time_s=traffic.time_s, wall_s=clock.stages)

        with saved_on_failure(run, experiment, close, lambda: f"at {traffic.time_s:g} s of the traffic", go_on):
            safe_s = time.monotonic()
            for event in traffic.events():
                if not isinstance(event, Left):
                    continue
                windows.append(event.window)
                if windows.rows % REPORT_EVERY == 0:
                    show_progress(progress, traffic)
                if time.monotonic() - safe_s >= SAFE_EVERY_S:
                    run.put(windows.unsaved())
                    safe_s = time.monotonic()
            clock.mark("traffic")
            whole, pieces = windows.joined()
            run.put(whole, remove=pieces)
            clock.mark("tables")
            outcomes, unread = traffic_outcomes(run.path / SUMO)
            for note in unread:
                progress.note(note)
            manifest.close(
                "finished", time_s=traffic.time_s, wall_s=clock.stages, ended_by="traffic", outcomes=outcomes
            )
    return folder


def show_progress(progress: ProgressDisplay, traffic: TrafficStream) -> None:
    """Report to ``progress`` how many seconds of the traffic were read; without a total if its end is unknown."""
    info = traffic.info
    total_s = None if info.end_s is None else info.end_s - info.begin_s
    progress.advance(time_s=traffic.time_s, done=traffic.time_s - info.begin_s, total=total_s)


@contextmanager
def open_run_traffic(
    experiment: Experiment, progress: ProgressDisplay, run: RunDirectory, source: ResolvedPlugin | None = None
) -> Iterator[TrafficStream]:
    """Open a run's traffic, and close it after the block; show its notes, of a replay only those added while reading.

    ``source`` is the traffic plug-in, None if the scenario names a file. SUMO writes its outputs into ``run``.
    """
    traffic = open_traffic(experiment, outputs=run.path / SUMO, progress=progress, source=source)
    try:
        shown = traffic.info.notes
        if traffic.info.kind != "replay":  # the user saw these notes when the traffic was recorded
            for note in shown:
                progress.note(note)
        yield traffic
        for note in traffic.info.notes[len(shown) :]:  # notes that were added while it was read
            progress.note(note)
    finally:
        traffic.close()


@contextmanager
def saved_on_failure(
    run: RunDirectory,
    experiment: Experiment,
    close: Callable[[str], None],
    how_far: Callable[[], str],
    go_on: str | None = None,
) -> Iterator[None]:
    """Run the block; if it raises an exception, save the run or recording, and raise the exception again.

    ``close`` saves all results, given ``interrupted`` or ``failed``; ``how_far`` returns in words how far the run got.
    RunError, UnfinishedError and KeyboardInterrupt get a message with the command ``go_on``, by default
    ``vnetsim resume`` of ``run``; other exceptions stay as they are.
    """
    try:
        yield
    except BaseException as error:
        with suppress(VnetsimError):  # the disk may have failed
            close("interrupted" if isinstance(error, KeyboardInterrupt | UnfinishedError) else "failed")
        trust = " --trust" if asks_for_trust(experiment) else ""
        command = go_on or f"vnetsim resume {shlex.quote(str(run.path))}{trust}"
        if isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt(f"interrupted {how_far()}. Go on with: {command}") from error
        if isinstance(error, UnfinishedError):
            raise UnfinishedError(f"{error} {how_far()}. Go on with the same command, or with: {command}") from error
        # somebody may have removed the folder
        if isinstance(error, RunError) and (run.path / "manifest.json").is_file():
            mended = "; after a change of a plug-in's file, with --accept-changed-plugin too" if trust else ""
            cure = "Once the cause is removed,"
            if isinstance(error, NotFiniteError):
                cure = (
                    "If training diverged, start again with a lower learning.lr; if the code is at fault, mend it and"
                )
            raise RunError(f"{error} {cure} go on with: {command}{mended}") from error
        raise
