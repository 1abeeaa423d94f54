"""How far a comparison is: cells done of all, and the rounds of those that run."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from vnetsim.progress import ProgressDisplay
from vnetsim.study.cells import CellJob

_FOLDER = re.compile(r"\S*traffic/[0-9a-f]{12}")
"""That of a traffic, in notes."""
MOST_SHOWN = 8
"""Running cells that get a line each."""
REPORT_EVERY_S = 0.2


@dataclass(frozen=True, kw_only=True)
class News:
    """How far a cell is.

    Args:
        stage: what it does.
        share: of its rounds that are done.
        time_s: simulated time (s).
    """

    stage: str = "starting"
    share: float = 0.0
    time_s: float = 0.0


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
        self._running: dict[str, tuple[CellJob, News]] = {}
        self._simulated_s = 0.0  # of cells that ended

    @property
    def place(self) -> str:
        """Where the comparison is, for the message of an interruption."""
        jobs = [job for job, _ in self._running.values()]
        return f"in {jobs[0].where}" if len(jobs) == 1 else f"after {self._done} of {self._total} cells"

    def show(self, job: CellJob, news: News = News()) -> None:
        """Show a cell, which may have begun with it."""
        self._running[job.name] = job, news
        self._refresh()

    def end(self, job: CellJob) -> None:
        """Count a cell as done, whether it finished or failed."""
        _, news = self._running.pop(job.name, (job, News()))
        self._simulated_s += news.time_s
        self._done += 1
        self._refresh()

    def _refresh(self) -> None:
        running = list(self._running.values())
        lines = [f"{self._done} of {self._total} cells"]
        lines += [f"  {job.words}: {news.stage}" for job, news in running[:MOST_SHOWN]]
        if len(running) > MOST_SHOWN:
            lines.append(f"  and {len(running) - MOST_SHOWN} more")
        self._progress.stage("\n".join(lines))
        time_s = self._simulated_s + sum(news.time_s for _, news in running)
        done = self._done + sum(news.share for _, news in running)
        self._progress.advance(time_s=time_s, done=done, total=self._total)


class CellProgress:
    """The display that a cell writes to, in whichever process.

    Args:
        tell: brings news to where the display of all cells is.
    """

    def __init__(self, tell: Callable[[News], object]) -> None:
        self._tell = tell
        self._news = News()
        self._due_s = 0.0

    def stage(self, text: str) -> None:
        """Tell what the cell does."""
        self._news = replace(self._news, stage=text)
        self._tell(self._news)

    def note(self, text: str) -> None:
        """Keep silent: notes of the traffic were shown once, and the comparison says how each cell ended."""

    def advance(self, *, time_s: float, done: float, total: float | None) -> None:
        """Tell the simulated time (s) and the rounds, unless that was done a moment ago."""
        now_s = time.monotonic()
        if now_s < self._due_s:
            return
        self._due_s = now_s + REPORT_EVERY_S
        self._news = replace(self._news, time_s=time_s)
        if total:
            self._news = replace(self._news, stage=f"round {done:.0f} of {total:.0f}", share=min(done / total, 1.0))
        self._tell(self._news)


class NotesOnce:
    """A display for several traffics of one scenario: each has the same notes but for its folder; they are shown once.

    Args:
        progress: where to show all.
    """

    def __init__(self, progress: ProgressDisplay) -> None:
        self.stage = progress.stage
        self.advance = progress.advance
        self._progress = progress
        self._said: set[str] = set()

    def note(self, text: str) -> None:
        """Show a note that was not shown before."""
        what = _FOLDER.sub("", text)
        if what not in self._said:
            self._said.add(what)
            self._progress.note(text)
