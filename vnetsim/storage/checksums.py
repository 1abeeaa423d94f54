"""The record ``checksums.sha256``: which contents of a folder's files are right.

The command ``sha256sum -c`` reads the record too. Comment lines (``#``) contain the second content of a file that is
being changed, and a checksum of the record itself. The checksums reveal damage and careless changes, not forgery:
anybody can compute new ones.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vnetsim.errors import InputError

RECORD = "checksums.sha256"
ABSENT = "absent"
_HEAD = "# vnetsim: SHA-256 of the files of this folder, for sha256sum -c"
_LINE = re.compile(r"(?P<or># or )?(?P<escaped>\\?)(?P<digest>[0-9a-f]{64}|absent)  (?P<name>.+)")
_END = "# all lines above: "


def sha256(content: bytes) -> str:
    """Return the SHA-256 of bytes in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal, without loading all of it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True)
class Checksums:
    """The accepted contents of a folder's files."""

    # digests by path relative to the folder; ``ABSENT`` among them if the file may be missing
    files: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def accepts(self, name: str, digest: str) -> bool:
        """Return whether a file may have this digest (``ABSENT``: may be missing); an unlisted file must be missing."""
        return digest in self.files.get(name, {ABSENT})

    def during_change(self, written: Mapping[str, str], removed: Iterable[str]) -> Checksums:
        """Return the record to use while files are written (new digests by name) or removed: it accepts old and new."""
        files = dict(self.files)
        for name, digest in (*written.items(), *((name, ABSENT) for name in removed)):
            files[name] = files.get(name, frozenset({ABSENT})) | {digest}
        return Checksums(files)

    def after_change(self, written: Mapping[str, str], removed: Iterable[str]) -> Checksums:
        """Return the record to use after files were written (new digests by name) or removed: it accepts only new."""
        gone = set(removed)
        files = {name: digests for name, digests in self.files.items() if name not in gone}
        return Checksums(files | {name: frozenset({digest}) for name, digest in written.items()})

    def to_bytes(self) -> bytes:
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


def parse_checksums(content: bytes, where: str) -> Checksums:
    """Return the record that ``Checksums.to_bytes`` wrote; InputError, beginning with ``where``, if it was altered."""
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
