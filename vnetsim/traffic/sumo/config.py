"""Reads SUMO's input files up to their first fault; SUMO itself reports faults."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from vnetsim.errors import InputError
from vnetsim.experiment import Experiment
from vnetsim.radio import RADIO_MODELS
from vnetsim.xml_files import EntitiesError, Start, XmlFile


def is_true(value: str) -> bool:
    """Return whether SUMO reads the text of an option's value as true."""
    return value.lower() in {"1", "yes", "true", "on", "x", "t"}


def options_of(config: Path) -> dict[str, str]:
    """Return a configuration's options as texts by name, up to its first fault; EntitiesError if it declares entities.

    As in SUMO, the value is an attribute ``value`` or ``v``, or the element's text. A missing file has no options.
    """
    options: dict[str, str] = {}
    open_elements: list[str] = []

    def start(name: str, attributes: Mapping[str, str]) -> None:
        """Store the option of an element with an attribute ``value`` or ``v``."""
        open_elements.append(name)
        value = attributes.get("value", attributes.get("v"))
        if value is not None:
            options[name] = value

    def text(content: str) -> None:
        """Append text to the option of the innermost open element."""
        if content.strip() and open_elements:
            options[open_elements[-1]] = options.get(open_elements[-1], "") + content.strip()

    read_leniently(config, start, end=lambda _: open_elements.pop(), text=text)
    return options


_ADDITIONAL = ("additional-files", "additional", "a")
_ROUTES = ("route-files", "routes", "r")
_DRIVEN = ("vehicle", "trip", "flow")


def _listed_files(config: Path, keys: Iterable[str]) -> Iterator[Path]:
    """Yield the existing files that the options ``keys`` of a configuration list."""
    options = options_of(config)
    for key in keys:
        for name in filter(None, map(str.strip, options.get(key, "").split(","))):
            if (file := config.parent / name).is_file():
                yield file


def _find_vehicle_types(config: Path) -> set[str] | None:
    """Return the vType ids of a configuration's vehicles; None if unknown, because a file includes another one."""
    driven, distributions, inside, whole = set[str](), set[str](), False, True

    def start(name: str, attributes: Mapping[str, str]) -> None:
        """Collect types of vehicles, and of distributions; clear ``whole`` at an ``include``."""
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
        """Note the end of a distribution."""
        nonlocal inside
        inside &= name != "vTypeDistribution"

    for file in _listed_files(config, (*_ADDITIONAL, *_ROUTES)):
        read_leniently(file, start, end=end)
    return driven - distributions if whole else None


def _find_building_files(config: Path) -> list[Path]:
    """Return the additional files of a configuration that contain polygons of buildings."""
    found: dict[Path, None] = {}
    for file in _listed_files(config, _ADDITIONAL):

        def start(name: str, attributes: Mapping[str, str], file: Path = file) -> None:
            """Add ``file`` to ``found`` if the element is a building."""
            if name == "poly" and attributes.get("type", "").startswith("building"):
                found[file] = None

        read_leniently(file, start)
    return list(found)


def rsu_ids(config: Path) -> list[str]:
    """Return the sorted ids of the RSUs (POIs of type ``rsu``) in the additional files of a configuration."""
    found = set[str]()

    def start(name: str, attributes: Mapping[str, str]) -> None:
        """Add the id of the element if it is an RSU."""
        if name == "poi" and attributes.get("type") == "rsu":
            found.add(attributes.get("id", ""))

    for file in _listed_files(config, _ADDITIONAL):
        read_leniently(file, start)
    return sorted(found)


def check_scenario_files(experiment: Experiment) -> Experiment:
    """Check a SUMO experiment, whose scenario is an absolute path, against its files; return it, perhaps changed.

    With ``radio.state = "polygons"`` and no file, ``radio.file`` becomes the additional file with buildings: a replay,
    which has no additional files, then uses it too. InputError if ``compute.by_type`` names a type that no vehicle has,
    or ``radio`` needs buildings and not exactly one additional file has them.
    """
    config = Path(experiment.scenario)
    named = experiment.compute.by_type
    driven = _find_vehicle_types(config) if named else None
    if driven is not None and (undriven := named.keys() - driven):
        raise InputError(
            f"compute.by_type: nobody in {config} is of vehicle type '{min(undriven)}'; there are "
            f"{', '.join(sorted(driven)) or 'no vehicles'}."
        )
    radio = experiment.radio
    asked = radio.get("name", RADIO_MODELS.default), radio.get("state"), radio.get("file", "")
    if asked != ("tr37885", "polygons", ""):
        return experiment
    found = _find_building_files(config)
    if len(found) != 1:
        what = f"{len(found)} of its additional files have" if found else "none of its additional files has"
        raise InputError(
            f"{config}: radio.state = polygons: {what} polygons of buildings "
            f'(<poly type="building..."/>, as polyconvert writes them); name one file of them as radio.file.'
        )
    return experiment.with_values({"radio.file": str(found[0].resolve())})


def read_leniently(
    path: Path, start: Start, *, end: Callable[[str], object] | None = None, text: Callable[[str], None] | None = None
) -> None:
    """Read an XML file up to its first fault, which is ignored; EntitiesError for entities. See ``XmlFile``."""
    with _ignore_faults():
        XmlFile(path, start, end=end, text=text).read()


@contextmanager
def _ignore_faults() -> Iterator[None]:
    """Context that ends quietly at an InputError in its block, except EntitiesError."""
    try:
        yield
    except InputError as error:
        if isinstance(error, EntitiesError):
            raise


def refuse_entities(config: Path) -> None:
    """Raise EntitiesError for a scenario with a file that declares XML entities; included files are not checked."""
    for file in _listed_files(config, options_of(config)):
        with _ignore_faults():
            read_first_element(file)  # entities are declared before it


def read_first_element(path: Path) -> str:
    """Return the name of an XML file's first element; InputError if the file is damaged at its beginning."""
    elements: list[str] = []
    for _ in XmlFile(path, lambda name, _: elements.append(name)).pieces():
        if elements:
            break
    return elements[0] if elements else ""
