"""Folders as somebody may hand them over: altered, with checksums made anew."""

import os
from pathlib import Path
from typing import Any

from vnetsim.storage.checksums import RECORD, Checksums, file_sha256
from vnetsim.storage.records import FORMAT

MANIFEST: dict[str, Any] = {
    "vnetsim": "0.1.0",
    "format": FORMAT,
    "kind": "mobility",
    "status": "finished",
    "seed": 0,
    "traffic": {"kind": "sumo", "begin_s": 0.0},
    "rsus": [],
    "inputs": {},
}
"""The least that a manifest says."""


def reseal(folder: Path) -> None:
    """Make the checksums of a folder's files anew, as who means to deceive would."""
    places = [Path(place) / name for place, _, names in os.walk(folder) for name in names]
    files = {path.relative_to(folder).as_posix(): frozenset({file_sha256(path)}) for path in places}
    files.pop(RECORD, None)
    (folder / RECORD).write_bytes(Checksums(files).to_bytes())
