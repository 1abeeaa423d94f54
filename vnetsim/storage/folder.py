"""Writes, checks and removes the files of a folder so that a kill or power cut leaves each file old or new.

A file is written under a temporary name, synchronised and renamed; then its folder is synchronised. Every file is
checked when read against the record ``checksums.sha256``; except pages and figures: they are made from the other files
and have no checksum.

Before a file changes, a record that accepts its old and its new content replaces the record. So whenever a program
stops, the record accepts every file.

A folder may come from anybody: nothing is written or removed through a symbolic link.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar

from vnetsim.errors import InputError, RunError
from vnetsim.storage import disk
from vnetsim.storage.checksums import ABSENT, RECORD, Checksums, file_sha256, parse_checksums, sha256
from vnetsim.storage.disk import Content
from vnetsim.storage.records import COMPARISON, PLACES

T = TypeVar("T")

_ATTEMPTS = 3

Prepared = dict[str, tuple[Path, str]]
"""Temporary path and digest of new files, by final name."""

LOCK = ".lock"
PARTS_LOCK = ".parts.lock"
"""Lock of those files of a comparison that all its parts change; a comparison that ran in parts has this file."""
FIRST = ("experiment.toml", "map.parquet", "silos.parquet", "partition.csv")
"""Files that a run writes before its manifest; the manifest means that the run has begun."""
_BESIDE = ("sumo", "traffic")
"""Subfolders that the record does not list: files of SUMO, and traffic of a comparison, which has its own records."""

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}\.tmp")
"""Temporary names. The pattern is strict because files with such names are removed."""


class Folder:
    """The folder at ``path``, which need not exist yet. One process at a time may write; others may read.

    Names of files are relative to ``path``. What writes or removes raises RunError if the disk is full or not writable,
    and InputError if the path leads outside or a folder on the way is a symbolic link.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._read: Checksums | None = None  # the record when last read
        self._own: Checksums | None = None  # the record as this object wrote it, None before
        self._made: list[Path] = []  # folders that `make` made, the highest first

    def holds(self, name: str) -> bool:
        """Return whether the file exists; InputError if it does not although ``checksums.sha256`` requires it."""
        if (self.path / name).is_file():
            return True
        self._refuse_gone(name)
        return False

    def read_bytes(self, name: str) -> bytes:
        """Return the content of a file; InputError if it is missing, unreadable, altered or not in its checksums."""
        return self._read_checked(name, lambda path: (content := path.read_bytes(), sha256(content)))

    def checked_path(self, name: str) -> Path:
        """Check the SHA-256 of a file, and return its path, for readers of large files; raises like ``read_bytes``."""
        return self._read_checked(name, lambda path: (path, file_sha256(path)))

    def _read_checked(self, name: str, read: Callable[[Path], tuple[T, str]]) -> T:
        """Return the content of ``read(path)``, (content, digest); InputError unless the record accepts the digest."""
        path = self.path / name
        # Another process may be writing: it replaces the record, then the file. So read the file first, and both again
        # if they do not match; only an altered file never matches.
        try:
            for attempt in range(_ATTEMPTS):
                found, digest = read(path)
                if self._record(again=attempt > 0).accepts(name, digest):
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
        """Raise InputError if a file is missing although the record lists it and does not accept its absence."""
        for attempt in range(_ATTEMPTS):
            if self._record(again=attempt > 0).accepts(name, ABSENT) or (self.path / name).is_file():
                return
        raise InputError(f"{self.path / name}: gone since it was written; put it back.")

    def _record(self, *, again: bool = False) -> Checksums:
        """Return the record as this object last wrote it, else as last read; ``again`` reads it from the disk."""
        if self._own is not None and not again:
            return self._own
        if again or self._read is None:
            self._read = self._load_record()
        return self._read

    def _load_record(self) -> Checksums:
        """Return the record on the disk, an empty one if there is none; InputError if it is unreadable or altered."""
        path = self.path / RECORD
        try:
            return parse_checksums(path.read_bytes(), str(path))
        except (FileNotFoundError, NotADirectoryError):
            return Checksums()
        except OSError as error:
            raise InputError(f"{path}: unreadable: {error.strerror}.") from error

    def has_content(self, name: str, digest: str) -> bool:
        """Return whether ``checksums.sha256`` accepts this digest for the file; the file itself is not read."""
        return self._record().accepts(name, digest)

    def names(self, subfolder: str) -> list[str]:
        """Return the sorted names, such as ``rounds/000000.parquet``, of recorded files directly in a subfolder.

        A missing file is left out if the record accepts it as absent; otherwise InputError.
        """
        names = (name for name in self._record().files if name.rpartition("/")[0] == subfolder)
        return sorted(name for name in names if self.holds(name))

    def verify(self, *patterns: str) -> None:
        """Check recorded files with names like a pattern (``fnmatch``); InputError if altered, or gone but required."""
        for name, digests in self._record().files.items():
            if any(fnmatchcase(name, pattern) for pattern in patterns) and (ABSENT not in digests or self.holds(name)):
                self.checked_path(name)

    def put(self, files: Mapping[str, Content], remove: Iterable[str] = ()) -> None:
        """Write ``files``, contents by name, then remove the files named in ``remove``; missing ones are ignored.

        The last of ``files`` may refer to the others: it is written when they are on the disk. After an error each file
        is old or new. RunError if writing fails or the folder was removed since the last write.
        """
        gone = [name for name in remove if os.path.lexists(self.path / name)]
        if not files and not gone:
            return
        if self._own is not None and not (self.path / RECORD).is_file():
            raise RunError(f"{self.path}: removed while it was written to; what it held is gone.")
        with _new_files() as new:
            for name, content in files.items():
                self._prepare(name, content, new)
            digests = {name: digest for name, (_, digest) in new.items()}
            before = self._record_before_change()
            # until the change is complete, also after an error, old and new content are both right
            during = before.during_change(digests, gone)
            self.write_output(RECORD, during.to_bytes())
            self._own = during
            names = list(files)
            self._place(names[:-1], new)
            self._place(names[-1:], new)
        for name in gone:
            self._change(name, disk.unlink)
        self._sync_folders(gone)
        self._own = during.after_change(digests, gone)

    def settle(self) -> None:
        """Rewrite ``checksums.sha256`` so that it no longer accepts contents that ``put`` replaced or removed."""
        if self._own is not None and self._own.to_bytes() != self._load_record().to_bytes():
            self.write_output(RECORD, self._own.to_bytes())

    def write_output(self, name: str, content: bytes) -> None:
        """Write a file without a checksum, such as a page or a figure; after an error it is unchanged."""
        with _new_files() as new:
            self._prepare(name, content, new)
            self._place([name], new)

    def make(self) -> None:
        """Make the folder and its parents, as far as they are missing.

        OSError, not RunError, if one cannot be made; ``unmake`` removes those made. InputError if a cell is a link.
        """
        self._refuse_linked_cell()
        for path in reversed([self.path, *self.path.parents]):
            if not path.exists():
                disk.make_folder(path)
                self._made.append(path)
                disk.sync(path.parent)

    def unmake(self) -> None:
        """Remove the folders that ``make`` made, if empty; none of them if one is a symbolic link by now."""
        if not any(path.is_symlink() for path in self._made):
            for path in reversed(self._made):
                with suppress(OSError):
                    disk.remove_folder(path)
        self._made.clear()

    def remove_leftovers(self) -> None:
        """Remove temporary files that a killed process left, in subfolders too; no other process may be writing."""
        self._refuse_linked_cell()
        for path in self.leftovers():
            disk.unlink(path)

    def leftovers(self) -> list[Path]:
        """Return the paths of temporary files, also in subfolders, left by a killed process or being written now."""
        return [Path(folder) / name for folder, _, names in os.walk(self.path) for name in names if is_leftover(name)]

    def has_not_begun(self) -> bool:
        """Return whether the folder, which must exist, has at most the files that a run writes before its manifest."""
        names = os.listdir(self.path)  # noqa: PTH208
        own = {*(name for name in FIRST if name in self._record().files), *(_BESIDE[:1] if RECORD in names else ())}
        return all(name in own or is_own(name) for name in names)

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with its contents, if it exists; a link is removed, not followed."""
        self._change(name, _remove_tree)

    def claim(self) -> None:
        """Write an empty ``checksums.sha256``, which marks the folder as vnetsim's, so that ``clear`` may empty it."""
        self._own = Checksums()
        self.write_output(RECORD, self._own.to_bytes())

    def clear(self) -> None:
        """Remove all except the lock and ``unrecorded_names()``; do nothing if there is no ``checksums.sha256``."""
        if not (self.path / RECORD).is_file():
            return
        kept = {LOCK, RECORD, *self.unrecorded_names()}
        for name in os.listdir(self.path):  # noqa: PTH208
            if name not in kept:
                self.remove(name)
        self.remove(RECORD)  # last: without it nothing here is vnetsim's
        self._own = self._read = None

    def unrecorded_names(self) -> list[str]:
        """Return sorted names of files and subfolders that are not vnetsim's, except subfolders without a file."""
        ours = {LOCK, RECORD, *_BESIDE, *(name.partition("/")[0] for name in self._load_record().files)}
        names = sorted(os.listdir(self.path))  # noqa: PTH208
        return [name for name in names if name not in ours and not is_leftover(name) and _holds_files(self.path / name)]

    def path_of(self, name: str) -> Path:
        """Return the path of ``name``, which may be missing; InputError if it is outside or in a linked folder."""
        path = Path(name)
        if path.is_absolute() or ".." in path.parts:
            raise InputError(f"{self.path}: '{name}' leads outside of this folder.")
        self._refuse_linked_cell()
        part = self.path
        for component in path.parts[:-1]:
            part /= component
            _refuse_link(part)
        return self.path / path

    def _refuse_linked_cell(self) -> None:
        """Raise InputError if this is a cell or traffic of a comparison, and it or its parent is a symbolic link."""
        path = Path(os.path.abspath(self.path))  # noqa: PTH100 - does not follow links
        if path.parent.name in PLACES and (path.parents[1] / COMPARISON).is_file():
            _refuse_link(path.parent)
            _refuse_link(path)

    def _record_before_change(self) -> Checksums:
        """Return the record last written by this object; before its first, the disk's, reduced to present contents."""
        if self._own is None:
            own = dict(self._load_record().files)
            for name, digests in own.items():
                path = self.path / name
                if len(digests) > 1 and (here := file_sha256(path) if path.is_file() else ABSENT) in digests:
                    own[name] = frozenset({here})
            self._own = Checksums({name: digests for name, digests in own.items() if digests != {ABSENT}})
        return self._own

    def _prepare(self, name: str, content: Content, new: Prepared) -> None:
        """Write a file under a temporary name, synchronise it, and add its temporary path and digest to ``new``."""

        def prepare(path: Path) -> None:
            """Make missing folders, and write ``content`` to a temporary file beside ``path``."""
            for folder in reversed([path.parent, *path.parent.parents]):
                if not folder.exists():
                    disk.make_folder(folder)
                    disk.sync(folder.parent)
            temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
            new[name] = temporary, ""
            disk.write(temporary, content)
            disk.sync(temporary)
            new[name] = temporary, sha256(content) if isinstance(content, bytes) else file_sha256(temporary)

        self._change(name, prepare)

    def _place(self, names: Sequence[str], new: Prepared) -> None:
        """Rename prepared files to their final names, in order, and synchronise the folders."""
        for name in names:
            self._change(name, lambda path, name=name: disk.replace(new[name][0], path))  # type: ignore[misc]
        self._sync_folders(names)

    def _sync_folders(self, names: Iterable[str]) -> None:
        """Synchronise the folders that contain these files."""
        for folder in dict.fromkeys(str(Path(name).parent) for name in names):
            self._change(folder, disk.sync)

    def _change(self, name: str, change: Callable[[Path], None]) -> None:
        """Call ``change`` with the path of ``name``; its OSError becomes RunError. Also raises like ``path_of``."""
        path = self.path_of(name)
        try:
            change(path)
        except OSError as error:
            line = f"{path}: cannot write: {error.strerror or error}. What was finished before is kept."
            raise RunError(line) from error


def _refuse_link(path: Path) -> None:
    """Raise InputError if the path is a symbolic link."""
    if path.is_symlink():
        raise InputError(f"{path}: a symbolic link; vnetsim writes and removes nothing through it. Remove it.")


def _holds_files(path: Path) -> bool:
    """Return whether a path is no folder, or one with a file in it at any depth; joined tables leave empty folders."""
    return path.is_symlink() or not path.is_dir() or any(not one.is_dir() for one in path.rglob("*"))


@contextmanager
def _new_files() -> Iterator[Prepared]:
    """Give the block a dictionary for its temporary files; remove those files if the block raises."""
    new: Prepared = {}
    try:
        yield new
    except (Exception, KeyboardInterrupt):
        for path, _ in new.values():
            with suppress(OSError):
                disk.unlink(path)
        raise


def is_own(name: str) -> bool:
    """Return whether this is the name of a lock, of the record or of a temporary file: none of them is a result."""
    return name in {LOCK, PARTS_LOCK, RECORD} or is_leftover(name)


def is_leftover(name: str) -> bool:
    """Return whether this is the name of a temporary file."""
    return _TEMPORARY.fullmatch(name) is not None


def _remove_tree(path: Path) -> None:
    """Remove a file, a link (not its target), or a folder with its contents."""
    if path.is_dir() and not path.is_symlink():
        for name in os.listdir(path):  # noqa: PTH208 - closes the folder at once
            _remove_tree(path / name)
        disk.remove_folder(path)
    else:
        disk.unlink(path)


def json_bytes(value: Any) -> bytes:
    """Return a value as indented JSON with sorted keys, in UTF-8."""
    return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True).encode()
