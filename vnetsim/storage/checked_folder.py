"""Reads a folder and checks every file against ``checksums.sha256``."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeVar

from vnetsim.errors import InputError
from vnetsim.storage.checksums import ABSENT, RECORD, Checksums, parse, sha256

T = TypeVar("T")

ATTEMPTS = 3


class CheckedFolder:
    """Reader of the folder at ``path``, which need not exist yet."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._read: Checksums | None = None  # the record when last read
        self._own: Checksums | None = None  # the record as this object wrote it, None before

    def holds(self, name: str) -> bool:
        """Return whether the file exists.

        Raises:
            InputError: it does not, although the record lists it.
        """
        if (self.path / name).is_file():
            return True
        self._refuse_gone(name)
        return False

    def read_bytes(self, name: str) -> bytes:
        """Return the content of a file.

        Raises:
            InputError: it is missing, unreadable or altered.
        """
        return self._checked(name, lambda path: (content := path.read_bytes(), sha256(content)))

    def checked(self, name: str) -> Path:
        """Check a file and return its path, for readers of large files.

        Raises:
            InputError: it is missing, unreadable or altered.
        """
        return self._checked(name, lambda path: (path, file_sha256(path)))

    def _checked(self, name: str, look: Callable[[Path], tuple[T, str]]) -> T:
        """Return what ``look`` reads from a file (with its digest), if the record accepts the digest."""
        path = self.path / name
        # Another process may be writing: it replaces the record, then the file. So read the file first, and both again
        # if they do not match; only an altered file never matches.
        try:
            for attempt in range(ATTEMPTS):
                found, digest = look(path)
                if _admits(self._record(again=attempt > 0), name, digest):
                    return found
        except (FileNotFoundError, NotADirectoryError):
            self._refuse_gone(name)
            raise InputError(f"{path}: missing.") from None
        except OSError as error:
            raise InputError(f"{path}: unreadable: {error.strerror}.") from error
        if not (self.path / RECORD).is_file():
            raise InputError(f"{self.path / RECORD}: missing, so that nothing here can be checked; put it back.")
        if name not in self._record().files:
            raise InputError(f"{path}: was not written by vnetsim, {RECORD} does not tell of it; remove it.")
        raise InputError(f"{path}: altered or damaged since it was written, by its SHA-256; put it back.")

    def _refuse_gone(self, name: str) -> None:
        for attempt in range(ATTEMPTS):
            if _admits(self._record(again=attempt > 0), name, ABSENT) or (self.path / name).is_file():
                return
        raise InputError(f"{self.path / name}: gone since it was written; put it back.")

    def _record(self, *, again: bool = False) -> Checksums:
        if self._own is not None and not again:
            return self._own
        if again or self._read is None:
            self._read = self._look()
        return self._read

    def _look(self) -> Checksums:
        """Return the record on the disk; an empty one if there is none."""
        path = self.path / RECORD
        try:
            return parse(path.read_bytes(), str(path))
        except (FileNotFoundError, NotADirectoryError):
            return Checksums()
        except OSError as error:
            raise InputError(f"{path}: unreadable: {error.strerror}.") from error

    def has_content(self, name: str, digest: str) -> bool:
        """Return whether the record lists a file with this content."""
        return digest in self._record().files.get(name, ())

    def names(self, below: str) -> list[str]:
        """Return the names of the recorded, existing files directly in the subfolder ``below``."""
        return sorted(name for name in self._record().files if name.rpartition("/")[0] == below and self.holds(name))

    def verify(self, *patterns: str) -> None:
        """Check all recorded files whose names match one of the patterns (``fnmatch``).

        Raises:
            InputError: names the first that is missing or altered.
        """
        for name, digests in self._record().files.items():
            if any(fnmatchcase(name, pattern) for pattern in patterns) and (ABSENT not in digests or self.holds(name)):
                self.checked(name)


def _admits(record: Checksums, name: str, digest: str) -> bool:
    return digest in record.files.get(name, {ABSENT})


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal, without loading all of it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
