"""SUMO's files, read as far as they are readable: what is wrong with them is SUMO's to say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from vnetsim.errors import InputError
from vnetsim.xml_files import Start, StopReading, XmlFile


def is_true(value: str) -> bool:
    """Return whether SUMO takes an option's value for yes."""
    return value.lower() in {"1", "yes", "true", "on", "x", "t"}


def options_of(config: Path) -> dict[str, str]:
    """Return the options that a configuration sets, as texts by the names it uses for them.

    SUMO takes a value from an attribute ``value`` or ``v``, or from the element's text.
    """
    options: dict[str, str] = {}
    open_elements: list[str] = []

    def start(name: str, attributes: Mapping[str, str]) -> None:
        open_elements.append(name)
        value = attributes.get("value", attributes.get("v"))
        if value is not None:
            options[name] = value

    def text(content: str) -> None:
        if content.strip() and open_elements:
            options[open_elements[-1]] = options.get(open_elements[-1], "") + content.strip()

    read_leniently(config, start, end=lambda _: open_elements.pop(), text=text)
    return options


ADDITIONAL = ("additional-files", "additional", "a")
_ROUTES = ("route-files", "routes", "r")
_DRIVEN = ("vehicle", "trip", "flow")


def listed_files(options: Mapping[str, str], folder: Path, keys: Iterable[str] = ADDITIONAL) -> Iterator[Path]:
    """Yield the files that options of a configuration in a folder list and that are there."""
    for key in keys:
        for name in filter(None, map(str.strip, options.get(key, "").split(","))):
            if (file := folder / name).is_file():
                yield file


def undriven_types(config: Path, named: Iterable[str]) -> tuple[set[str], list[str]]:
    """Return of which of these vehicle types (vType ids) a configuration's files have nobody, and of which somebody.

    All types of a distribution are taken to be driven. None is undriven where files include others, which are not read.
    It reads no further than to the last of them.
    """
    undriven, driven = set(named), set[str]()
    distributions: list[str] = []
    inside = False

    def start(name: str, attributes: Mapping[str, str]) -> None:
        nonlocal inside
        own, given = attributes.get("id", ""), attributes.get("type", "DEFAULT_VEHTYPE")
        inside |= name == "vTypeDistribution"
        if name == "vTypeDistribution":
            distributions.append(own)
            driven.update(attributes.get("vTypes", "").split())
        elif name == "include":
            undriven.clear()
        elif name in _DRIVEN or (name == "vType" and inside):
            driven.add(given if name in _DRIVEN else own)
        undriven.difference_update(driven.difference(distributions))
        if not undriven:
            raise StopReading

    def end(name: str) -> None:
        nonlocal inside
        inside &= name != "vTypeDistribution"

    # as SUMO does: what is defined in additional files is there before the vehicles
    for file in listed_files(options_of(config), config.parent, (*ADDITIONAL, *_ROUTES)) if undriven else ():
        read_leniently(file, start, end=end)
    return undriven, sorted(driven.difference(distributions))


def building_files(config: Path) -> list[Path]:
    """Return those of a configuration's additional files that hold polygons of buildings."""
    from vnetsim.radio.sight import is_building  # noqa: PLC0415 - brings shapely

    found: list[Path] = []
    for file in dict.fromkeys(listed_files(options_of(config), config.parent)):

        def start(name: str, attributes: Mapping[str, str], file: Path = file) -> None:
            if is_building(name, attributes):
                found.append(file)
                raise StopReading

        read_leniently(file, start)
    return found


def read_leniently(
    path: Path,
    start: Start,
    *,
    end: Callable[[str], object] | None = None,
    text: Callable[[str], None] | None = None,
) -> None:
    """Read an XML file up to its first fault; see ``XmlFile`` for the arguments."""
    with suppress(InputError):
        XmlFile(path, start, end=end, text=text).read()
