"""How many vehicles pass where: a quick run of SUMO over the scenario's own demand, however it is written.

SUMO's mesoscopic model moves vehicles from edge to edge, a hundred times faster than the microscopic one, and knows
repeated routes, flows of every kind, and trips without a route. Where it refuses a scenario the microscopic one counts.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vnetsim.errors import VnetsimError
from vnetsim.traffic.sumo.config import read_leniently
from vnetsim.traffic.sumo.outputs import SumoOutputs
from vnetsim.traffic.sumo.session import QUIET, binary, environment, without

LONGEST_S = 3600.0
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
        """Return how many vehicles drive off the end of each edge within ``span_s``; empty when SUMO cannot tell."""
        for model in (("--mesosim", "true"), ()):
            try:
                outputs = SumoOutputs(self.config, None)
            except VnetsimError:
                return {}
            try:
                counts = outputs.folder / _NAME
                end = ("--end", f"{self.begin_s + self.span_s:.15g}", "--ignore-route-errors", "true")
                command = [
                    *(
                        str(binary("sumo")),
                        "-c",
                        str(self.config),
                        *QUIET,
                        *without(self.options, "--end"),
                        *end,
                        *model,
                    ),
                    *(*outputs.options(), "--edgedata-output", str(counts)),
                ]
                done = subprocess.run(  # noqa: S603 - the wheel's own binary, no shell
                    command,
                    check=False,
                    capture_output=True,
                    stdin=subprocess.DEVNULL,
                    env=environment(),
                    timeout=_PATIENCE_S,
                )
                if done.returncode == 0:
                    return _left(next(outputs.folder.glob(f"*{_NAME}"), counts))
            except (OSError, subprocess.TimeoutExpired):
                continue
            finally:
                outputs.close()
        return {}


def _left(path: Path) -> dict[str, int]:
    counts: dict[str, int] = {}

    def start(element: str, attributes: Mapping[str, str]) -> None:
        if element == "edge" and attributes.get("left", "").isdigit():
            counts[attributes["id"]] = counts.get(attributes["id"], 0) + int(attributes["left"])

    read_leniently(path, start)
    return counts
