"""SUMO's files, read as far as they are readable: what is wrong with them is SUMO's to say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from vnetsim.errors import InputError
from vnetsim.xml_files import Start, XmlFile


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
