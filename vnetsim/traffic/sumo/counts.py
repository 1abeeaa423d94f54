"""Counts vehicles on edges in a run of SUMO; later runs read the counts from the user's cache.

The cache is looked up by the contents of all files that the scenario is read from, SUMO's version and options, and this
module.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import subprocess
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, cast

from vnetsim.traffic.sumo.config import is_true, options_of, read_leniently
from vnetsim.traffic.sumo.outputs import SumoOutputs
from vnetsim.traffic.sumo.session import QUIET, binary, drop_option, environment
from vnetsim.user_cache import cache_folder, read_cached, write_cached

_COUNTS = "vnetsim_counts.xml"
_PATIENCE_S = 600
_LIMIT_BYTES = 2**26
"""Most bytes of counts in the user's cache."""
_OUTPUT_OPTION = re.compile("output|log|dump|netstate|save|summary|tripinfo|vehroute|ssm")
_OUTPUT_ELEMENT = re.compile(rb"<(?:!--)?\s*\w*(?:Detector|Loop|Probe|Data|timedEvent|calibrator)\b")
_FILE_NAME = re.compile(rb"""["']([^"'<>]*\.[A-Za-z]\w*)["']""")
"""An attribute of an XML file that may be the name of a file."""
_CHUNK, _LONGEST_ELEMENT = 1 << 20, 1 << 12


def count_leaving(config: Path, options: Sequence[str], until_s: float, version: str) -> dict[str, int]:
    """Return by edge how often vehicles leave it at its end until ``until_s``; empty if SUMO fails.

    Counts are read from the cache if they are there; else SUMO runs, and its counts are cached. ``until_s`` is on the
    scenario's clock (s). ``options`` are SUMO's from the user's settings; ``version`` of SUMO is for the cache's key.
    """
    options = (*drop_option(options, "--end"), "--end", f"{until_s:.15g}")
    path = None
    with suppress(OSError, EOFError, zlib.error, RuntimeError):  # SUMO names the unreadable file; a user without a home
        if key := _cache_key(config, options, version):
            path = cache_folder("counts") / key
    if path is not None and (stored := read_cached(path)) is not None:
        counts: dict[str, int] = json.loads(bytes(stored))
        return counts
    counts = _run(config, options)
    if path is not None and counts:
        with suppress(OSError):
            write_cached(path, json.dumps(counts).encode(), limit_bytes=_LIMIT_BYTES)
    return counts


def _cache_key(config: Path, options: Sequence[str], version: str) -> str | None:
    """Return the name under which counts are cached; None if traffic is random or paths contain variables."""
    named = options_of(config)
    seeded = "--seed" in options or not is_true(named.get("random", ""))
    if not seeded or any("$" in value for value in named.values()):  # paths may contain environment variables
        return None
    found = hashlib.sha256(Path(__file__).read_bytes())
    found.update(repr((version, options, named)).encode())
    read = [value for name, value in named.items() if not _OUTPUT_OPTION.search(name)]
    names = {name.strip() for value in read for name in (value, *value.split(","))}
    waiting = [config.parent / name for name in sorted(names)]
    seen = set[Path]()
    while waiting:
        path = waiting.pop()
        if path in seen or len(path.name) > 255 or not path.is_file():
            continue
        seen.add(path)
        digest, names = _digest_file(path)
        found.update(repr((path.name, digest)).encode())
        waiting += [path.parent / name for name in sorted(names)]
    return found.hexdigest()


def _digest_file(path: Path) -> tuple[str, set[str]]:
    """Return a file's SHA-256 (hex), and the texts in it that may be names of other input files."""
    digest, names, rest = hashlib.sha256(), set[bytes](), b""
    with cast("IO[bytes]", gzip.open(path)) if path.suffix == ".gz" else path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            text = rest + chunk
            for name in _FILE_NAME.finditer(text):
                element = max(text.rfind(b"<", 0, name.start()), 0)
                if not _OUTPUT_ELEMENT.match(text, element):
                    names.add(name[1])
            rest = chunk[-_LONGEST_ELEMENT:]
    return digest.hexdigest(), {name.decode(errors="replace") for name in names}


def _run(config: Path, options: Sequence[str]) -> dict[str, int]:
    """Run SUMO, at most 600 s, and return by edge how many vehicles left it; empty if SUMO fails."""
    outputs = SumoOutputs(config, None)
    counts = outputs.folder / _COUNTS
    command = [
        *(str(binary("sumo")), "-c", str(config), *QUIET, *options),
        *("--remote-port", "0"),  # with the user's port SUMO would wait for a client
        *(*outputs.options(), "--edgedata-output", str(counts)),
    ]
    try:
        subprocess.run(  # noqa: S603 - the wheel's own binary, no shell
            command, check=True, capture_output=True, stdin=subprocess.DEVNULL, env=environment(), timeout=_PATIENCE_S
        )
        return _read_leaving_counts(next(outputs.folder.glob(f"*{_COUNTS}"), counts))
    except (OSError, subprocess.SubprocessError):
        return {}
    finally:
        outputs.close()


def _read_leaving_counts(path: Path) -> dict[str, int]:
    """Return by edge how many vehicles left it by driving onto the next, summed over the file's intervals."""
    counts: dict[str, int] = {}

    def start(element: str, attributes: Mapping[str, str]) -> None:
        """Add the count of vehicles that left, if the element is an ``edge`` that has one."""
        if element == "edge" and attributes.get("left", "").isdigit():
            counts[attributes["id"]] = counts.get(attributes["id"], 0) + int(attributes["left"])

    read_leniently(path, start)
    return counts
