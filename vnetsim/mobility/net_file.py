"""The road net of a recording, read from its ``.net.xml`` without SUMO: junctions, bounding box, lanes."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, cast
from xml.parsers import expat

import numpy as np
from numpy.typing import NDArray

from vnetsim.errors import InputError
from vnetsim.rsu import Poi, Rsu

_MAP_RADIUS = 1.3
_CHUNK_BYTES = 1 << 16


@dataclass
class NetFile:
    """A SUMO net file (``.net.xml`` or ``.net.xml.gz``).

    Args:
        path: the file.

    Raises:
        InputError: when it is missing or no net.
    """

    path: Path
    _junctions: dict[str, tuple[float, float]] = field(default_factory=dict, init=False)
    _boundary: tuple[float, float, float, float] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        roots: list[str] = []

        def start(name: str, attributes: dict[str, str]) -> None:
            if not roots:
                roots.append(name)
            if name == "junction" and attributes.get("type") != "internal":
                self._junctions[attributes["id"]] = float(attributes["x"]), float(attributes["y"])
            elif name == "location":
                x_min, y_min, x_max, y_max = map(float, attributes["convBoundary"].split(","))
                self._boundary = x_min, y_min, x_max, y_max

        _parse(self.path, start)
        if roots != ["net"]:
            raise InputError(f"{self.path}: not a SUMO net: its root element is <{roots[0]}>, not <net>.")

    def junction_ids(self) -> Sequence[str]:
        """Return the junctions, without the internal ones."""
        return list(self._junctions)

    def junction_position(self, junction_id: str) -> tuple[float, float]:
        """Return x and y of a junction (m)."""
        return self._junctions[junction_id]

    def rsu_pois(self) -> Sequence[Poi]:
        """Return nothing: a net file holds no points of interest."""
        return ()

    def busiest_junction(self) -> tuple[str, str]:
        """Refuse: a recording's demand is not known beforehand."""
        raise InputError(f"{self.path}: name a junction of it with --rsu JUNCTION[:range_m].")

    def boundary(self) -> tuple[float, float, float, float] | None:
        """Return the net's bounding box."""
        return self._boundary

    def lanes(self, rsus: Sequence[Rsu]) -> tuple[NDArray[np.float64], ...]:
        """Return the lanes with a point within 1.3 ranges of an RSU, as polylines (points, 2) in m."""
        found: list[NDArray[np.float64]] = []

        def start(name: str, attributes: dict[str, str]) -> None:
            if name != "lane":
                return
            shape = np.array(
                [point.split(",")[:2] for point in attributes.get("shape", "").split()], dtype=np.float64
            ).reshape(-1, 2)
            near = any(
                (np.hypot(shape[:, 0] - rsu.x_m, shape[:, 1] - rsu.y_m) <= _MAP_RADIUS * rsu.range_m).any()
                for rsu in rsus
            )
            if near:
                found.append(shape)

        _parse(self.path, start)
        return tuple(found)


def _parse(path: Path, start: Callable[[str, dict[str, str]], None]) -> None:
    if not path.is_file():
        raise InputError(f"{path}: no such net file.")
    parser = expat.ParserCreate()

    def refuse(*_: object) -> int:
        raise InputError(f"{path}:{parser.CurrentLineNumber}: the file declares XML entities, which are not expanded.")

    parser.StartElementHandler = start
    parser.EntityDeclHandler = refuse
    parser.ExternalEntityRefHandler = refuse
    try:
        with cast("IO[bytes]", gzip.open(path)) if path.suffix == ".gz" else path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                parser.Parse(chunk, False)
            parser.Parse(b"", True)
    except expat.ExpatError as error:
        what = expat.ErrorString(error.code)
        raise InputError(f"{path}:{error.lineno}: not well-formed XML: {what}.") from error
    except (KeyError, ValueError) as error:
        raise InputError(f"{path}:{parser.CurrentLineNumber}: not a SUMO net: malformed element: {error}.") from error
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: unreadable: {error}.") from error
