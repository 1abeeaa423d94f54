"""Reads a folder and checks every file against ``checksums.sha256``, which the command ``sha256sum -c`` reads too.

Before a file changes, a record that accepts its old and its new content replaces the record. So whenever a program
stops, the record accepts every file. Comment lines (``#``) contain the second content of such a file and a checksum of
the record itself. The checksums reveal damage and careless changes, not forgery: anybody can compute new ones.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeVar

from vnetsim.errors import InputError

T = TypeVar("T")

RECORD = "checksums.sha256"
ABSENT = "absent"
_HEAD = "# vnetsim: SHA-256 of the files of this folder, for sha256sum -c"
_LINE = re.compile(r"(?P<or># or )?(?P<escaped>\\?)(?P<digest>[0-9a-f]{64}|absent)  (?P<name>.+)")
_END = "# all lines above: "
_ATTEMPTS = 3


def sha256(content: bytes) -> str:
    """Return the SHA-256 of bytes in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True)
class Checksums:
    """The accepted contents of a folder's files."""

    # digests by path relative to the folder; ``ABSENT`` among them if the file may be missing
    files: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def during_change(self, written: Mapping[str, str], removed: Iterable[str]) -> Checksums:
        """Return the record to use while files are written (digests by name) or removed; it accepts old and new."""
        files = dict(self.files)
        for name, digest in (*written.items(), *((name, ABSENT) for name in removed)):
            files[name] = files.get(name, frozenset({ABSENT})) | {digest}
        return Checksums(files)

    def after_change(self, written: Mapping[str, str], removed: Iterable[str]) -> Checksums:
        """Return the record to use after files were written (digests by name) or removed."""
        gone = set(removed)
        files = {name: digests for name, digests in self.files.items() if name not in gone}
        return Checksums(files | {name: frozenset({digest}) for name, digest in written.items()})

    def text(self) -> bytes:
        """Return the record as the content of its file; a file that is accepted only as absent is left out."""
        lines = [_HEAD]
        for name, digests in sorted(self.files.items()):
            known = sorted(digests - {ABSENT})
            if not known:
                continue
            escaped = name.replace("\\", "\\\\").replace("\n", "\\n")
            mark = "\\" if escaped != name else ""
            lines.append(f"{mark}{known[0]}  {escaped}")
            others = [*known[1:], *([ABSENT] if ABSENT in digests else [])]
            lines += [f"# or {mark}{digest}  {escaped}" for digest in others]
        body = "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")
        return body + f"{_END}{sha256(body)}\n".encode()


def parse(content: bytes, where: str) -> Checksums:
    """Read a record that ``Checksums.text`` wrote; InputError, which names ``where``, if altered or cut off."""
    fault = InputError(f"{where}: altered or cut; put it back as vnetsim wrote it.")
    body, mark, end = content.rpartition(_END.encode())
    if not mark or not body.startswith(f"{_HEAD}\n".encode()) or end != f"{sha256(body)}\n".encode():
        raise fault
    files: dict[str, frozenset[str]] = {}
    for line in body.decode("utf-8", "surrogateescape").split("\n")[1:-1]:
        found = _LINE.fullmatch(line)
        if found is None:
            raise fault
        name = found["name"]
        if found["escaped"]:
            name = re.sub(r"\\(.)", lambda pair: "\n" if pair[1] == "n" else pair[1], name)
        files[name] = (files.get(name, frozenset()) if found["or"] else frozenset()) | {found["digest"]}
    return Checksums(files)


class CheckedFolder:
    """Reader of the folder at ``path``, which need not exist yet. Its record is the file ``checksums.sha256``."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._read: Checksums | None = None  # the record when last read
        self._own: Checksums | None = None  # the record as this object wrote it, None before

    def holds(self, name: str) -> bool:
        """Return whether the file exists; InputError if the record lists it and it does not."""
        if (self.path / name).is_file():
            return True
        self._refuse_gone(name)
        return False

    def read_bytes(self, name: str) -> bytes:
        """Return the content of a file; InputError if it is missing, unreadable or altered."""
        return self._read_checked(name, lambda path: (content := path.read_bytes(), sha256(content)))

    def checked(self, name: str) -> Path:
        """Check a file and return its path, for readers of large ones; InputError if missing, unreadable or altered."""
        return self._read_checked(name, lambda path: (path, file_sha256(path)))

    def _read_checked(self, name: str, look: Callable[[Path], tuple[T, str]]) -> T:
        """Return what ``look`` reads from a file; InputError unless the record accepts the digest it also returns."""
        path = self.path / name
        # Another process may be writing: it replaces the record, then the file. So read the file first, and both again
        # if they do not match; only an altered file never matches.
        try:
            for attempt in range(_ATTEMPTS):
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
        """Raise InputError if a file is missing that the record lists and does not accept as absent."""
        for attempt in range(_ATTEMPTS):
            if _admits(self._record(again=attempt > 0), name, ABSENT) or (self.path / name).is_file():
                return
        raise InputError(f"{self.path / name}: gone since it was written; put it back.")

    def _record(self, *, again: bool = False) -> Checksums:
        """Return the record that this object wrote, else the one last read; ``again`` reads it from the disk."""
        if self._own is not None and not again:
            return self._own
        if again or self._read is None:
            self._read = self._load_record()
        return self._read

    def _load_record(self) -> Checksums:
        """Read the record from the disk, without keeping it; return an empty one if there is none."""
        path = self.path / RECORD
        try:
            return parse(path.read_bytes(), str(path))
        except (FileNotFoundError, NotADirectoryError):
            return Checksums()
        except OSError as error:
            raise InputError(f"{path}: unreadable: {error.strerror}.") from error

    def has_content(self, name: str, digest: str) -> bool:
        """Return whether the record accepts this digest for the file; the file itself is not read."""
        return digest in self._record().files.get(name, ())

    def names(self, below: str) -> list[str]:
        """Return the sorted names, relative to the folder, of recorded files directly in its subfolder ``below``.

        Raises:
            InputError: one is missing that the record does not accept as absent.
        """
        return sorted(name for name in self._record().files if name.rpartition("/")[0] == below and self.holds(name))

    def verify(self, *patterns: str) -> None:
        """Check the recorded files whose names match one of the patterns (``fnmatch``).

        A file that the record accepts as absent may be missing. Files that the record does not list are not checked.

        Raises:
            InputError: names the first that is missing or altered.
        """
        for name, digests in self._record().files.items():
            if any(fnmatchcase(name, pattern) for pattern in patterns) and (ABSENT not in digests or self.holds(name)):
                self.checked(name)


def _admits(record: Checksums, name: str, digest: str) -> bool:
    """Return whether the record accepts a file's digest, or ``ABSENT``; an unlisted file is accepted only as absent."""
    return digest in record.files.get(name, {ABSENT})


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal, without loading all of it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
