"""Experiment settings from TOML files and ``--set`` overrides, and back to TOML.

Unknown keys are refused with the nearest known one; a value of the wrong type or out of range is named with the file
or option it came from.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import cattrs
import tomli_w
from cattrs.errors import AttributeValidationNote, BaseValidationError, ForbiddenExtraKeysError

from vnetsim.errors import InputError, unknown_name
from vnetsim.experiment import Experiment

T = TypeVar("T")


def _scalar(kind: type, words: str, *accepted: type) -> Callable[[Any, Any], Any]:
    def convert(value: Any, _: Any) -> Any:
        if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
            raise TypeError(f"expected {words}")
        return kind(value)

    return convert


def _names(value: Any, _: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise TypeError('expected a list of strings such as ["a", "b"]')
    return tuple(value)


def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True)
    converter.register_structure_hook(float, _scalar(float, "a number", int, float))
    converter.register_structure_hook(int, _scalar(int, "a whole number", int))
    converter.register_structure_hook(bool, _scalar(bool, "true or false", bool))
    converter.register_structure_hook(str, _scalar(str, "a string", str))
    converter.register_structure_hook_func(lambda kind: kind == tuple[str, ...], _names)
    return converter


def _first_fault(error: Exception, path: tuple[str, ...], values: Any) -> InputError:
    if isinstance(error, ForbiddenExtraKeysError):
        names = [field.name for field in dataclasses.fields(error.cl)]
        return unknown_name("key", min(error.extra_fields), names, where=".".join(path))
    if isinstance(error, BaseValidationError):
        inner = error.exceptions[0]
        notes = [note for note in getattr(inner, "__notes__", ()) if isinstance(note, AttributeValidationNote)]
        if not notes:
            return _first_fault(inner, path, values)
        value = values.get(notes[0].name) if isinstance(values, Mapping) else None
        return _first_fault(inner, (*path, notes[0].name), value)
    if isinstance(error, InputError):
        return error
    if "literal" in str(error).lower():
        allowed = str(error).split("Literal")[-1].strip("[]. ")
        return InputError(f"{'.'.join(path)}: must be one of {allowed}, got {values!r}.")
    reason = str(error) if isinstance(error, TypeError) and str(error).startswith("expected") else "expected a table"
    return InputError(f"{'.'.join(path)}: {reason}, got {values!r}.")


def structure(values: Mapping[str, Any], kind: type[T], where: str, path: tuple[str, ...] = ()) -> T:
    """Build the settings dataclass ``kind`` from plain ``values``.

    Args:
        values: keys and values as TOML gives them.
        kind: a dataclass whose leaves are numbers, strings, booleans, literals or lists of strings.
        where: file or option to name in errors.
        path: table the values stand in.

    Raises:
        InputError: unknown key, wrong type, value out of range.
    """
    try:
        return _converter().structure(values, kind)
    except BaseValidationError as error:
        fault = _first_fault(error, path, values)
        raise InputError(f"{where}: {fault}" if where else str(fault)) from None


def parse_override(text: str) -> tuple[tuple[str, ...], Any]:
    """Return the path and value of ``table.key=value``; a value that is no TOML is taken as a string.

    Raises:
        InputError: when there is no ``=`` or no key.
    """
    key, equals, value = text.partition("=")
    path = tuple(part.strip() for part in key.split("."))
    if not equals or not all(path):
        raise InputError(f"--set {text}: write it as table.key=value, for example --set round.quorum=10.")
    try:
        return path, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return path, value.strip()


def merge(values: Mapping[str, Any], path: Sequence[str], value: Any) -> dict[str, Any]:
    """Return ``values`` with ``value`` at the dotted ``path``, without changing the argument.

    Raises:
        InputError: when the path leads through something that is no table.
    """
    result = dict(values)
    if len(path) == 1:
        result[path[0]] = value
        return result
    below = result.get(path[0], {})
    if not isinstance(below, Mapping):
        raise InputError(f"{'.'.join(path)}: '{path[0]}' is a value, not a table.")
    result[path[0]] = merge(below, path[1:], value)
    return result


def read_toml(path: Path) -> dict[str, Any]:
    """Return the tables of a TOML file.

    Raises:
        InputError: missing, unreadable, or not TOML (with the line).
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}.") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: not valid TOML: {error}.") from None


def to_plain(settings: Any) -> dict[str, Any]:
    """Return a settings dataclass as nested dictionaries of TOML values; ``None`` is left out."""

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: plain(item) for key, item in value.items() if item is not None}
        return list(value) if isinstance(value, tuple) else value

    result: dict[str, Any] = plain(dataclasses.asdict(settings))
    return result


def to_toml(experiment: Experiment) -> str:
    """Return the experiment as a TOML document that ``load_experiment`` reads back to an equal experiment."""
    return tomli_w.dumps(to_plain(experiment))


def load_experiment(
    scenario: str,
    overrides: Sequence[tuple[tuple[str, ...], Any]] = (),
    *,
    learner_settings: Callable[[str], Collection[str]] | None = None,
) -> Experiment:
    """Return the experiment for what the user named on the command line.

    Args:
        scenario: a ``.sumocfg``, an FCD file, ``gaussian``, an experiment ``.toml``, or a run directory, whose traffic
            is replayed and whose settings are the defaults.
        overrides: paths and values that go on top, in order.
        learner_settings: gives the names of a learner's settings. When a run directory is replayed with another
            learner, the recorded settings that both know stay, so that the runs compare; the others are left out.

    Raises:
        InputError: anything wrong with the file, a key or a value.
    """
    path = Path(scenario)
    values: dict[str, Any] = {}
    where = ""
    if path.suffix == ".toml":
        values, where = read_toml(path), str(path)
        named = values.get("scenario")
        if not isinstance(named, str):
            raise InputError(f'{path}: it must name its traffic: scenario = "..." (or "gaussian").')
        values["scenario"] = named if named == "gaussian" else str(path.parent / named)
    elif path.is_dir() and (path / "experiment.toml").is_file():
        values, where = read_toml(path / "experiment.toml"), str(path / "experiment.toml")
        values["scenario"] = scenario
        learner = dict(overrides).get(("learner",))
        if learner_settings is not None and isinstance(learner, str) and learner != values.get("learner"):
            common = learner_settings(learner)
            values["learning"] = {key: value for key, value in values.get("learning", {}).items() if key in common}
    else:
        values["scenario"] = scenario
    if where:
        structure(values, Experiment, where)  # so that a fault of the file is not blamed on an option
    for key, value in overrides:
        values = merge(values, key, value)
    return structure(values, Experiment, "")
