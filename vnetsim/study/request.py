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
from pathlib import Path
from typing import Any

from vnetsim.errors import InputError, unknown_name
from vnetsim.errors.paths import path_name, resolve_path
from vnetsim.plugins import at_folder
from vnetsim.scenario.kinds import source_file
from vnetsim.scenario.settings_file import LAPTOP, read_experiment
from vnetsim.storage.structure import read_toml, structure
from vnetsim.study.expansion import Expansion
from vnetsim.study.levels import Override, StudyTables, placed, seeds_of
from vnetsim.study.plan import Plan

MOST_CELLS = 500
"""More cells are run only when the user says so."""

OWN = {field.name for field in dataclasses.fields(StudyTables)} - {"title", "scenario", "notes"}
"""Keys that only a study has."""


def plan_of(
    scenario: str,
    options: Sequence[Override],
    *,
    learners: str | None = None,
    seeds: str | None = None,
    size: str | None = None,
    equal_schedule: str | None = None,
    sharp_control: bool = False,
    scale: str = LAPTOP,
    yes: bool = False,
    trust: bool = False,
    timing_only: bool = False,
) -> tuple[Plan, str]:
    """Return what is to be run, and a name for its folder.

    Args:
        scenario: a study file, or whatever ``vnetsim run`` takes.
        options: settings of all cells.
        learners: ``a,b,c``; for a scenario.
        seeds: ``FIRST:END`` or ``a,b,c``.
        size: of a study file.
        equal_schedule: an arm or learner whose payload and work are those of all arms.
        sharp_control: whether each arm is followed by the same with no image blurred; False for what the study says.
        scale: of the learners; see ``vnetsim.run``.
        yes: whether any number of cells is meant.
        trust: whether run directories may name code; see ``vnetsim.scenario.trust``.
        timing_only: whether nobody is trained; one learner is then enough.

    Raises:
        InputError: anything wrong with file or options.
    """
    path = Path(scenario)
    if is_study(scenario):
        if learners is not None:
            raise InputError(f"--learners: {path} is a study, whose [[arms]] say what is compared.")
        values, chosen, common = _of_size(path, size)
        where, folder = f"{path} (size {chosen})" if chosen else str(path), path.parent
        name = path_name(path.stem, chosen)
    else:
        if learners is None and not timing_only:
            hint = "or add [[arms]] to make it a study" if path.suffix == ".toml" else "or name a study file"
            raise InputError(f"{scenario}: say what to compare with --learners flsimco,fedavg, {hint}.")
        if size is not None:
            raise InputError(f"--size {size}: {scenario} is a scenario; only a study file has sizes.")
        named = read_experiment(scenario, options, trust=trust)[0].learner if learners is None else learners
        arms = [{"learner": one.strip()} for one in named.split(",") if one.strip()]
        values, where, folder, common = {"scenario": scenario, "arms": arms}, "", Path(), None
        name = path_name(resolve_path(path).name.split(".")[0], "compare")
    if timing_only:
        name = f"{name}-timing"
    if sharp_control and timing_only:
        raise InputError("--sharp-control: blur changes what is learnt, and with --timing-only nobody is trained.")
    if sharp_control:
        values["sharp_control"] = True
    if seeds is not None:
        values["seeds"] = seeds_of(seeds, "--seeds")
    if equal_schedule is not None:
        of_file = source_file(equal_schedule) is not None
        values["equal_schedule"] = at_folder(equal_schedule, Path.cwd()) if of_file else equal_schedule
    asked: dict[str, Any] = {"trust": trust, "timing_only": timing_only, "scale": scale}
    found = Expansion(values, options, where=where, folder=folder, common=common, **asked)
    return found.plan(None if yes else MOST_CELLS), name


def is_study(scenario: str) -> bool:
    """Return whether a scenario of the command line is a study file: TOML with keys that only a study has.

    Raises:
        InputError: TOML that cannot be read.
    """
    path = Path(scenario)
    return path.suffix == ".toml" and not OWN.isdisjoint(read_toml(path))


def _of_size(path: Path, size: str | None) -> tuple[dict[str, Any], str, dict[str, Any] | None]:
    """Return the tables of a study file at one of its sizes, None for the first, the size's name, and those of all.

    Without sizes the name is empty, and the tables of all are None.

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
    return merged(common, sizes.get(chosen, {})), chosen, common if sizes else None


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables below with those above merged into them; anything else above replaces what is below."""
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        result[key] = merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result
