"""Read a study file, or make the same tables from the arguments of ``vnetsim compare``.

A study file contains arms, conditions and seeds: ``docs/how-to/compare.md`` has one with every key, and
``vnetsim.study.levels.StudyTables`` lists the keys. A size's tables are merged into those of the file.
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

MOST_CELLS = 500  # without ``--yes``

OWN = {field.name for field in dataclasses.fields(StudyTables)} - {"title", "scenario", "notes"}  # only of studies


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
    """Return the plan, and a name for the folder of the comparison (without its parent); see ``vnetsim.compare``.

    None leaves ``seeds`` and ``equal_schedule`` to the study, as False leaves ``sharp_control``, and takes its first
    ``size``. ``learners`` (``a,b,c``) must be None for a study; for a scenario, None needs ``timing_only`` and means
    its own learner. InputError: a wrong file or argument, or, without ``yes``, more than ``MOST_CELLS`` cells.
    """
    path = Path(scenario)
    if is_study(scenario):
        if learners is not None:
            raise InputError(f"--learners: {path} is a study, whose [[arms]] say what is compared.")
        values, found_size, common = _read_size(path, size)
        where, folder = f"{path} (size {found_size})" if found_size else str(path), path.parent
        name = path_name(path.stem, found_size)
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


def _read_size(path: Path, size: str | None) -> tuple[dict[str, Any], str, dict[str, Any] | None]:
    """Return tables at ``size`` (None: the first), its name, tables without it; without sizes name "" and None."""
    values = read_toml(path)
    with error_context(str(path)):
        sizes = structure(values, StudyTables, "").sizes
        if size is not None and size not in sizes:
            raise unknown_name("size", size, sizes)
        for name, changes in sizes.items():
            structure(changes, StudyTables, "", ("sizes", name))
            if "sizes" in changes:
                raise InputError(f"sizes.{name}.sizes: a size has no sizes.")
    name = size or next(iter(sizes), "")
    common = {key: value for key, value in values.items() if key != "sizes"}
    return merge(common, sizes.get(name, {})), name, common if sizes else None


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return a new table with the keys of both; if both have a key, two tables are merged, else ``above`` decides."""
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        result[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result
