"""Builds dataclasses (settings and records) from values of TOML and JSON.

Types must match exactly, except that a whole number may be given for a real one. Errors name the key.
"""

from __future__ import annotations

import dataclasses
import functools
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import cattrs
from cattrs.errors import (
    AttributeValidationNote,
    BaseValidationError,
    ForbiddenExtraKeysError,
    IterableValidationNote,
    StructureHandlerNotFoundError,
)
from cattrs.gen import make_dict_structure_fn
from cattrs.strategies import configure_union_passthrough

from vnetsim.errors import InputError, one_line, unknown_name
from vnetsim.errors.bounds import BESIDE, check_bounds

T = TypeVar("T")

_NOTES = (AttributeValidationNote, IterableValidationNote)


def _to_tuple_of_strings(value: Any, _: Any) -> tuple[str, ...]:
    """Return a list or tuple of strings as a tuple; raise TypeError for any other value."""
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise TypeError('expected a list of strings such as ["a", "b"]')
    return tuple(value)


@functools.cache
def _make_converter(*, forbid_extra_keys: bool) -> cattrs.Converter:
    """Return a converter from plain values to dataclasses; it refuses other types, except whole numbers for reals."""
    converter = cattrs.Converter(forbid_extra_keys=forbid_extra_keys)
    converter.register_structure_hook(float, _make_scalar_hook(float, "a number", int, float))
    converter.register_structure_hook(int, _make_scalar_hook(int, "a whole number", int))
    converter.register_structure_hook(bool, _make_scalar_hook(bool, "true or false", bool))
    converter.register_structure_hook(str, _make_scalar_hook(str, "a string", str))
    converter.register_structure_hook_func(lambda kind: kind == tuple[str, ...], _to_tuple_of_strings)
    converter.register_structure_hook_factory(lambda kind: bool(_find_beside_fields(kind)), _make_hook_with_beside)
    configure_union_passthrough(str | int | None, converter)
    return converter


def _find_beside_fields(kind: Any) -> list[str]:
    """Return the names of fields (one or none) marked with ``BESIDE``; empty if ``kind`` is no dataclass."""
    fields = dataclasses.fields(kind) if isinstance(kind, type) and dataclasses.is_dataclass(kind) else ()
    return [field.name for field in fields if field.metadata == BESIDE]


def _make_hook_with_beside(kind: Any, converter: cattrs.Converter) -> Callable[[Any, Any], Any]:
    """Return a function (values, type) -> ``kind``; its field marked ``BESIDE`` collects values without a field."""
    plain = make_dict_structure_fn(kind, converter, _cattrs_forbid_extra_keys=True)
    (gathers,) = _find_beside_fields(kind)
    names = {field.name for field in dataclasses.fields(kind)} - {gathers}

    def convert(values: Any, _: Any) -> Any:
        """Return ``kind`` built from the mapping ``values``; cattrs passes the type as second argument."""
        if isinstance(values, Mapping):
            others = {key: value for key, value in values.items() if key not in names}
            values = {**{key: values[key] for key in values.keys() & names}, gathers: others}
        return plain(values, kind)

    return convert


def structure(values: Mapping[str, Any], kind: type[T], where: str, path: tuple[str, ...] = ()) -> T:
    """Build the settings dataclass ``kind`` from the ``values`` of a TOML table, and check its bounds.

    InputError for an unknown or missing key, a wrong type, a value out of range, or a field whose type TOML cannot
    give. It names the key below the table at ``path``; for keys and types it begins with ``where``, unless empty.
    """
    try:
        result = _make_converter(forbid_extra_keys=True).structure(values, kind)
    except BaseValidationError as error:
        fault = _first_fault(error, path, values)
        raise InputError(f"{where}: {fault}" if where else str(fault)) from None
    except StructureHandlerNotFoundError as error:  # in the settings of a plug-in
        what = getattr(error.type_, "__name__", error.type_)
        raise InputError(
            f"{'.'.join(path)}: {kind.__name__} has a setting of type {what}, which no TOML gives: take numbers, "
            "strings, booleans, literals or tuple[str, ...]."
        ) from None
    check_bounds(".".join(path), result)  # a plug-in's class may not check its own
    return result


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings by dotted key, each key after ``prefix``; empty tables are left out."""
    result: dict[str, Any] = {}
    for key, value in values.items():
        result |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return result


def parse_toml(text: str) -> dict[str, Any]:
    """Return the tables of a TOML document; ValueError if it is none, or nested too deeply."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read_toml(path: Path) -> dict[str, Any]:
    """Return the tables of a TOML file; InputError if missing, unreadable, or not TOML (with the line)."""
    try:
        return parse_toml(path.read_text(encoding="utf-8-sig"))  # Windows may begin UTF-8 with a mark
    except FileNotFoundError:
        raise InputError(f"{path}: no such file.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}.") from None
    except ValueError as error:
        raise InputError(f"{path}: not valid TOML: {error}.") from None


def build_record(path: Path, value: Any, kind: type[T]) -> T:
    """Build the record ``kind`` from a file's parsed ``value``, unknown keys ignored; InputError names file and key."""
    try:
        return _make_converter(forbid_extra_keys=False).structure(value, kind)
    except InputError as fault:
        raise InputError(f"{path}: damaged: {fault}") from None
    except Exception as error:  # noqa: BLE001 - hooks and constructors may raise anything
        raise InputError(f"{path}: damaged: {_first_fault(error, (), value)}") from None


def _make_scalar_hook(kind: type, words: str, *accepted: type) -> Callable[[Any, Any], Any]:
    """Return a function from values of ``accepted`` types to ``kind``; TypeError, which says ``words``, for others."""

    def convert(value: Any, _: Any) -> Any:
        """Return ``value`` as ``kind``; TypeError if its type is not accepted or a number is too large."""
        if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
            raise TypeError(f"expected {words}")
        try:
            converted = kind(value)
            if kind is int:
                float(converted)  # later computations convert it
        except OverflowError:
            raise TypeError(f"expected {words} of less than 309 digits") from None
        return converted

    return convert


def _first_fault(error: Exception, path: tuple[str, ...], values: Any) -> InputError:
    """Return, not raise, the error for the first fault in ``values``, which are at ``path``; it names the key."""
    if isinstance(error, ForbiddenExtraKeysError):
        names = [field.name for field in dataclasses.fields(error.cl)]
        return unknown_name("key", min(error.extra_fields), names, where=".".join(path))
    if isinstance(error, BaseValidationError):
        inner = error.exceptions[0]
        notes = [note for note in getattr(inner, "__notes__", ()) if isinstance(note, _NOTES)]
        if not notes:
            return _first_fault(inner, path, values)
        key: Any = notes[0].name if isinstance(notes[0], AttributeValidationNote) else notes[0].index
        if isinstance(values, Mapping) and key not in values:
            return InputError(f"{'.'.join((*path, str(key)))}: it has no default and must be given.")
        if isinstance(values, Mapping | Sequence) and isinstance(key, int) == isinstance(values, Sequence):
            return _first_fault(inner, (*path, str(key)), values[key])
        error = inner
    return error if isinstance(error, InputError) else InputError(f"{'.'.join(path)}{_describe_fault(error, values)}")


def _describe_fault(error: Exception, value: Any) -> str:
    """Return what is wrong with a value in words that follow its key, such as ``: expected a number, got 'x'.``."""
    said = str(error)
    if "literal" in said.lower():
        return f": must be one of {said.rpartition('Literal')[2].strip('[]. ')}, got {value!r:.60}."
    if isinstance(error, TypeError) and said.startswith("expected"):
        return f": {said}, got {value!r:.60}."
    if isinstance(value, Mapping):  # it is a table, and its class raised the error
        return f": {type(error).__name__}: {one_line(error)}."
    return f": expected a table, got {value!r:.60}."
