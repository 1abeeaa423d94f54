"""Recordings of traffic: the coverage windows of one pass, in durable pieces, also of a recording that goes on.

How traffic is opened, and what is kept of what ends early, runs have from here too.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from vnetsim.coverage.windows import Left, TrafficStream
from vnetsim.errors import NotFiniteError, RunError, VnetsimError
from vnetsim.experiment import Experiment
from vnetsim.progress import ProgressDisplay
from vnetsim.runs.assembly import located
from vnetsim.runs.clock import Clock
from vnetsim.runs.manifest import Manifest
from vnetsim.runs.tables import window_pieces
from vnetsim.runs.writer import SUMO, locked
from vnetsim.scenario.settings_file import Chosen
from vnetsim.scenario.trust import asks_for_trust
from vnetsim.storage.run_directory import RunDirectory
from vnetsim.traffic import open_traffic

REPORT_EVERY = 64  # windows between two updates of the progress line
SAFE_EVERY_S = 5.0
"""Wall time after which what a run or a recording has come to is made safe: saving takes longer than a quick round."""


def record_mobility(
    experiment: Experiment,
    folder: Path,
    *,
    command: Sequence[str],
    progress: ProgressDisplay,
    began: Mapping[str, Any] | None = None,
    go_on: str | None = None,
) -> Path:
    """Write the coverage windows of one pass of the traffic into a folder, and return that. Imports no torch.

    The folder is new, or that of a recording that goes on, of whose manifest the entries ``began`` stay: the traffic is
    played again, and what is there stays too. ``go_on`` is the command that goes on after a failure; None for
    ``vnetsim resume``.

    Raises:
        InputError: the input is at fault, or is no longer what was recorded.
        RunError: the simulator failed, or the disk is full; the windows so far are kept.
        KeyboardInterrupt: with the way to go on as its message.
    """
    experiment = located(experiment.placed({"traffic.repeat": False}))
    clock, run = Clock(), RunDirectory(folder)
    progress.stage("opening the traffic")
    with locked(run, fresh=began is None), opened(experiment, progress, run) as traffic:
        progress.stage("recording the traffic")
        manifest = Manifest(run, experiment, traffic, command, kind="mobility", more=began)
        windows = window_pieces(run, experiment)

        def close(status: str) -> None:
            run.put(windows.unsaved())
            manifest.close(status, time_s=traffic.time_s, wall_s=clock.stages)

        with kept(run, experiment, close, lambda: f"at {traffic.time_s:g} s of the traffic", go_on):
            safe_s = time.monotonic()
            for event in traffic.events():
                if not isinstance(event, Left):
                    continue
                windows.append(event.window)
                if windows.rows % REPORT_EVERY == 0:
                    show(progress, traffic)
                if time.monotonic() - safe_s >= SAFE_EVERY_S:
                    run.put(windows.unsaved())
                    safe_s = time.monotonic()
            clock.mark("traffic")
            whole, pieces = windows.joined()
            run.put(whole, remove=pieces)
            clock.mark("tables")
            manifest.close("finished", time_s=traffic.time_s, wall_s=clock.stages, ended_by="traffic")
    return folder


def show(progress: ProgressDisplay, traffic: TrafficStream) -> None:
    """Show how much of the traffic has passed."""
    info = traffic.info
    total_s = None if info.end_s is None else info.end_s - info.begin_s
    progress.advance(time_s=traffic.time_s, done=traffic.time_s - info.begin_s, total=total_s)


@contextmanager
def opened(
    experiment: Experiment, progress: ProgressDisplay, run: RunDirectory, source: Chosen | None = None
) -> Iterator[TrafficStream]:
    """Open the traffic of a run, and show its notes; see ``vnetsim.traffic.open_traffic``."""
    traffic = open_traffic(experiment, outputs=run.path / SUMO, progress=progress, source=source)
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


@contextmanager
def kept(
    run: RunDirectory,
    experiment: Experiment,
    close: Callable[[str], None],
    how_far: Callable[[], str],
    go_on: str | None = None,
) -> Iterator[None]:
    """Keep what there is of a run, or a recording, that ends early, and say how to go on.

    ``close`` makes safe what there is, and records how it ended: ``interrupted`` or ``failed``. ``how_far`` says where.
    ``go_on`` is the command that goes on; None for ``vnetsim resume``.

    Raises:
        RunError: what failed, with the way to go on.
        KeyboardInterrupt: with the way to go on as its message.
    """
    try:
        yield
    except BaseException as error:
        with suppress(VnetsimError):  # the disk may be what failed
            close("interrupted" if isinstance(error, KeyboardInterrupt) else "failed")
        trust = " --trust" if asks_for_trust(experiment) else ""
        command = go_on or f"vnetsim resume {shlex.quote(str(run.path))}{trust}"
        if isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt(f"interrupted {how_far()}. Go on with: {command}") from error
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
