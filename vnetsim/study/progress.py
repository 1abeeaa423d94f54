"""How far a comparison is: cells done of all, and the rounds of those that run."""

from __future__ import annotations

import re

from vnetsim.progress import ProgressDisplay
from vnetsim.study.cells import CellJob

_FOLDER = re.compile(r"\S*traffic/[0-9a-f]{12}")
"""That of a traffic, in notes."""
MOST_SHOWN = 8
"""Running cells that get a line each."""


class StudyProgress:
    """One display for all cells, whichever process they run in.

    The bar counts cells, a running one by the share of its rounds, so that the time left is that of the whole.

    Args:
        progress: where to show it.
        total: cells of the comparison.
        done: of these, the ones that need not run.
    """

    def __init__(self, progress: ProgressDisplay, *, total: int, done: int) -> None:
        self._progress = progress
        self._total = total
        self._done = done
        self._running: dict[str, _Running] = {}
        self._simulated_s = 0.0  # of cells that ended

    @property
    def running(self) -> list[CellJob]:
        """The cells that have begun and not ended."""
        return [running.job for running in self._running.values()]

    @property
    def place(self) -> str:
        """Where the comparison is, for the message of an interruption."""
        jobs = self.running
        return f"in {jobs[0].where}" if len(jobs) == 1 else f"after {self._done} of {self._total} cells"

    def begin(self, job: CellJob) -> None:
        """Show a cell from now on."""
        self._running[job.name] = _Running(job)
        self._show()

    def end(self, job: CellJob) -> None:
        """Count a cell as done, whether it finished or failed."""
        self._simulated_s += self._running.pop(job.name).time_s
        self._done += 1
        self._show()

    def stage(self, name: str, text: str) -> None:
        """Show what the cell of this name does now."""
        self._running[name].stage = text
        self._show()

    def advance(self, name: str, *, time_s: float, done: float, total: float | None) -> None:
        """Show the simulated time (s) and the rounds of the cell of this name."""
        running = self._running[name]
        running.time_s = time_s
        if total:
            running.stage = f"round {done:.0f} of {total:.0f}"
            running.share = min(done / total, 1.0)
        self._show()

    def _show(self) -> None:
        running = list(self._running.values())
        lines = [f"{self._done} of {self._total} cells"]
        lines += [f"  {one.job.words}: {one.stage}" for one in running[:MOST_SHOWN]]
        if len(running) > MOST_SHOWN:
            lines.append(f"  and {len(running) - MOST_SHOWN} more")
        self._progress.stage("\n".join(lines))
        time_s = self._simulated_s + sum(one.time_s for one in running)
        shares = sum(one.share for one in running)
        self._progress.advance(time_s=time_s, done=self._done + shares, total=self._total)


class _Running:
    """A cell that runs."""

    def __init__(self, job: CellJob) -> None:
        self.job = job
        self.stage = "starting"
        self.share = 0.0
        self.time_s = 0.0


class NotesOnce:
    """A display for several traffics of one scenario: each has the same notes but for its folder; they are shown once.

    Args:
        progress: where to show all.
    """

    def __init__(self, progress: ProgressDisplay) -> None:
        self._progress = progress
        self._said: set[str] = set()

    def stage(self, text: str) -> None:
        """Show what is being done."""
        self._progress.stage(text)

    def note(self, text: str) -> None:
        """Show a note that was not shown before."""
        what = _FOLDER.sub("", text)
        if what not in self._said:
            self._said.add(what)
            self._progress.note(text)

    def advance(self, *, time_s: float, done: float, total: float | None) -> None:
        """Show the simulated time (s) and the share done."""
        self._progress.advance(time_s=time_s, done=done, total=total)


class CellProgress:
    """The display that a cell of this process writes to.

    Args:
        whole: the display of the comparison.
        name: of the cell.
    """

    def __init__(self, whole: StudyProgress, name: str) -> None:
        self._whole = whole
        self._name = name

    def stage(self, text: str) -> None:
        """Show what the cell does."""
        self._whole.stage(self._name, text)

    def note(self, text: str) -> None:
        """Keep silent: notes of the traffic were shown once, and the comparison says how each cell ended."""

    def advance(self, *, time_s: float, done: float, total: float | None) -> None:
        """Show the simulated time (s) and the rounds."""
        self._whole.advance(self._name, time_s=time_s, done=done, total=total)
