"""Finds the plug-ins that an experiment names, and checks their settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vnetsim.errors import InputError
from vnetsim.plugins import Kind
from vnetsim.scenario.settings_file import to_plain
from vnetsim.storage.structure import structure


@dataclass(frozen=True, kw_only=True)
class ResolvedPlugin:
    """A plug-in that an experiment names."""

    found: Any  # its class
    settings: Any  # an instance of the class, or of a learner's ``Settings``

    @property
    def plain_settings(self) -> dict[str, Any]:
        """Its settings as TOML values, defaults included, None left out."""
        return to_plain(self.settings)

    @property
    def record(self) -> dict[str, Any]:
        """The plug-in for the manifest: ``name``, ``source`` and ``settings``, in TOML values."""
        return {"name": self.found.name, "source": self.found.source, "settings": self.plain_settings}


def resolve_plugin(
    kind: Kind,
    values: Mapping[str, Any],
    name: str = "",
    *,
    found: type[Any] | None = None,
    below: tuple[str, ...] = (),
) -> ResolvedPlugin:
    """Find a plug-in by ``name``, else ``values["name"]``, else the kind's default; build its settings from ``values``.

    ``found`` is its class, if already known; ``below`` is, for messages, the path of the table that contains the kind's
    table. InputError if there is no such plug-in, or its settings are wrong; RunError if an installed one is faulty.
    """
    own = {key: value for key, value in values.items() if f"{kind.table}.{key}" != kind.key}
    name = name or values.get("name", kind.default)
    if not isinstance(name, str):
        raise InputError(f"{kind.key}: expected a name, got {name!r}.")
    try:
        plugin: Any = found or kind.find(name)
    except InputError as error:
        raise InputError(f"{'.'.join((*below, kind.key))}: {error}") from error
    return ResolvedPlugin(found=plugin, settings=structure(own, kind.settings_of(plugin), "", (*below, kind.table)))
