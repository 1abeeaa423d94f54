"""Two cells at once, as two workers run them, but each runs from one change of the disk to its next by turns.

So all is repeatable, also when one of them is stopped.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest
from crash_disk import CHANGES

from vnetsim.experiment.arithmetic import Arithmetic
from vnetsim.storage import disk
from vnetsim.study.cells import CellJob, CellResult, play
from vnetsim.study.workers import CellProgress, StudyProgress


def two_cells_by_turns(jobs: Sequence[CellJob], display: StudyProgress) -> Iterator[CellResult]:
    """Run the cells in a thread each; what stops one of them as a kill does stops the comparison."""
    outcomes: dict[str, CellResult] = {}
    stops: list[BaseException] = []
    turn = threading.Condition()
    running = [job.name for job in jobs]
    whose = running[:1]
    true = {name: getattr(disk, name) for name in CHANGES}
    as_before = Arithmetic.present().set()  # cells that end in turn each put back what the other had set

    def wait(me: str) -> None:
        with turn:
            turn.wait_for(lambda: whose == [me])

    def hand_on(me: str, *, ends: bool = False) -> None:
        with turn:
            others = running[running.index(me) + 1 :] + running[: running.index(me) + 1]
            if ends:
                running.remove(me)
                others.remove(me)
            whose[:] = others[:1]
            turn.notify_all()

    def by_turns(name: str, *arguments: Any) -> None:
        me = threading.current_thread().name
        try:
            true[name](*arguments)
        finally:
            if me in running:
                hand_on(me)
                wait(me)

    def run(job: CellJob) -> None:
        wait(job.name)
        try:
            outcomes[job.name] = play(job, CellProgress(partial(display.show, job)))
        except BaseException as stop:  # noqa: BLE001 - raised again below
            stops.append(stop)
        finally:
            hand_on(job.name, ends=True)

    for job in jobs:
        display.show(job)
    with pytest.MonkeyPatch.context() as patch:
        for name in CHANGES:
            patch.setattr(disk, name, partial(by_turns, name))
        threads = [threading.Thread(target=run, args=(job,), name=job.name) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    as_before()
    if stops:
        raise stops[0]
    for job in jobs:
        display.end(job)
        yield outcomes[job.name]
