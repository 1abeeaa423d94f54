"""How many vehicles pass where: a run of SUMO over the beginning of the scenario, as it will be simulated."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vnetsim.errors import VnetsimError
from vnetsim.traffic.sumo.config import read_leniently
from vnetsim.traffic.sumo.outputs import SumoOutputs
from vnetsim.traffic.sumo.session import QUIET, binary, environment, without

LONGEST_S = 1800.0
"""More of a scenario is not counted: half an hour tells busy junctions apart, and costs less than the run itself."""

_NAME = "vnetsim_counts.xml"
_PATIENCE_S = 600


@dataclass(frozen=True, kw_only=True)
class Demand:
    """A scenario whose vehicles are to be counted.

    Args:
        config: the ``.sumocfg``.
        options: what its command line adds, such as seed and begin.
        begin_s: where it begins (s); ``end_s`` where it ends, negative without an end.
        end_s: see ``begin_s``.
    """

    config: Path
    options: Sequence[str]
    begin_s: float
    end_s: float

    @property
    def span_s(self) -> float:
        """How much of it is counted (s)."""
        return LONGEST_S if self.end_s < 0 else min(LONGEST_S, self.end_s - self.begin_s)

    def leaving(self) -> dict[str, int]:
        """Return how often vehicles drive off the end of each edge within ``span_s``; empty when SUMO cannot tell."""
        try:
            outputs = SumoOutputs(self.config, None)
        except VnetsimError:
            return {}
        counts = outputs.folder / _NAME
        command = [
            *(str(binary("sumo")), "-c", str(self.config), *QUIET, *without(self.options, "--end")),
            *("--end", f"{self.begin_s + self.span_s:.15g}"),
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
