"""What a study asks for: a study file, or the arguments of ``vnetsim compare``, of which the same tables are made.

A study file says what is compared, under what, at which seeds: ``docs/how-to/compare.md`` has one with every key, and
``vnetsim.study.levels.StudyTables`` lists them.

An arm may have other settings too, ``settings.selection.name = "age"``, but none that changes the traffic, and none
beside ``equal_schedule``. Arms may leave their learner to the conditions: ``learner = "fedavg"`` in each of
``[[conditions]]``, or a list in the grid; an arm then needs a name.

Tables of a size are merged into those of the file; anything else of a size replaces what the file says.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vnetsim.errors import InputError, unknown_name
from vnetsim.errors.paths import path_name, resolved
from vnetsim.experiment import Experiment
from vnetsim.plugins import at_folder
from vnetsim.scenario.kinds import source_file
from vnetsim.scenario.settings_file import read_experiment, read_toml
from vnetsim.storage.structure import structure
from vnetsim.study.expansion import Expansion
from vnetsim.study.levels import Override, StudyTables, placed, seeds_of
from vnetsim.study.plan import Plan

MOST_CELLS = 500
"""More cells are run only when the user says so."""

OWN = {field.name for field in dataclasses.fields(StudyTables)} - {"title", "scenario", "notes"}
"""Keys that only a study has."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """The options of the command line that only a comparison has; None where they were not given.

    Args:
        scenario: a study file, or whatever ``vnetsim run`` takes.
        learners: ``a,b,c``; for a scenario.
        seeds: ``FIRST:END`` or ``a,b,c``.
        size: of a study file.
        equal_schedule: an arm or learner whose payload and work are those of all arms.
        yes: whether any number of cells is meant.
        trust: whether run directories may name code; see ``vnetsim.scenario.trust``.
        timing_only: whether nobody is trained; one learner is then enough.
    """

    scenario: str
    learners: str | None = None
    seeds: str | None = None
    size: str | None = None
    equal_schedule: str | None = None
    yes: bool = False
    trust: bool = False
    timing_only: bool = False

    def plan(self, options: Sequence[Override]) -> tuple[Plan, str]:
        """Return what is to be run, and a name for its folder; ``options`` are settings of all cells.

        Raises:
            InputError: anything wrong with file or options.
        """
        path = Path(self.scenario)
        if is_study(self.scenario):
            if self.learners is not None:
                raise InputError(f"--learners: {path} is a study, whose [[arms]] say what is compared.")
            values, size = _of_size(path, self.size)
            where, name, folder = (
                f"{path} (size {size})" if size else str(path),
                path_name(path.stem, size),
                path.parent,
            )
        else:
            values, where, folder = self._tables(options), "", Path()
            name = path_name(resolved(path).name.split(".")[0], "compare")
        if self.timing_only:
            name = f"{name}-timing"
            values.setdefault("arms", [{"learner": Experiment.learner}])
        if self.seeds is not None:
            values["seeds"] = seeds_of(self.seeds, "--seeds")
        if self.equal_schedule is not None:
            given = self.equal_schedule
            values["equal_schedule"] = given if source_file(given) is None else at_folder(given, Path.cwd())
        found = Expansion(values, options, where=where, folder=folder, trust=self.trust, timing_only=self.timing_only)
        return found.plan(None if self.yes else MOST_CELLS), name

    def _tables(self, options: Sequence[Override]) -> dict[str, Any]:
        """Return the tables of a study of some learners on one scenario."""
        if self.learners is None and not self.timing_only:
            hint = "or add [[arms]] to make it a study" if self.scenario.endswith(".toml") else "or name a study file"
            raise InputError(f"{self.scenario}: say what to compare with --learners flsimco,fedavg, {hint}.")
        if self.size is not None:
            raise InputError(f"--size {self.size}: {self.scenario} is a scenario; only a study file has sizes.")
        given = self.learners
        if given is None:
            given = read_experiment(self.scenario, options, trust=self.trust)[0].learner
        names = [name.strip() for name in given.split(",") if name.strip()]
        return {"scenario": self.scenario, "arms": [{"learner": name} for name in names]}


def is_study(scenario: str) -> bool:
    """Return whether a scenario of the command line is a study file: TOML with keys that only a study has.

    Raises:
        InputError: TOML that cannot be read.
    """
    path = Path(scenario)
    return path.suffix == ".toml" and not OWN.isdisjoint(read_toml(path))


def _of_size(path: Path, size: str | None) -> tuple[dict[str, Any], str]:
    """Return the tables of a study file at one of its sizes, None for the first, and the size's name, if it has any.

    Raises:
        InputError: there is no such size, or it says what a size has not.
    """
    values = read_toml(path)
    with placed(str(path)):
        sizes = structure(values, StudyTables, "").sizes
        if size is not None and size not in sizes:
            raise unknown_name("size", size, sizes)
        for name, changes in sizes.items():
            structure(changes, StudyTables, "", ("sizes", name))
            if "sizes" in changes:
                raise InputError(f"sizes.{name}.sizes: a size has no sizes.")
    chosen = size or next(iter(sizes), "")
    common = {key: value for key, value in values.items() if key != "sizes"}
    return merged(common, sizes.get(chosen, {})), chosen


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables below with those above merged into them; anything else above replaces what is below."""
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        result[key] = merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result
