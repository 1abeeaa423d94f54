"""Files that declare XML entities or never end are refused before SUMO sees them.

SUMO's parser expands entities, so that a few lines can grow to gigabytes inside it, where nothing can stop it any
more. No tool of SUMO writes a document type.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from vnetsim.errors.paths import refuse_special
from vnetsim.traffic.sumo.outputs import NOWHERE, is_output
from vnetsim.xml_files import NotWellFormedError, StopReading, UnreadableError, XmlFile


def refuse_entities(config: Path) -> None:
    """Check a SUMO configuration and every file it names.

    Other faults of these files are left to SUMO, which describes them better: only what stands before the root element
    is read.

    Args:
        config: the ``.sumocfg``.

    Raises:
        InputError: one of the files declares an entity, or one that SUMO would read is a pipe, device or socket.
    """
    named: dict[str, None] = {}
    read: set[str] = set()

    def start(option: str, attributes: Mapping[str, str]) -> None:
        for name in attributes.get("value", attributes.get("v", "")).split(","):
            named[name.strip()] = None
            if not is_output(option):
                read.add(name.strip())

    with suppress(NotWellFormedError, UnreadableError):
        XmlFile(config, start).read()
    for name in named:
        path = config.parent / name
        if name in read and name not in NOWHERE:
            refuse_special(path)
        if not name or not os.path.isfile(path):  # noqa: PTH113 - False as well for a name that no file can have
            continue
        with suppress(NotWellFormedError, UnreadableError):
            XmlFile(path, _stop).read()


def _stop(_: str, __: Mapping[str, str]) -> None:
    """End reading at the root element: entities can only be declared before it."""
    raise StopReading
