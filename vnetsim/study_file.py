"""Study files: what is compared, under what, at which seeds.

A study is a TOML file::

    title = "FLSimCo against FedCo"
    notes = ["assumption: 95 silos"]     # shown on the page
    scenario = "intersection.sumocfg"    # as for vnetsim run; its path and those of learners from this file's folder
    seeds = "0:10"                       # FIRST:END without END, or a list such as [0, 3, 7]
    traffic_seeds = "0:10"               # optional: seed s replays the traffic of the (s mod n)-th of these n
    equal_schedule = "FLSimCo"           # optional: all arms have the payload and work of this arm or learner

    [settings]                           # of all runs, keys as in an experiment file
    rounds = 20
    learning.batch = 64                  # goes to the learners that know it

    [[arms]]                             # at least two: what is compared
    name = "FLSimCo"                     # optional; else the learner's
    learner = "flsimco"
    learning.t_alpha = 0.1               # optional: settings of this arm alone

    [[arms]]
    learner = "fedco"

    [[conditions]]                       # optional: under what it is compared
    name = "IID"
    settings.data.partition = "iid"

    [[conditions]]
    name = "Dirichlet"
    settings.data = { partition = "dirichlet", alpha = 0.1 }
    scenario = "expressway.sumocfg"      # optional: instead of the general one

    [grid]                               # optional: every value of each key with every value of the others
    learning.queue = [1024, 4096]        # keys of learning multiply the arms whose learner knows them,
    link.rate_bps = [1e6, 1e7]           # others, scenario among them, the conditions

    [[skip]]                             # optional: pairs left out, and why
    arm = "fedco queue=4096"             # a label, or a pattern such as "fedco *"; without it, all arms
    condition = "IID *"
    reason = "the short queue holds all that IID data have to tell"

    [sizes.small]                        # optional: what is said here goes before the above; the first size is the
    seeds = "0:3"                        # default, --size names another
    settings.rounds = 5

    [sizes.paper]

Tables of a size are merged into those of the file; anything else of a size replaces what the file says.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from vnetsim.errors import InputError, unknown_name
from vnetsim.registry import at_folder, find_learner, short_name
from vnetsim.settings_file import read_toml, structure
from vnetsim.study import parse_seeds
from vnetsim.study_design import Arm, Condition, Design
from vnetsim.study_grid import (
    Skip,
    grid_of,
    located,
    multiplied_arms,
    multiplied_conditions,
    settings_of,
    skipped_of,
)

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class _File:
    """The keys of a study file."""

    title: str = ""
    notes: tuple[str, ...] = ()
    scenario: str = ""
    seeds: Any = "0:10"
    traffic_seeds: Any = None
    equal_schedule: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    arms: Any = ()
    conditions: Any = ()
    grid: Mapping[str, Any] = field(default_factory=dict)
    skip: Any = ()
    sizes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _ArmTable:
    name: str = ""
    learner: str = ""
    learning: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _ConditionTable:
    name: str = ""
    scenario: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)


OWN = {field.name for field in dataclasses.fields(_File)} - {"title", "scenario", "notes"}


def is_study(scenario: str) -> bool:
    """Return whether a scenario of the command line is a study file: TOML with keys that only a study has.

    Raises:
        InputError: TOML that cannot be read.
    """
    path = Path(scenario)
    return path.suffix == ".toml" and not OWN.isdisjoint(read_toml(path))


def read_study(path: Path, size: str | None = None) -> tuple[Design, str]:
    """Return what a study file asks for, and the size taken, empty where it has none.

    Every size is read, so that a fault shows whichever is asked for.

    Args:
        path: the file.
        size: one of its sizes; None for the first.

    Raises:
        InputError: naming file and key.
    """
    values = read_toml(path)
    sizes = structure(values, _File, str(path)).sizes
    if size is not None and size not in sizes:
        raise unknown_name("size", size, sizes, where=str(path))
    common = {key: value for key, value in values.items() if key != "sizes"}
    designs = {}
    for name, changes in sizes.items():
        if not isinstance(changes, Mapping):
            raise InputError(f"{path}: sizes.{name}: expected a table, got {changes!r}.")
        if "sizes" in changes:
            raise InputError(f"{path}: sizes.{name}.sizes: a size has no sizes.")
        structure(changes, _File, str(path), ("sizes", name))
        designs[name] = _design(path, f"{path} (size {name})", _merged(common, changes))
    chosen = size if size is not None else next(iter(sizes), "")
    return (designs[chosen] if chosen else _design(path, str(path), common)), chosen


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        result[key] = _merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result


def _design(path: Path, where: str, values: Mapping[str, Any]) -> Design:
    file = structure(values, _File, where)
    grid = grid_of(file.grid, where)
    arms = multiplied_arms(_arms(file, where, path.parent), grid, where)
    general = settings_of(file.settings, where, "settings")
    conditions = multiplied_conditions(_conditions(file, where, path.parent), grid, where, path.parent)
    _refuse_same(arms, f"{where}: arms")
    _refuse_same(conditions, f"{where}: conditions")
    if len(arms) < 2:
        raise InputError(f"{where}: [[arms]]: a study compares at least two, this has {len(arms)}.")
    traffic_seeds = [] if file.traffic_seeds is None else _seeds(file.traffic_seeds, f"{where}: traffic_seeds")
    conditions = [dataclasses.replace(condition, settings=(*general, *condition.settings)) for condition in conditions]
    _refuse_without_scenario(conditions, where)
    if traffic_seeds and any(key == ("traffic", "seed") for one in conditions for key, _ in one.settings):
        raise InputError(f"{where}: traffic.seed: traffic_seeds says it already; leave one of them out.")
    design = Design(
        where=where,
        arms=tuple(arms),
        conditions=tuple(conditions),
        seeds=_seeds(file.seeds, f"{where}: seeds"),
        traffic_seeds=traffic_seeds,
        equal_schedule=schedule_named(file.equal_schedule, arms, path.parent),
        skipped=tuple(skipped_of(_tables(file.skip, Skip, where, "skip"), arms, conditions, where)),
        varied=frozenset(grid),
        title=file.title,
        notes=file.notes,
    )
    if not design.pairs():
        raise InputError(f"{where}: [[skip]]: everything is left out.")
    return design


def _tables(values: Any, kind: type[T], where: str, name: str) -> list[T]:
    """Return the tables of ``[[name]]`` as the dataclass ``kind``."""
    if (
        not isinstance(values, Sequence)
        or isinstance(values, str)
        or not all(isinstance(one, Mapping) for one in values)
    ):
        raise InputError(f"{where}: {name}: write each as a table below a line [[{name}]].")
    return [structure(one, kind, where, (f"[[{name}]] no. {number}",)) for number, one in enumerate(values, start=1)]


def _arms(file: _File, where: str, folder: Path) -> list[Arm]:
    arms = []
    for number, table in enumerate(_tables(file.arms, _ArmTable, where, "arms"), start=1):
        place = f"{where}: [[arms]] no. {number}"
        if not table.learner:
            raise InputError(f'{place}: learner: name one, for example learner = "flsimco".')
        learner = at_folder(table.learner, folder)
        try:
            find_learner(learner)
        except InputError as error:
            raise InputError(f"{place}: {error}") from None
        arms.append(Arm(label=table.name or short_name(learner), learner=learner, learning=table.learning))
    return arms


def _conditions(file: _File, where: str, folder: Path) -> list[Condition]:
    general = located(file.scenario, folder) if file.scenario else ""
    conditions = []
    for number, table in enumerate(_tables(file.conditions, _ConditionTable, where, "conditions"), start=1):
        place = f"[[conditions]] no. {number}"
        if not table.name:
            raise InputError(f"{where}: {place}: name: say what the page is to call it.")
        if table.scenario and "scenario" in file.grid:
            raise InputError(f"{where}: {place}.scenario: the grid varies it; set it in one place.")
        conditions.append(
            Condition(
                label=table.name,
                scenario=located(table.scenario, folder) if table.scenario else general,
                settings=settings_of(table.settings, where, f"{place}.settings"),
            )
        )
    return conditions or [Condition(scenario=general)]


def _refuse_same(labelled: Sequence[Arm] | Sequence[Condition], place: str) -> None:
    labels = [one.label for one in labelled]
    for label in labels:
        if labels.count(label) > 1:
            raise InputError(f"{place}: '{label}' is there twice; give each a name of its own.")


def _refuse_without_scenario(conditions: Sequence[Condition], where: str) -> None:
    for condition in conditions:
        if not condition.scenario:
            which = f" for condition '{condition.label}'" if condition.label else ""
            raise InputError(f'{where}: scenario: name the traffic{which}, such as "gaussian" or "city.sumocfg".')


def _seeds(value: Any, place: str) -> list[int]:
    if isinstance(value, str):
        return parse_seeds(value, f"{place}: ")
    if not isinstance(value, list) or not all(type(seed) is int and seed >= 0 for seed in value):
        raise InputError(f'{place}: expected "FIRST:END" or a list of whole numbers from 0, got {value!r}.')
    if not value or len(set(value)) < len(value):
        raise InputError(f"{place}: {'a seed is there twice' if value else 'the list is empty'}.")
    return value


def schedule_named(name: str, arms: Sequence[Arm], folder: Path) -> str:
    """Return an arm's label as it is; of a learner, the path of its file, if it has one, taken from ``folder``."""
    return name if any(arm.label == name for arm in arms) else at_folder(name, folder)
