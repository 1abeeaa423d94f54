"""From what ``vnetsim compare`` was given to a plan: a study file, or a scenario and learners."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vnetsim.errors import InputError
from vnetsim.paths import path_name, resolved
from vnetsim.study.file import is_study, read_study, schedule_named
from vnetsim.study.plan import MOST_CELLS, Override, Plan, parse_names, parse_seeds
from vnetsim.study.resolve import plan, resolve

SEEDS = "0:10"


@dataclass(frozen=True, kw_only=True)
class Request:
    """The options of the command line that only a comparison has; None and empty where they were not given.

    Args:
        scenario: a study file, or whatever ``vnetsim run`` takes.
        learners: ``a,b,c``; for a scenario.
        seeds: ``FIRST:END`` or ``a,b,c``.
        size: of a study file.
        equal_schedule: an arm or learner whose payload and work are those of all arms.
        yes: whether any number of cells is meant.
        trust: whether run directories may name code; see ``vnetsim.scenario.trust``.
    """

    scenario: str
    learners: str | None = None
    seeds: str | None = None
    size: str | None = None
    equal_schedule: str | None = None
    yes: bool = False
    trust: bool = False

    def plan(self, options: Sequence[Override]) -> tuple[Plan, str]:
        """Return what is to be run, and a name for its folder; ``options`` are settings of all cells.

        Raises:
            InputError: anything wrong with file or options.
        """
        limit = None if self.yes else MOST_CELLS
        path = Path(self.scenario)
        if not is_study(self.scenario):
            return self._of_scenario(options, limit), path_name(resolved(path).name.split(".")[0], "compare")
        if self.learners is not None:
            raise InputError(f"--learners: {path} is a study, whose [[arms]] say what is compared.")
        design, size = read_study(path, self.size)
        if self.seeds is not None:
            design = dataclasses.replace(design, seeds=parse_seeds(self.seeds))
        if self.equal_schedule is not None:
            named = schedule_named(self.equal_schedule, design.arms, Path.cwd())
            design = dataclasses.replace(design, equal_schedule=named)
        return resolve(design, options, limit, trust=self.trust), path_name(path.stem, size)

    def _of_scenario(self, options: Sequence[Override], limit: int | None) -> Plan:
        if self.learners is None:
            hint = "or add [[arms]] to make it a study" if self.scenario.endswith(".toml") else "or name a study file"
            raise InputError(f"{self.scenario}: say what to compare with --learners flsimco,fedavg, {hint}.")
        if self.size is not None:
            raise InputError(f"--size {self.size}: {self.scenario} is a scenario; only a study file has sizes.")
        names, seeds = parse_names(self.learners), parse_seeds(self.seeds or SEEDS)
        equal = self.equal_schedule or ""
        return plan(self.scenario, names, seeds, options, equal_schedule=equal, limit=limit, trust=self.trust)
