"""What runs and recordings of traffic have in common before they begin and when they end."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from vnetsim.coverage.windows import TrafficStream
from vnetsim.errors import RunError, VnetsimError
from vnetsim.experiment import Experiment
from vnetsim.progress import ProgressDisplay
from vnetsim.scenario.trust import asks_for_trust
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


@contextmanager
def kept(
    run: RunDirectory,
    experiment: Experiment,
    close: Callable[[str], None],
    how_far: Callable[[], str],
    go_on: str | None = None,
) -> Iterator[None]:
    """Keep what there is of a run, or a recording, that ends early, and say how to go on.

    Args:
        run: where.
        experiment: the settings.
        close: makes safe what there is, and records how it ended: ``interrupted`` or ``failed``.
        how_far: how far it is, in words.
        go_on: the command that goes on; None for ``vnetsim resume``.

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
            raise RunError(f"{error} Once the cause is removed, go on with: {command}{mended}") from error
        raise
