"""The file ``checksums.sha256``: SHA-256 of a folder's files, in the format of the command ``sha256sum``.

Before a file changes, a record that accepts its old and its new content replaces the record. So whenever a program
stops, the record accepts every file. Comment lines (``#``), which ``sha256sum -c`` ignores, contain the second content
of such a file and a checksum of the record itself.

The checksums reveal damage and careless changes. They are not a signature: anybody can compute new ones.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from vnetsim.errors import InputError

RECORD = "checksums.sha256"
ABSENT = "absent"
_HEAD = "# vnetsim: SHA-256 of the files of this folder, for sha256sum -c"
_LINE = re.compile(r"(?P<or># or )?(?P<escaped>\\?)(?P<digest>[0-9a-f]{64}|absent)  (?P<name>.+)")
_END = "# all lines above: "


def sha256(content: bytes) -> str:
    """Return the SHA-256 of bytes in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True)
class Checksums:
    """The accepted contents of a folder's files.

    Args:
        files: digests by path relative to the folder; ``ABSENT`` among them if the file may be missing.
    """

    files: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def changing(self, written: Mapping[str, str], removed: Iterable[str]) -> Checksums:
        """Return the record to use while files are written (digests by name) or removed; it accepts old and new."""
        files = dict(self.files)
        for name, digest in (*written.items(), *((name, ABSENT) for name in removed)):
            files[name] = files.get(name, frozenset({ABSENT})) | {digest}
        return Checksums(files)

    def changed(self, written: Mapping[str, str], removed: Iterable[str]) -> Checksums:
        """Return the record to use after files were written (digests by name) or removed."""
        gone = set(removed)
        files = {name: digests for name, digests in self.files.items() if name not in gone}
        return Checksums(files | {name: frozenset({digest}) for name, digest in written.items()})

    def text(self) -> bytes:
        """Return the record as the content of its file."""
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
    """Read a record that ``Checksums.text`` wrote; errors call it ``where``.

    Raises:
        InputError: it was altered or cut off.
    """
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
