"""`vnetsim plugins`: what can be swapped, which plug-ins there are, and what one of them says of itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from vnetsim.cli.options import Debug
from vnetsim.errors import RunError, unknown_name
from vnetsim.standard_streams import tell

if TYPE_CHECKING:
    from vnetsim.plugins import Kind


def kinds() -> tuple[Kind, ...]:
    """Return every kind of plug-in."""
    from vnetsim.learning.aggregation import AGGREGATIONS  # noqa: PLC0415 - keeps --help quick
    from vnetsim.learning.kinds import DATA_SETS, ENCODERS  # noqa: PLC0415
    from vnetsim.learning.registry import LEARNERS  # noqa: PLC0415
    from vnetsim.radio import RADIO_MODELS  # noqa: PLC0415
    from vnetsim.scenario.kinds import TRAFFIC_SOURCES  # noqa: PLC0415
    from vnetsim.simulation.pace import PACES  # noqa: PLC0415
    from vnetsim.simulation.selection import SELECTIONS  # noqa: PLC0415

    return LEARNERS, SELECTIONS, PACES, AGGREGATIONS, RADIO_MODELS, TRAFFIC_SOURCES, DATA_SETS, ENCODERS


def word(kind: Kind) -> str:
    """Return the word by which a kind is asked for: that of its entry-point group, ``"selections"``."""
    return kind.group.rpartition(".")[2]


def _words(kind: Kind) -> tuple[str, ...]:
    """Return all words by which a kind is known, one and many, ``_`` between their parts."""
    return word(kind), word(kind).removesuffix("s"), kind.name.replace(" ", "_")


def plugins(
    kind: Annotated[
        str | None,
        Parameter(
            help="Only this kind: learners, selections, paces, aggregations, radio_models, traffic_sources, data_sets "
            "or encoders."
        ),
    ] = None,
    name: Annotated[
        str | None, Parameter(help="Explain this one, installed or of a file as path/to/file.py:CLASS.")
    ] = None,
    /,
    *,
    debug: Debug = False,  # noqa: ARG001 - read by main
) -> int:
    """List what can be swapped, one line each; with KIND and NAME also equations, source and settings."""
    from vnetsim.cli.terminal import print_plugin, print_plugins  # noqa: PLC0415 - keeps --help quick
    from vnetsim.own_packages import claim  # noqa: PLC0415

    claim("learners")
    asked = kind and re.sub("[- ]", "_", kind)
    wanted = [one for one in kinds() if asked is None or asked in _words(one)]
    if not wanted:
        assert kind is not None
        raise unknown_name("kind of plug-in", kind, [word(one) for one in kinds()])
    if name is not None:
        print_plugin(wanted[0], wanted[0].find(name))
        return 0
    faults = []
    for one in wanted:
        found = {}
        for known in one.names():
            try:
                found[known] = one.find(known)
            except RunError as error:  # one package at fault must not hide the others
                faults.append(str(error))
        print_plugins(one, word(one), found)
    for fault in faults:
        tell(fault)
    return RunError.exit_code if faults else 0
