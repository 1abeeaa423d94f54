"""RSUs from a SUMO additional file, read without SUMO."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from vnetsim.coverage.placement import Poi
from vnetsim.errors import InputError
from vnetsim.xml_files import XmlFile


def read_pois(path: Path) -> tuple[Poi, ...]:
    """Return the points of interest of type ``rsu``.

    Raises:
        InputError: the file is missing, no XML, or has no such point, or one without ``x`` and ``y``.
    """
    pois = _elements(path)
    if not pois:
        raise InputError(f'{path}: no RSU in it; they are written as <poi id="..." type="rsu" x="..." y="..."/>.')
    return tuple(_poi(found) for found in pois)


def _elements(path: Path) -> list[dict[str, str]]:
    pois: list[dict[str, str]] = []
    inside = False

    def start(name: str, attributes: Mapping[str, str]) -> None:
        nonlocal inside
        if name == "poi" and attributes.get("type") == "rsu":
            inside = True
            pois.append({**attributes, "where": file.where, "range": "", "environment": ""})
        elif name == "param" and inside and attributes.get("key") in ("range", "environment"):
            pois[-1][attributes["key"]] = attributes.get("value", "").strip()

    def end(name: str) -> None:
        nonlocal inside
        inside = inside and name != "poi"

    file = XmlFile(path, start, end=end)
    file.read()
    return pois


def _poi(found: dict[str, str]) -> Poi:
    try:
        x_m, y_m = float(found["x"]), float(found["y"])
    except (KeyError, ValueError):
        raise InputError(
            f"{found['where']}: RSU '{found.get('id', '')}' needs x and y as numbers of metres; places on lanes and "
            "geographical ones are known to SUMO only: name the file in the scenario instead."
        ) from None
    return Poi(id=found.get("id", ""), x_m=x_m, y_m=y_m, range_text=found["range"], environment=found["environment"])
