"""A disk that stops at a given change, and forgets what was not synchronised; it replaces ``vnetsim.storage.disk``."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from vnetsim.storage import disk

CHANGES = ("write", "sync", "replace", "unlink", "make_folder", "remove_folder")


class CrashDisk:
    """Counts the changes of a disk, and fails one of them.

    Args:
        fail_at: the change that fails, counted from 0; None for none.
        how: ``"full"``: no space is left from this change on; ``"error"``: this change fails alone.
    """

    def __init__(self, fail_at: int | None = None, how: str = "error") -> None:
        self.calls: list[str] = []
        self._fail_at = fail_at
        self._how = how
        self._undo: list[
            tuple[Path, Callable[[], None]]
        ] = []  # by folder whose names, or file whose bytes, may be lost
        self._true: dict[str, Callable[..., None]] = {name: getattr(disk, name) for name in CHANGES}

    def change(self, name: str, *arguments: Any) -> None:
        """Do a change of the disk, or fail."""
        self.calls.append(name)
        number = len(self.calls) - 1
        if self._fail_at is not None and number >= self._fail_at:
            if self._how == "full" and name in {"write", "make_folder", "sync"}:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if self._how == "error" and number == self._fail_at:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        if self._how == "power":
            self._remember(name, *arguments)
        self._true[name](*arguments)

    def lose(self, at: Callable[[Path], Path] = lambda path: path) -> None:
        """Undo, newest first, what was not synchronised, in a copy where ``at`` finds the files."""
        for _, undo in reversed(self._undo):
            undo(at)

    def _remember(self, name: str, *arguments: Any) -> None:
        path = Path(arguments[0])
        if name == "sync":
            self._undo = [(place, undo) for place, undo in self._undo if place != path]
        elif name == "write":
            self._undo.append((path.parent, lambda at: at(path).unlink(missing_ok=True)))
            self._undo.append((path, lambda at: at(path).write_bytes(b"") if at(path).exists() else None))
        elif name == "make_folder":
            self._undo.append((path.parent, lambda at: shutil.rmtree(at(path), ignore_errors=True)))
        elif name == "remove_folder":
            self._undo.append((path.parent, lambda at: at(path).mkdir()))
        elif os.path.lexists(path):
            content = path.read_bytes()
            if name == "unlink":
                self._undo.append((path.parent, lambda at: at(path).write_bytes(content)))
                return
            target = Path(arguments[1])
            # a name may be on the disk before the bytes behind it are
            self._undo = [
                (target, lambda at: at(target).write_bytes(b"")) if place == path else (place, undo)
                for place, undo in self._undo
            ]
            old = target.read_bytes() if target.exists() else None

            def back(at: Callable[[Path], Path]) -> None:
                at(path).write_bytes(content)
                at(target).unlink(missing_ok=True) if old is None else at(target).write_bytes(old)

            self._undo.append((path.parent, back))

    @contextmanager
    def installed(self) -> Iterator[CrashDisk]:
        """Stand behind ``vnetsim.storage.disk``."""
        with pytest.MonkeyPatch.context() as patch:
            for name in CHANGES:
                patch.setattr(disk, name, lambda *arguments, name=name: self.change(name, *arguments))
            yield self


class Watched(CrashDisk):
    """A disk that never fails, and keeps all that a kill or a power cut could leave of a folder.

    Args:
        folder: the folder.
        copies: where to keep it, each different state once.
        alike: what tells states apart, of a folder.
    """

    def __init__(self, folder: Path, copies: Path, alike: Callable[[Path], object]) -> None:
        super().__init__(how="power")
        self._folder = folder
        self._copies = copies
        self._alike = alike
        self.states: dict[object, tuple[str, Path]] = {}

    def change(self, name: str, *arguments: Any) -> None:
        """Keep what there is, then do the change."""
        for how in ("kill", "power"):
            copy = self._copies / f"{len(self.calls)}-{how}"
            if self._folder.exists():
                shutil.copytree(self._folder, copy, symlinks=True)
            if how == "power":
                self.lose(lambda path, copy=copy: copy / path.relative_to(self._folder))  # type: ignore[misc]
            state = self._alike(copy)
            if state in self.states:
                shutil.rmtree(copy, ignore_errors=True)
            else:
                self.states[state] = f"{how} at change {len(self.calls)}", copy
        super().change(name, *arguments)
