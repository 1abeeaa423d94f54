"""Read a study file, or make the same tables from the arguments of ``vnetsim compare``.

A study file contains arms, conditions and seeds: ``docs/how-to/compare.md`` has one with every key, and
``vnetsim.study.levels.StudyTables`` lists the keys.

An arm may have other settings than the learner's, such as ``settings.selection.name = "age"``, but none that changes
the traffic, and none together with ``equal_schedule``. The conditions may name the learners instead of the arms:
``learner = "fedavg"`` in each of ``[[conditions]]``, or a list in the grid. An arm then needs a name.

Tables of a size are merged into those of the file; other values of a size replace those of the file.
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
from vnetsim.scenario.settings_file import LAPTOP, Override, read_experiment
from vnetsim.storage.structure import read_toml, structure
from vnetsim.study.expansion import Expansion
from vnetsim.study.levels import StudyTables, error_context, seeds_of
from vnetsim.study.plan import Plan

MOST_CELLS = 500
"""Largest number of cells without ``--yes``."""

OWN = {field.name for field in dataclasses.fields(StudyTables)} - {"title", "scenario", "notes"}
"""Keys by which a study file is recognised."""


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
    """Return the plan, and a name for the folder of the comparison (without its parent).

    Args:
        scenario: a study file, or a scenario as for ``vnetsim run``.
        options: settings of all cells.
        learners: ``a,b,c`` for a scenario; None for a study file, or with ``timing_only`` for the scenario's learner.
        seeds: ``FIRST:END`` or ``a,b,c``; None for those of the study.
        size: a size of the study file; None for its first one.
        equal_schedule: arm or learner whose payload and work all arms get.
        sharp_control: run each arm a second time without blurred images; False leaves it to the study.
        scale: scale of the learners; see ``vnetsim.run``.
        yes: allow more than ``MOST_CELLS`` cells.
        trust: whether run directories may name code; see ``vnetsim.scenario.trust``.
        timing_only: play the rounds without training; one learner is then enough.

    Raises:
        InputError: the file or an option is wrong.
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
    """Return whether a scenario is a study file: TOML with a key in ``OWN``; InputError if it cannot be read."""
    path = Path(scenario)
    return path.suffix == ".toml" and not OWN.isdisjoint(read_toml(path))


def _of_size(path: Path, size: str | None) -> tuple[dict[str, Any], str, dict[str, Any] | None]:
    """Return a study's tables at a size (None: the first), its name or "", and the tables of all sizes or None."""
    values = read_toml(path)
    with error_context(str(path)):
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
    """Return a new table merged from two, also in nested tables; ``above`` overrides ``below``."""
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        result[key] = merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result
