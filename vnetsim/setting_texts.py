"""Meaning, unit, default and bounds of settings, as the command line and the documentation print them.

The meaning is read from ``Args`` in the docstring of the settings class, unit and bounds from the field's annotation
(``vnetsim.errors.bounds.Within``), the default from the field.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import docstring_parser
from docstring_parser import DocstringStyle

from vnetsim.errors.bounds import Within, acts_of, bounds_of, in_few_characters

MISSING = "(must be given)"
"""Printed in place of a default when a setting has none."""

MOST_WANTED = (
    "rounds", "learner", "seed", "traffic.rsu", "traffic.warmup_s", "round.quorum", "round.invited",
    "round.deadline_s", "round.max_staleness", "selection.name", "learning.lr", "learning.batch", "learning.steps",
    "learning.encoder", "silos.count", "silos.by", "data.name", "data.partition", "data.train_images", "radio.name",
    "radio.bandwidth_hz", "compute.preset", "compute.median_flops", "camera.exposure_s", "exchange.topology",
    "schedule.learner",
)  # fmt: skip
"""The settings that most studies set."""

_WORDS: Mapping[Any, str] = {
    bool: "true or false",
    int: "whole number",
    float: "number",
    str: "text",
    tuple[str, ...]: "list of texts",
}


@dataclass(frozen=True, kw_only=True)
class SettingText:
    """One setting in words."""

    key: str  # the dotted key, as ``--set`` takes it
    meaning: str  # in sentences; empty if the class does not document the field
    values: str  # the type of its value, or the words to choose from
    default: str  # as in a TOML file; ``MISSING`` if there is none, empty for None
    within: Within | None  # bounds with their unit and reason; None if there are none
    acts: str = ""  # when it has an effect; empty for always

    @property
    def unit(self) -> str:
        """The unit; empty for none."""
        return self.within.unit if self.within else ""

    @property
    def bounds(self) -> str:
        """The bounds with unit and reason; empty for none."""
        return f"{self.within}: {self.within.reason}" if self.within else ""


def description(kind: type) -> str:
    """Return the docstring of a class up to ``Args`` as Markdown; empty if it has none."""
    # Markdown knows a literal block by its indentation
    return re.sub(r"::$", ":", _split_docstring(kind)[0], flags=re.MULTILINE)


def meanings(kind: type) -> dict[str, str]:
    """Return the meaning by field, from ``Args`` of a settings class and its bases; the class wins over a base."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if dataclasses.is_dataclass(base):
            found.update(_split_docstring(base)[1])
    return found


def _split_docstring(kind: type) -> tuple[str, dict[str, str]]:
    """Return a class's docstring before ``Args``, and the text of each argument by name; both empty without any."""
    text = inspect.cleandoc(kind.__doc__ or "").replace("``", "`")
    if text.startswith(f"{kind.__name__}("):  # written by dataclass if there is no docstring
        return "", {}
    found = docstring_parser.parse(text, DocstringStyle.GOOGLE)
    arguments = {
        one.arg_name: " ".join((one.description or "").split()) for one in found.params if one.args[0] == "param"
    }
    return (found.description or "").strip(), arguments


@functools.cache
def tables_of(kind: type) -> Mapping[str, type]:
    """Return the nested tables of a settings class: the fields that are dataclasses, as class by name."""
    hints = get_type_hints(kind)
    found = {field.name: hints[field.name] for field in dataclasses.fields(kind)}
    return {name: hint for name, hint in found.items() if isinstance(hint, type) and dataclasses.is_dataclass(hint)}


def setting_texts(kind: type, table: str = "", defaults: Mapping[str, Any] | None = None) -> Iterator[SettingText]:
    """Yield the settings of the dataclass ``kind`` in the order of its fields, those of nested tables last.

    ``table`` is the dotted key of the table with these settings, empty for the top level; ``defaults`` are a learner's
    own by dotted key and replace those of the fields. Fields with metadata are left out.
    """
    meaning, bounds, acts = meanings(kind), bounds_of(kind), acts_of(kind)
    hints, tables = get_type_hints(kind), tables_of(kind)
    for field in dataclasses.fields(kind):
        key = f"{table}.{field.name}" if table else field.name
        if field.name not in tables and not field.metadata:
            yield SettingText(
                key=key,
                meaning=meaning.get(field.name, ""),
                values=_describe_values(hints[field.name]),
                default=as_toml(defaults[key]) if defaults and key in defaults else _default_text(field),
                within=bounds.get(field.name),
                acts=f"acts with {' and '.join(map(str, acts[field.name]))}" if field.name in acts else "",
            )
    for name, below in tables.items():
        yield from setting_texts(below, f"{table}.{name}" if table else name, defaults)


def as_toml(value: Any) -> str:
    """Return a value as in a TOML file; empty for None. Text is not escaped; in a table, keys are not quoted."""
    if value is None or isinstance(value, bool):
        return "" if value is None else str(value).lower()
    if isinstance(value, float):
        return in_few_characters(value)
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(as_toml, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key} = {as_toml(below)}' for key, below in value.items())}}}"
    return str(value)


def _default_text(field: dataclasses.Field[Any]) -> str:
    """Return a field's default as in a TOML file; ``MISSING`` if it has none."""
    if field.default is not dataclasses.MISSING:
        return as_toml(field.default)
    return MISSING if field.default_factory is dataclasses.MISSING else as_toml(field.default_factory())


def _describe_values(hint: Any) -> str:
    """Return which values a type annotation allows, as "whole number | left out" for ``int | None``."""
    if hint in _WORDS:
        return _WORDS[hint]
    if get_origin(hint) is Literal:
        return " | ".join(map(str, get_args(hint)))
    inner = [part for part in get_args(hint) if part is not NoneType]
    if NoneType in get_args(hint):
        return " | ".join([*map(_describe_values, inner), "left out"])
    return "table" if isinstance(get_origin(hint), type) and issubclass(get_origin(hint), Mapping) else str(hint)
