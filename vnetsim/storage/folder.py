"""A folder of vnetsim's: every file in it is written, checked and removed here.

A file is written under another name, synchronised, and renamed; then its folder is synchronised. A kill or a power
cut at any instant leaves the old file or the new one. ``checksums.sha256`` (``checksums``) admits both until
the change is complete, and every file that is read is checked against it.

Pages and figures are made from the other files and never read; they have no checksum.

A folder may come from anybody: nothing below it is written or removed through a symbolic link.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from vnetsim.errors import InputError, RunError
from vnetsim.storage import disk
from vnetsim.storage.checked_folder import CheckedFolder, file_sha256
from vnetsim.storage.checksums import ABSENT, RECORD, Checksums, sha256
from vnetsim.storage.disk import Content
from vnetsim.storage.records import COMPARISON, PLACES

Prepared = dict[str, tuple[Path, str]]
"""Files under another name and their digests, by the name that they are to get."""

LOCK = ".lock"
FIRST = ("experiment.toml", "map.parquet", "silos.parquet", "partition.csv")
"""What a run writes before its manifest, which says that it has begun."""
_BESIDE = ("sumo", "traffic")
"""Folders of which the record does not tell: what SUMO writes, and the traffics of a comparison, with their own."""

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}\.tmp")
"""Names of what was not finished; so strict because files of these names are removed."""


class Folder(CheckedFolder):
    """A folder at ``path``, which need not exist yet. One process may write to it at a time; others may read."""

    def __init__(self, path: Path | str) -> None:
        super().__init__(path)
        self._made: list[Path] = []  # this folder and those above it, as far as `make` made them, the highest first

    def put(self, files: Mapping[str, Content], remove: Iterable[str] = ()) -> None:
        """Write files, then remove others, so that at any instant the last file given fits those that it names.

        Args:
            files: contents by name. All others are on the disk before the last one is.
            remove: names of files; those that are not there are passed over.

        Raises:
            InputError: a symbolic link stands in the way.
            RunError: the disk is full or the folder not writable, and each file is the old or the new one; or the
                folder was removed since it was last written to.
        """
        gone = [name for name in remove if os.path.lexists(self.path / name)]
        if not files and not gone:
            return
        if self._own is not None and not (self.path / RECORD).is_file():
            raise RunError(f"{self.path}: removed while it was written to; what it held is gone.")
        new: Prepared = {}
        try:
            for name, content in files.items():
                self._prepare(name, content, new)
            digests = {name: digest for name, (_, digest) in new.items()}
            before = self._mine()
            # as long as the change is not complete, also after an error, the old will do as well as the new
            during = before.changing(digests, gone)
            self._write_record(during)
            self._own = during
            names = list(files)
            self._place(names[:-1], new)
            self._place(names[-1:], new)
        except (Exception, KeyboardInterrupt):
            _forget(new)
            raise
        for name in gone:
            self._change(name, disk.unlink)
        self._sync(gone)
        self._own = during.changed(digests, gone)

    def settle(self) -> None:
        """Bring the record up to date: only what is there is admitted.

        Raises:
            RunError: it cannot be written.
        """
        if self._own is not None and self._own.text() != self._look().text():
            self._write_record(self._own)

    def write_output(self, name: str, content: bytes) -> None:
        """Write a file that is made from the others and never read, without a checksum.

        Raises:
            InputError: a symbolic link stands in the way.
            RunError: the disk is full or the folder not writable; the file is the old one.
        """
        new: Prepared = {}
        try:
            self._prepare(name, content, new)
            self._place([name], new)
        except (Exception, KeyboardInterrupt):
            _forget(new)
            raise

    def make(self) -> None:
        """Make the folder and those above it.

        Raises:
            InputError: a symbolic link of a comparison stands in the way.
            OSError: it cannot be made; ``unmake`` removes what was.
        """
        self._refuse_links_above()
        for path in reversed([self.path, *self.path.parents]):
            if not path.exists():
                disk.make_folder(path)
                self._made.append(path)
                disk.sync(path.parent)

    def unmake(self) -> None:
        """Remove what ``make`` made, this folder and those above it, as far as nothing stands in them."""
        if not any(path.is_symlink() for path in self._made):  # put there since: what is below is another's
            for path in reversed(self._made):
                with suppress(OSError):
                    disk.remove_folder(path)
        self._made.clear()

    def remove_leftovers(self) -> None:
        """Remove what was written when a kill came; no other process may be writing."""
        self._refuse_links_above()
        for path in self.leftovers():
            disk.unlink(path)

    def leftovers(self) -> list[Path]:
        """Return the files that were being written when a kill came, or are being written now."""
        return [Path(folder) / name for folder, _, names in os.walk(self.path) for name in names if is_leftover(name)]

    def has_not_begun(self) -> bool:
        """Return whether it is empty, or holds what a run leaves that is killed before its manifest is there."""
        names = os.listdir(self.path)  # noqa: PTH208
        own = {*(name for name in FIRST if name in self._record().files), *(_BESIDE[:1] if RECORD in names else ())}
        return all(name in own or is_own(name) for name in names)

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with all that it holds, if it is there; nothing outside, whatever links there are.

        Raises:
            InputError: a symbolic link stands in the way.
            RunError: it cannot be removed.
        """
        self._change(name, _remove_tree)

    def claim(self) -> None:
        """Make the record of the checksums, by which the folder is vnetsim's; what stands in it already is not.

        Raises:
            RunError: it cannot be written.
        """
        self._own = Checksums()
        self._write_record(self._own)

    def clear(self) -> None:
        """Remove what vnetsim wrote: what the record tells of, what was not finished, and what SUMO wrote beside it.

        Raises:
            RunError: something cannot be removed.
        """
        if not (self.path / RECORD).is_file():
            return
        others = self.others()
        for name in os.listdir(self.path):  # noqa: PTH208
            if name not in {LOCK, RECORD, *others}:
                self.remove(name)
        # the record goes last: without it nothing here is vnetsim's
        self.remove(RECORD)
        self._own = self._read = None

    def others(self, made: Iterable[str] = ()) -> list[str]:
        """Return what stands directly in the folder and vnetsim did not write, as far as the record tells.

        Args:
            made: names of what is made of the other files.
        """
        ours = {LOCK, RECORD, *_BESIDE, *made, *(name.partition("/")[0] for name in self._look().files)}
        names = sorted(os.listdir(self.path))  # noqa: PTH208
        return [name for name in names if name not in ours and not is_leftover(name) and _holds_files(self.path / name)]

    def path_of(self, name: str) -> Path:
        """Return the path of something within.

        Raises:
            InputError: it leads outside, or a symbolic link stands in the way.
        """
        path = Path(name)
        if path.is_absolute() or ".." in path.parts:
            raise InputError(f"{self.path}: '{name}' leads outside of this folder.")
        self._refuse_links_above()
        part = self.path
        for component in path.parts[:-1]:
            part /= component
            _refuse_link(part)
        return self.path / path

    def _refuse_links_above(self) -> None:
        """Refuse a folder of a comparison, a cell or a traffic, that a link of the comparison leads to.

        Other links above a folder, and the folder itself as one, are the user's, who named it.
        """
        path = Path(os.path.abspath(self.path))  # noqa: PTH100 - links must stay
        if path.parent.name in PLACES and (path.parents[1] / COMPARISON).is_file():
            _refuse_link(path.parent)
            _refuse_link(path)

    def _mine(self) -> Checksums:
        """Return the record to go on from, of what is there when this object writes for the first time."""
        if self._own is None:
            found = self._look()
            own = Checksums({name: self._settled(name, found.files[name]) for name in found.files})
            self._own = own.changed({}, [name for name, digests in own.files.items() if digests == {ABSENT}])
        return self._own

    def _settled(self, name: str, admitted: frozenset[str]) -> frozenset[str]:
        if len(admitted) == 1:
            return admitted
        path = self.path / name
        here = file_sha256(path) if path.is_file() else ABSENT
        return frozenset({here}) if here in admitted else admitted

    def _write_record(self, record: Checksums) -> None:
        self.write_output(RECORD, record.text())

    def _prepare(self, name: str, content: Content, new: Prepared) -> None:
        """Write a file under another name, which ``new`` tells, and synchronise it."""

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
        """Give prepared files their names, and synchronise the folders."""
        for name in names:
            self._change(name, lambda path, name=name: disk.replace(new[name][0], path))  # type: ignore[misc]
        self._sync(names)

    def _sync(self, names: Iterable[str]) -> None:
        for folder in dict.fromkeys(str(Path(name).parent) for name in names):
            self._change(folder, disk.sync)

    def _change(self, name: str, change: Callable[[Path], None]) -> None:
        path = self.path_of(name)
        try:
            change(path)
        except OSError as error:
            line = f"{path}: cannot write: {error.strerror or error}. What was finished before is kept."
            raise RunError(line) from error


def _refuse_link(path: Path) -> None:
    if path.is_symlink():
        raise InputError(f"{path}: a symbolic link; vnetsim writes and removes nothing through it. Remove it.")


def _holds_files(path: Path) -> bool:
    """Return whether something is a file, or holds one; folders of tables that were joined are empty."""
    return path.is_symlink() or not path.is_dir() or any(not one.is_dir() for one in path.rglob("*"))


def _forget(new: Prepared) -> None:
    """Remove what was prepared in vain; what cannot be removed now is a leftover, see ``remove_leftovers``."""
    for path, _ in new.values():
        with suppress(OSError):
            disk.unlink(path)


def is_own(name: str) -> bool:
    """Return whether a file of this name may stand in a folder that nothing was written to yet."""
    return name in {LOCK, RECORD} or is_leftover(name)


def is_leftover(name: str) -> bool:
    """Return whether a file of this name was being written when its process was killed."""
    return _TEMPORARY.fullmatch(name) is not None


def _remove_tree(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        for name in os.listdir(path):  # noqa: PTH208 - closed in any case
            _remove_tree(path / name)
        disk.remove_folder(path)
    else:
        disk.unlink(path)


def json_bytes(value: Any) -> bytes:
    """Return a value as a JSON file that people can read."""
    return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True).encode()
