"""What vnetsim changes in its own process before it trains, and never in one that only looks a learner up."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from vnetsim import __main__ as launch
from vnetsim.study import workers

FAULTS = """
import os, resource
import numpy as np
before = dict(os.environ)
{call}
faults = []
for _ in range(4):
    np.ones(2**26, dtype=np.uint8)
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
print(faults[-1] - faults[-2], {{name for name in os.environ if os.environ[name] != before.get(name)}})
"""
LOOK_UP = "from vnetsim.learning.registry import LEARNERS; LEARNERS.find('fedavg')"
PREPARE = "from vnetsim.process import prepare_process; prepare_process()"


def faults_and_changes(call: str) -> tuple[int, str]:
    """Return page faults of an array of 64 MiB, and the environment variables that changed, in a fresh process."""
    environment = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"}
    command = [sys.executable, "-c", FAULTS.format(call=call)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    faults, changes = done.stdout.split(maxsplit=1)
    return int(faults), changes.strip()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_freed_memory_is_kept_and_waiting_threads_spin_briefly() -> None:
    faults, changes = faults_and_changes(PREPARE)
    assert faults < 16, "else 16,384 of 4 KiB, or 32 of 2 MiB"
    assert changes == "{'GOMP_SPINCOUNT'}"


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_looking_a_learner_up_changes_nothing() -> None:
    faults, changes = faults_and_changes(LOOK_UP)
    assert faults >= 32
    assert changes == "set()"


def test_the_program_and_every_worker_prepare_their_process(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared: list[str] = []
    monkeypatch.setattr("vnetsim.process.prepare_process", lambda: prepared.append("program"))
    monkeypatch.setattr("vnetsim.cli.commands.main", lambda: prepared.append("main"))
    monkeypatch.setattr(launch, "hear_signals", lambda: None)
    launch.main()
    assert prepared == ["program", "main"]
    monkeypatch.setattr(workers, "prepare_process", lambda: prepared.append("worker"))
    monkeypatch.setattr(workers.threading, "Thread", lambda **_: type("T", (), {"start": lambda _: None})())

    class Gone:
        def recv(self) -> None:
            raise EOFError

        def send(self, _: object) -> None: ...

    workers._work(Gone())  # type: ignore[arg-type]
    assert prepared[2:] == ["worker"]
