"""Writes, checks and removes the files of a folder so that a kill or power cut leaves each file old or new.

A file is written under a temporary name, synchronised and renamed; then its folder is synchronised. Every file is
checked when read against the record ``checksums.sha256``, which the command ``sha256sum -c`` reads too; except pages
and figures: they are made from the other files and have no checksum.

Before a file changes, a record that accepts its old and its new content replaces the record. So whenever a program
stops, the record accepts every file. Comment lines (``#``) contain the second content of such a file and a checksum of
the record itself. The checksums reveal damage and careless changes, not forgery: anybody can compute new ones.

A folder may come from anybody: nothing is written or removed through a symbolic link.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar

from vnetsim.errors import InputError, RunError
from vnetsim.storage import disk
from vnetsim.storage.disk import Content
from vnetsim.storage.records import COMPARISON, PLACES

T = TypeVar("T")

RECORD = "checksums.sha256"
ABSENT = "absent"
_HEAD = "# vnetsim: SHA-256 of the files of this folder, for sha256sum -c"
_LINE = re.compile(r"(?P<or># or )?(?P<escaped>\\?)(?P<digest>[0-9a-f]{64}|absent)  (?P<name>.+)")
_END = "# all lines above: "
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


class Folder:
    """The folder at ``path``, which need not exist yet. One process at a time may write; others may read."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._read: Checksums | None = None  # the record when last read
        self._own: Checksums | None = None  # the record as this object wrote it, None before
        self._made: list[Path] = []  # folders that `make` made, the highest first

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

    def put(self, files: Mapping[str, Content], remove: Iterable[str] = ()) -> None:
        """Write files, then remove others.

        Args:
            files: contents by name. The last one may refer to the others: it is written when they are on the disk.
            remove: names of files to remove; missing ones are ignored.

        Raises:
            InputError: a path leads outside, or a folder on the way is a symbolic link.
            RunError: the disk is full or the folder not writable (each file is then old or new); or the folder was
                removed since the last write.
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
            before = self._own_record()
            # until the change is complete, also after an error, old and new content are both right
            during = before.during_change(digests, gone)
            self._write_record(during)
            self._own = during
            names = list(files)
            self._place(names[:-1], new)
            self._place(names[-1:], new)
        for name in gone:
            self._change(name, disk.unlink)
        self._sync(gone)
        self._own = during.after_change(digests, gone)

    def settle(self) -> None:
        """Rewrite the record, which after ``put`` still accepts old contents too, so that it accepts only the new ones.

        Does nothing if this object has written no file. RunError if the record cannot be written.
        """
        if self._own is not None and self._own.text() != self._load_record().text():
            self._write_record(self._own)

    def write_output(self, name: str, content: bytes) -> None:
        """Write a file without a checksum, such as a page or a figure.

        Raises:
            InputError: the path leads outside, or a folder on the way is a symbolic link.
            RunError: the disk is full or the folder not writable; the file is then unchanged.
        """
        with _new_files() as new:
            self._prepare(name, content, new)
            self._place([name], new)

    def make(self) -> None:
        """Make the folder and its parents, as far as they are missing.

        Raises:
            InputError: a folder of a comparison is a symbolic link.
            OSError: it cannot be made; ``unmake`` removes the folders made so far.
        """
        self._refuse_linked_cell()
        for path in reversed([self.path, *self.path.parents]):
            if not path.exists():
                disk.make_folder(path)
                self._made.append(path)
                disk.sync(path.parent)

    def unmake(self) -> None:
        """Remove the folders that ``make`` made and that are empty; nothing if one was replaced by a symbolic link."""
        if not any(path.is_symlink() for path in self._made):  # replaced by a link since: it leads to other folders
            for path in reversed(self._made):
                with suppress(OSError):
                    disk.remove_folder(path)
        self._made.clear()

    def remove_leftovers(self) -> None:
        """Remove temporary files that a killed process left; no other process may be writing."""
        self._refuse_linked_cell()
        for path in self.leftovers():
            disk.unlink(path)

    def leftovers(self) -> list[Path]:
        """Return the paths of temporary files, also in subfolders, left by a killed process or being written now."""
        return [Path(folder) / name for folder, _, names in os.walk(self.path) for name in names if is_leftover(name)]

    def has_not_begun(self) -> bool:
        """Return whether the existing folder is empty or has only what a run killed before its manifest leaves."""
        names = os.listdir(self.path)  # noqa: PTH208
        own = {*(name for name in FIRST if name in self._record().files), *(_BESIDE[:1] if RECORD in names else ())}
        return all(name in own or is_own(name) for name in names)

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with its contents, if it exists; a link is removed, not followed.

        Raises:
            InputError: the path leads outside, or a folder on the way is a symbolic link.
            RunError: it cannot be removed.
        """
        self._change(name, _remove_tree)

    def claim(self) -> None:
        """Write an empty record, which marks the folder as vnetsim's, but none of its files; RunError if that fails."""
        self._own = Checksums()
        self._write_record(self._own)

    def clear(self) -> None:
        """Remove all but ``others()`` and the lock, the record last; nothing without it. RunError if that fails."""
        if not (self.path / RECORD).is_file():
            return
        others = self.others()
        for name in os.listdir(self.path):  # noqa: PTH208
            if name not in {LOCK, RECORD, *others}:
                self.remove(name)
        # the record goes last: without it nothing here is vnetsim's
        self.remove(RECORD)
        self._own = self._read = None

    def others(self) -> list[str]:
        """Return the sorted names in the folder, except recorded ones and folders without files."""
        ours = {LOCK, RECORD, *_BESIDE, *(name.partition("/")[0] for name in self._load_record().files)}
        names = sorted(os.listdir(self.path))  # noqa: PTH208
        return [name for name in names if name not in ours and not is_leftover(name) and _holds_files(self.path / name)]

    def path_of(self, name: str) -> Path:
        """Return the path of ``name``, which may be missing or a link; InputError if outside or in a linked folder."""
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
        """Refuse a cell or traffic of a comparison that is a link or whose parent is; links elsewhere are allowed."""
        path = Path(os.path.abspath(self.path))  # noqa: PTH100 - does not follow links
        if path.parent.name in PLACES and (path.parents[1] / COMPARISON).is_file():
            _refuse_link(path.parent)
            _refuse_link(path)

    def _own_record(self) -> Checksums:
        """Return the record of this object's last write; before that, the disk's, reduced to present files."""
        if self._own is None:
            own = dict(self._load_record().files)
            for name, digests in own.items():
                path = self.path / name
                if len(digests) > 1 and (here := file_sha256(path) if path.is_file() else ABSENT) in digests:
                    own[name] = frozenset({here})
            self._own = Checksums({name: digests for name, digests in own.items() if digests != {ABSENT}})
        return self._own

    def _write_record(self, record: Checksums) -> None:
        """Write ``record`` to the folder."""
        self.write_output(RECORD, record.text())

    def _prepare(self, name: str, content: Content, new: Prepared) -> None:
        """Write a file under a temporary name, enter it in ``new``, and synchronise it."""

        def prepare(path: Path) -> None:
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
        """Rename prepared files to their final names, and synchronise the folders."""
        for name in names:
            self._change(name, lambda path, name=name: disk.replace(new[name][0], path))  # type: ignore[misc]
        self._sync(names)

    def _sync(self, names: Iterable[str]) -> None:
        """Synchronise the folders that contain these files."""
        for folder in dict.fromkeys(str(Path(name).parent) for name in names):
            self._change(folder, disk.sync)

    def _change(self, name: str, change: Callable[[Path], None]) -> None:
        """Call ``change`` on the path of ``name``; OSError becomes RunError. InputError for a path through a link."""
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
    """Return whether a path is a file or a link, or a folder with a file in it; joined tables leave empty folders."""
    return path.is_symlink() or not path.is_dir() or any(not one.is_dir() for one in path.rglob("*"))


@contextmanager
def _new_files() -> Iterator[Prepared]:
    """Collect temporary files in the block; after an error remove them, and leave others to ``remove_leftovers``."""
    new: Prepared = {}
    try:
        yield new
    except (Exception, KeyboardInterrupt):
        for path, _ in new.values():
            with suppress(OSError):
                disk.unlink(path)
        raise


def is_own(name: str) -> bool:
    """Return whether vnetsim may leave a file of this name in a folder before it writes results."""
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
    """Return a value as indented JSON with sorted keys."""
    return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True).encode()


def _admits(record: Checksums, name: str, digest: str) -> bool:
    """Return whether the record accepts a file's digest, or ``ABSENT``; an unlisted file is accepted only as absent."""
    return digest in record.files.get(name, {ABSENT})


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal, without loading all of it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
