"""Commands that are stopped at every change of the disk: what they leave, and how they go on."""

import functools
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from learner_checks import one_thread

sys.path.insert(0, str(Path(__file__).parent))

from commands import Command
from crash_disk import CrashDisk, Watched
from small_runs import undrawn

from vnetsim.errors import VnetsimError
from vnetsim.runs import manifest, session, traffic_recording
from vnetsim.storage import run_directory
from vnetsim.storage.checksums import file_sha256
from vnetsim.storage.folder import is_leftover
from vnetsim.storage.run_directory import RunDirectory

__all__ = ["undrawn"]

TOLD = {"manifest.json", "checksums.sha256", "report.html", "comparison.html", ".lock"}
"""Files that tell when something was run."""
WRITING = {"write", "sync", "make_folder"}
"""Changes that a full disk refuses; until the next of them nothing differs from a disk that fills up there."""


@pytest.fixture(autouse=True)
def small(monkeypatch) -> None:
    """Small pieces of tables, and a run that is safe after every round."""
    monkeypatch.setattr(run_directory, "PIECE_ROWS", 4)
    monkeypatch.setattr(traffic_recording, "SAFE_EVERY_S", math.inf)  # a slow machine would make other changes
    monkeypatch.setattr(session, "SAFE_EVERY_S", 0.0)
    monkeypatch.setattr(manifest, "environment", functools.cache(manifest.environment))


@pytest.fixture(autouse=True, scope="module")
def in_one_thread() -> Iterator[None]:
    with one_thread():
        yield


def results(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every result in a folder, those of runs within it included."""
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {
        name: path.read_bytes() for name, path in files.items() if path.name not in TOLD and not is_leftover(path.name)
    }


@pytest.fixture
def results_of() -> Callable[[Path], dict[str, bytes]]:
    return results


def state(folder: Path) -> object:
    """Return what a folder holds, but for times of day, and of what was being written only the name."""
    found = []
    for path in sorted(folder.rglob("*")):
        content: object
        if is_leftover(path.name):
            found.append((str(path.relative_to(folder))[: -len("01234567.tmp")], ""))
            continue
        if path.is_dir():
            content = "" if any(path.iterdir()) else "empty"
        elif path.name == "manifest.json":
            content = json.loads(path.read_bytes())["status"]
        elif path.name == "checksums.sha256":
            lines = path.read_text().splitlines()
            content = tuple(re.sub("[0-9a-f]{64}  manifest.json", "manifest", line) for line in lines[:-1])
        else:
            content = file_sha256(path)
        found.append((str(path.relative_to(folder)), content))
    return tuple(sorted(found, key=str))


def message_of(command: Command, folder: Path) -> str:
    """Start a command; return what the user is told when it fails."""
    try:
        command.start(folder)
    except VnetsimError as error:
        return str(error)
    return ""


def checked(folder: Path, command: Command, whole: dict[str, bytes], words: str) -> None:
    """Go on with a stopped command, and check what it comes to."""
    command.again(folder)
    found = results(folder)
    assert found.keys() == whole.keys(), words
    assert [name for name in whole if found[name] != whole[name]] == [], words
    for record in ("manifest.json", "comparison.json"):
        for path in folder.rglob(record):
            RunDirectory(path.parent).verify("*")


@pytest.fixture
def killed_everywhere(tmp_path) -> Callable[[Command], int]:
    """Kill a command, and cut its power, before every change; check that it goes on to the same bits.

    Returns the number of changes. The command runs once, on a disk that keeps all that could be left.
    """

    def kill(command: Command) -> int:
        folder = tmp_path / "whole"
        (tmp_path / "copies").mkdir()
        disk = Watched(folder, tmp_path / "copies", state)
        with disk.installed():
            command.start(folder)
        whole = results(folder)
        for words, copy in disk.states.values():
            checked(copy, command, whole, words)
        print(f"kill, power: {len(disk.calls)} changes, {len(disk.states)} states")
        return len(disk.calls)

    return kill


@pytest.fixture
def failed_everywhere(tmp_path) -> Callable[[str, Command], int]:
    """Let every change of a command fail in turn; check that it ends in one line and goes on to the same bits.

    How: ``full``, a full disk; ``error``, a failing one; ``both``, each change by one of the two in turn, for commands
    of which both at every change would take minutes. With ``VNETSIM_EVERY_FAULT=1`` in the environment, that is the
    full disk at every change, then the failing one. Returns the number of changes.
    """

    def fail(how: str, command: Command) -> int:
        if how == "both" and os.environ.get("VNETSIM_EVERY_FAULT"):
            return max(fail_by("full", command), fail_by("error", command))
        return fail_by(how, command)

    def fail_by(how: str, command: Command) -> int:
        (tmp_path / how).mkdir()
        disk = CrashDisk()
        with disk.installed():
            command.start(tmp_path / how / "whole")
        whole = results(tmp_path / how / "whole")
        changes, tried = disk.calls, 0
        seen: set[object] = set()
        for number, change in enumerate(changes):
            if how == "full" and change not in WRITING:
                continue
            tried += 1
            folder = tmp_path / how / str(number)
            kind = ("full" if change in WRITING and tried % 2 else "error") if how == "both" else how
            disk = CrashDisk(number, kind)
            with disk.installed():
                told = message_of(command, folder)
            assert "\n" not in told
            assert disk.calls[: number + 1] == changes[: number + 1]
            if (left := state(folder)) not in seen:
                seen.add(left)
                checked(folder, command, whole, f"{kind} at change {number}, {change}")
        print(f"{how}: {len(changes)} changes, {tried} of them failed, {len(seen)} states")
        return len(changes)

    return fail


@pytest.fixture
def engine(monkeypatch) -> Callable[[Any], None]:
    """Make a comparison of one worker use an engine."""
    from vnetsim.study import runner  # noqa: PLC0415

    return lambda chosen: monkeypatch.setattr(runner, "run_here", chosen)
