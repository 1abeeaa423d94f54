"""Learners for tests of comparisons in several processes, which see no monkeypatch: to be named by this file.

Their model takes a random walk. A file named by the environment variable ``WALK_TROUBLE`` that holds a line such as
``kill Walk 1`` makes the process of Walk at seed 1 die in its third round; ``once`` behind it makes that happen once.
``full Walk 0`` makes the disk full there, and other seeds wait in that round until somebody ends them; ``hold`` makes
all of them wait there. ``pause`` makes every round take half a second.
"""

import errno
import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from toy_learner import Toy

from vnetsim.learning import Participant, Update
from vnetsim.runs import session

if os.environ.get("WALK_TROUBLE"):  # also in the processes of workers: whoever is ended after a round has saved it
    session.SAFE_EVERY_S = 0.0

HELD_S = 1500
"""Longer than any test may take: what is held is ended, and a test that forgets it leaves nothing for ever."""


def full(_: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Walk(Toy):
    name: ClassVar[str] = "walk"
    offset: ClassVar[float] = 0.0

    def train(self, participants: Sequence[Participant]) -> Sequence[Update]:
        self._trouble(participants)
        return super().train(participants)

    def evaluate(self, *, final: bool) -> Mapping[str, float]:
        return {"distance": super().evaluate(final=final)["distance"] + self.offset}

    def _trouble(self, participants: Sequence[Participant]) -> None:
        path = Path(os.environ.get("WALK_TROUBLE", "nowhere"))
        if not path.is_file():
            return
        if path.read_text() == "pause":
            time.sleep(0.5)
            return
        if not participants or participants[0].round != 2:
            return
        kind, learner, seed, *rest = f"{path.read_text()} - -1".split()
        if kind == "hold" or (kind == "full" and int(seed) != self._streams.seed):
            time.sleep(HELD_S)
        if (learner, int(seed)) != (type(self).__name__, self._streams.seed):
            return
        if "once" in rest:
            path.unlink()
        if kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "full":
            os.fsync = full


class Shifted(Walk):
    """Its result is larger by one."""

    name: ClassVar[str] = "shifted"
    offset: ClassVar[float] = 1.0
