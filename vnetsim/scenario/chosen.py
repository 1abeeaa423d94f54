"""A plug-in that an experiment names: its class and its settings, found and checked together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vnetsim.errors import InputError
from vnetsim.plugins import Kind
from vnetsim.scenario.settings_file import structure, to_plain


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """A plug-in that an experiment names.

    Args:
        found: its class.
        settings: an instance of its ``Settings``.
    """

    found: Any
    settings: Any

    @property
    def record(self) -> dict[str, Any]:
        """Name, source and settings, for the manifest."""
        return {"name": self.found.name, "source": self.found.source, "settings": to_plain(self.settings)}


def chosen(kind: Kind, name: str, values: Mapping[str, Any]) -> Chosen:
    """Return the plug-in called ``name``, with its settings from the ``values`` of its table.

    Raises:
        InputError: there is none of that name, or its settings are wrong.
        RunError: an installed one is at fault.
    """
    try:
        found: Any = kind.find(name)
    except InputError as error:
        raise InputError(f"{kind.key}: {error}") from error
    return Chosen(found=found, settings=structure(values, found.Settings, "", (kind.table,)))
