"""A folder whose files are checked against ``checksums.sha256`` whenever they are read."""

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
    """A folder at ``path``, which need not exist yet, to be read."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._read: Checksums | None = None  # what the last look at the record showed
        self._own: Checksums | None = None  # the record as this object wrote it

    def holds(self, name: str) -> bool:
        """Return whether the file is there.

        Raises:
            InputError: it is not, although the checksums tell of it.
        """
        if (self.path / name).is_file():
            return True
        self._refuse_gone(name)
        return False

    def read_bytes(self, name: str) -> bytes:
        """Return the content of a file.

        Raises:
            InputError: it is missing, cannot be read, or is not what was written.
        """
        return self._checked(name, lambda path: (content := path.read_bytes(), sha256(content)))

    def checked(self, name: str) -> Path:
        """Return the path of a file whose content was found to be what was written, for readers of large files.

        Raises:
            InputError: it is missing, cannot be read, or is not what was written.
        """
        return self._checked(name, lambda path: (path, file_sha256(path)))

    def _checked(self, name: str, look: Callable[[Path], tuple[T, str]]) -> T:
        """Return what ``look`` finds in a file, if its digest is one that the record admits.

        A process that is writing replaces the record first, then the file. Here the file is read first, and both again
        if they do not fit: only what was altered never does.
        """
        path = self.path / name
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
        """Return the record as it is on the disk; an empty one where there is none."""
        path = self.path / RECORD
        try:
            return parse(path.read_bytes(), str(path))
        except (FileNotFoundError, NotADirectoryError):
            return Checksums()
        except OSError as error:
            raise InputError(f"{path}: unreadable: {error.strerror}.") from error

    def has_content(self, name: str, digest: str) -> bool:
        """Return whether the checksums tell of a file with this content."""
        return digest in self._record().files.get(name, ())

    def names(self, below: str) -> list[str]:
        """Return the names of the files directly in a folder of which the checksums tell and which are there."""
        return sorted(name for name in self._record().files if name.rpartition("/")[0] == below and self.holds(name))

    def verify(self, *patterns: str) -> None:
        """Check all files whose names match one of the patterns (``fnmatch``) and of which the checksums tell.

        Raises:
            InputError: names the first that is gone or is not what was written.
        """
        for name, digests in self._record().files.items():
            if any(fnmatchcase(name, pattern) for pattern in patterns) and (ABSENT not in digests or self.holds(name)):
                self.checked(name)


def _admits(record: Checksums, name: str, digest: str) -> bool:
    return digest in record.files.get(name, {ABSENT})


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
