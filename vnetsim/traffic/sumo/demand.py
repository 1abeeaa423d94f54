"""How many vehicles pass where: a run of SUMO over the beginning of the scenario, as it will be simulated."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from vnetsim.traffic.sumo.config import read_leniently
from vnetsim.traffic.sumo.outputs import SumoOutputs
from vnetsim.traffic.sumo.session import QUIET, binary, environment, without

_NAME = "vnetsim_counts.xml"
_PATIENCE_S = 600


def leaving(config: Path, options: Sequence[str], until_s: float) -> dict[str, int]:
    """Return how often vehicles drive off the end of each edge until a time (s); empty when SUMO cannot tell."""
    outputs = SumoOutputs(config, None)
    counts = outputs.folder / _NAME
    command = [
        *(str(binary("sumo")), "-c", str(config), *QUIET, *without(options, "--end"), "--end", f"{until_s:.15g}"),
        *("--remote-port", "0"),  # of the user's own, on which SUMO would wait for somebody
        *(*outputs.options(), "--edgedata-output", str(counts)),
    ]
    try:
        subprocess.run(  # noqa: S603 - the wheel's own binary, no shell
            command,
            check=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env=environment(),
            timeout=_PATIENCE_S,
        )
        return _left(next(outputs.folder.glob(f"*{_NAME}"), counts))
    except (OSError, subprocess.SubprocessError):
        return {}
    finally:
        outputs.close()


def _left(path: Path) -> dict[str, int]:
    counts: dict[str, int] = {}

    def start(element: str, attributes: Mapping[str, str]) -> None:
        if element == "edge" and attributes.get("left", "").isdigit():
            counts[attributes["id"]] = counts.get(attributes["id"], 0) + int(attributes["left"])

    read_leniently(path, start)
    return counts
