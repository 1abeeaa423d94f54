"""Files that declare XML entities, crash SUMO or never end are refused before SUMO sees them.

SUMO's parser expands entities, so that a few lines can grow to gigabytes inside it, where nothing can stop it any
more. No tool of SUMO writes a document type. And a net or an additional file that is cut off within its first elements
ends libsumo, and this process with it, by a segmentation fault (SUMO 1.28).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from vnetsim.errors import InputError
from vnetsim.special_files import refuse_special
from vnetsim.traffic.sumo.outputs import NOWHERE, is_output
from vnetsim.xml_files import NotWellFormedError, StopReading, UnreadableError, XmlFile

_CRASHING = {"net-file", "net", "n", "additional-files", "additional", "a"}
"""Options, in all their spellings, that name files which must be well-formed."""


def refuse_entities(config: Path) -> None:
    """Check a SUMO configuration and every file it names.

    Other faults of these files are left to SUMO, which describes them better. Nets and additional files are read
    whole, of the others (routes may be gigabytes) what stands before the root element.

    Args:
        config: the ``.sumocfg``.

    Raises:
        InputError: one of the files declares an entity, or a net or additional file is not well-formed, with file and
            line; or one that SUMO would read is a pipe, device or socket.
    """
    named: dict[str, bool] = {}
    read: set[str] = set()

    def start(option: str, attributes: Mapping[str, str]) -> None:
        for name in attributes.get("value", attributes.get("v", "")).split(","):
            named[name.strip()] = named.get(name.strip(), False) or option in _CRASHING
            if not is_output(option):
                read.add(name.strip())

    with suppress(NotWellFormedError, UnreadableError):
        XmlFile(config, start).read()
    for name, whole in named.items():
        path = config.parent / name
        if name in read and name not in NOWHERE:
            refuse_special(path)
        if not name or not os.path.isfile(path):  # noqa: PTH113 - False as well for a name that no file can have
            continue
        try:
            XmlFile(path, None if whole else _stop).read()
        except UnreadableError:
            continue
        except NotWellFormedError as error:
            if whole:
                raise InputError(f"{config}: {error}") from error


def _stop(_: str, __: Mapping[str, str]) -> None:
    """End reading at the root element: entities can only be declared before it."""
    raise StopReading
