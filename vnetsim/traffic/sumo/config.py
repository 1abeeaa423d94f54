"""SUMO's files, read as far as they are readable: what is wrong with them is SUMO's to say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from vnetsim.errors import InputError
from vnetsim.experiment import Experiment
from vnetsim.radio import RADIO_MODELS
from vnetsim.xml_files import EntitiesError, Start, XmlFile


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


_ADDITIONAL = ("additional-files", "additional", "a")
_ROUTES = ("route-files", "routes", "r")
_DRIVEN = ("vehicle", "trip", "flow")


def _listed(config: Path, keys: Iterable[str]) -> Iterator[Path]:
    """Yield the files that options of a configuration list and that are there."""
    options = options_of(config)
    for key in keys:
        for name in filter(None, map(str.strip, options.get(key, "").split(","))):
            if (file := config.parent / name).is_file():
                yield file


def driven_types(config: Path) -> set[str] | None:
    """Return the vehicle types (vType ids) of which a configuration's files have somebody.

    All types of a distribution are taken to be driven. None where files include others, which are not read.
    """
    driven, distributions, inside, whole = set[str](), set[str](), False, True

    def start(name: str, attributes: Mapping[str, str]) -> None:
        nonlocal inside, whole
        whole &= name != "include"
        if name == "vTypeDistribution":
            inside = True
            distributions.add(attributes.get("id", ""))
            driven.update(attributes.get("vTypes", "").split())
        elif name in _DRIVEN:
            driven.add(attributes.get("type", "DEFAULT_VEHTYPE"))
        elif name == "vType" and inside:
            driven.add(attributes.get("id", ""))

    def end(name: str) -> None:
        nonlocal inside
        inside &= name != "vTypeDistribution"

    for file in _listed(config, (*_ADDITIONAL, *_ROUTES)):
        read_leniently(file, start, end=end)
    return driven - distributions if whole else None


def building_files(config: Path) -> list[Path]:
    """Return those of a configuration's additional files that hold polygons of buildings."""
    found: dict[Path, None] = {}
    for file in _listed(config, _ADDITIONAL):

        def start(name: str, attributes: Mapping[str, str], file: Path = file) -> None:
            if name == "poly" and attributes.get("type", "").startswith("building"):
                found[file] = None

        read_leniently(file, start)
    return list(found)


def held_to_files(experiment: Experiment) -> Experiment:
    """Return the experiment of a SUMO scenario, by its absolute path, held against the scenario's files.

    Where it wants buildings and names no file, it names the one of the scenario's additional files that has them. So a
    replay of its traffic, which has no additional files, and whoever runs the record again have the same ones.

    Raises:
        InputError: nobody is of a vehicle type that is given a computer; of recordings that is told when they are read.
            Or none of the additional files has buildings, or several do.
    """
    config = Path(experiment.scenario)
    named = experiment.compute.by_type
    driven = driven_types(config) if named else None
    if driven is not None and (undriven := named.keys() - driven):
        raise InputError(
            f"compute.by_type: nobody in {config} is of vehicle type '{min(undriven)}'; there are "
            f"{', '.join(sorted(driven)) or 'no vehicles'}."
        )
    radio = experiment.radio
    asked = radio.get("name", RADIO_MODELS.default), radio.get("state"), radio.get("file", "")
    if asked != ("tr37885", "polygons", ""):
        return experiment
    found = building_files(config)
    if len(found) != 1:
        what = f"{len(found)} of its additional files have" if found else "none of its additional files has"
        raise InputError(
            f"{config}: radio.state = polygons: {what} polygons of buildings "
            f'(<poly type="building..."/>, as polyconvert writes them); name one file of them as radio.file.'
        )
    return experiment.placed({"radio.file": str(found[0].resolve())})


def read_leniently(
    path: Path,
    start: Start,
    *,
    end: Callable[[str], object] | None = None,
    text: Callable[[str], None] | None = None,
) -> None:
    """Read an XML file up to its first fault; see ``XmlFile`` for the arguments.

    Raises:
        EntitiesError: it declares XML entities, which SUMO would expand, however large they become.
    """
    with _leniently():
        XmlFile(path, start, end=end, text=text).read()


@contextmanager
def _leniently() -> Iterator[None]:
    try:
        yield
    except EntitiesError:
        raise
    except InputError:
        pass


def refuse_entities(config: Path) -> None:
    """Refuse a scenario of which a file that SUMO reads declares XML entities; files that those include are not read.

    Raises:
        EntitiesError: naming the file.
    """
    for file in _listed(config, options_of(config)):
        elements: list[str] = []  # before the first of which entities are declared

        def start(name: str, _: Mapping[str, str], elements: list[str] = elements) -> None:
            elements.append(name)

        with _leniently():
            for _ in XmlFile(file, start).pieces():
                if elements:
                    break
