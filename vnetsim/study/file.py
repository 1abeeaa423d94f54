"""Study files: what is compared, under what, at which seeds.

A study is a TOML file::

    title = "FLSimCo against FedCo"
    notes = ["assumption: 95 silos"]     # shown on the page
    scenario = "intersection.sumocfg"    # as for vnetsim run; paths in this file are seen from its folder
    seeds = "0:10"                       # FIRST:END without END, or a list such as [0, 3, 7]
    traffic_seeds = "0:10"               # optional: seed s replays the traffic of the (s mod n)-th of these n
    equal_schedule = "FLSimCo"           # optional: all arms have the payload and work of this arm or learner
    against = "FLSimCo"                  # optional: the others are compared with this arm alone, not all in pairs
    last_evaluations = 3                 # optional: the mean of the last 3 values of a metric is compared, not the last
    interval = "sign-flip"               # optional: or "t" (normal differences), or "bca" (bootstrap, from 15 seeds)

    [settings]                           # of all runs, keys as in an experiment file
    rounds = 20
    learning.batch = 64                  # goes to the learners that know it

    [[arms]]                             # at least two: what is compared
    name = "FLSimCo"                     # optional; else the learner's
    learner = "flsimco"
    learning.t_alpha = 0.1               # optional: settings of this arm's learner

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
    link.rate_bps = [1e6, 1e7]           # others, scenario and learner among them, the conditions

    [[skip]]                             # optional: pairs left out, and why
    arm = "fedco queue=4096"             # a label, or a pattern such as "fedco *"; without it, all arms
    condition = "IID *"
    reason = "the short queue holds all that IID data have to tell"

    [sizes.small]                        # optional: what is said here goes before the above; the first size is the
    seeds = "0:3"                        # default, --size names another
    settings.rounds = 5

    [sizes.paper]

An arm may have other settings too, ``settings.round.selection = "age"``, but none that changes the traffic, and none
beside ``equal_schedule``. Arms may leave their learner to the conditions: ``learner = "fedavg"`` in each of
``[[conditions]]``, or a list in the grid; an arm then needs a name.

Tables of a size are merged into those of the file; anything else of a size replaces what the file says.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

from vnetsim.errors import InputError, unknown_name
from vnetsim.experiment import Experiment
from vnetsim.learning.registry import find_learner
from vnetsim.plugins import at_folder, short_name
from vnetsim.scenario.kinds import scenario_at
from vnetsim.scenario.settings_file import read_toml, structure
from vnetsim.setting_checks import Within
from vnetsim.storage.comparison import Interval
from vnetsim.study.design import Arm, Condition, Design
from vnetsim.study.grid import (
    Skip,
    grid_of,
    multiplied_arms,
    multiplied_conditions,
    settings_of,
    skipped_of,
)
from vnetsim.study.plan import parse_seeds

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
    against: str = ""
    last_evaluations: Annotated[int, Within(1, 10**6, "", "the mean of no value is none; more than any run has")] = 1
    interval: Interval = "sign-flip"
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
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _ConditionTable:
    name: str = ""
    scenario: str = ""
    learner: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)


NOT_OF_AN_ARM = {
    "learning": "learning, beside settings",
    **dict.fromkeys(("traffic", "gaussian", "camera", "source"), "[[conditions]]: all arms replay one traffic"),
}
"""Tables of an experiment that ``settings`` of an arm has not, and what says them instead."""

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
    general = settings_of(file.settings, where, "settings", path.parent)
    conditions = multiplied_conditions(_conditions(file, where, path.parent), grid, where, path.parent)
    learners = list(dict.fromkeys(one.learner for one in conditions if one.learner))
    arms = multiplied_arms(_arms(file, where, path.parent, conditions), grid, where, learners)
    _refuse_same(arms, f"{where}: arms")
    _refuse_same(conditions, f"{where}: conditions")
    if len(arms) < 2:
        raise InputError(
            f"{where}: [[arms]]: a study compares at least two, this has {len(arms)}; they may differ in settings only."
        )
    traffic_seeds = [] if file.traffic_seeds is None else _seeds(file.traffic_seeds, f"{where}: traffic_seeds")
    conditions = [dataclasses.replace(one, settings=(*general, *one.settings)) for one in conditions]
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
        against=_against(file.against, arms, f"{where}: against"),
        interval=file.interval,
        last_evaluations=file.last_evaluations,
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
    if issubclass(kind, _ArmTable | _ConditionTable):
        ours, general = ({one.name for one in dataclasses.fields(table)} for table in (kind, Experiment))
        for number, one in enumerate(values, start=1):
            for key, value in one.items():
                if key in general - ours and isinstance(value, Mapping):  # a table of the experiment
                    raise InputError(f"{where}: [[{name}]] no. {number}: {key}: write it as settings.{key}.")
    return [structure(one, kind, where, (f"[[{name}]] no. {number}",)) for number, one in enumerate(values, start=1)]


def _arms(file: _File, where: str, folder: Path, conditions: Sequence[Condition]) -> list[Arm]:
    arms = []
    for number, table in enumerate(_tables(file.arms, _ArmTable, where, "arms"), start=1):
        place = f"{where}: [[arms]] no. {number}"
        theirs = [one for one in conditions if one.learner]
        if table.learner and theirs:
            raise InputError(f"{place}: learner: condition '{theirs[0].label}' names one too; say it in one place.")
        if not table.learner and len(theirs) < len(conditions):
            raise InputError(f'{place}: learner: name one, for example learner = "flsimco".')
        learner = _learner(table.learner, place, folder)
        if not learner and not table.name:
            raise InputError(f"{place}: name: say what the page is to call it; its learner is the condition's.")
        settings = settings_of(table.settings, where, f"[[arms]] no. {number}.settings", folder)
        for path, _ in settings:
            if path[0] in NOT_OF_AN_ARM:
                raise InputError(
                    f"{place}: settings.{'.'.join(path)}: a study says this with {NOT_OF_AN_ARM[path[0]]}."
                )
        label = table.name or short_name(learner)
        arms.append(Arm(label=label, learner=learner, learning=table.learning, settings=settings))
    return arms


def _learner(name: str, place: str, folder: Path) -> str:
    """Return a learner's name as it is from the working directory; empty for none."""
    if not name:
        return ""
    try:
        find_learner(at_folder(name, folder))
    except InputError as error:
        raise InputError(f"{place}: {error}") from None
    return at_folder(name, folder)


def _conditions(file: _File, where: str, folder: Path) -> list[Condition]:
    general = scenario_at(file.scenario, folder) if file.scenario else ""
    conditions = []
    for number, table in enumerate(_tables(file.conditions, _ConditionTable, where, "conditions"), start=1):
        place = f"[[conditions]] no. {number}"
        if not table.name:
            raise InputError(f"{where}: {place}: name: say what the page is to call it.")
        for key in ("scenario", "learner"):
            if getattr(table, key) and key in file.grid:
                raise InputError(f"{where}: {place}.{key}: the grid varies it; set it in one place.")
        conditions.append(
            Condition(
                label=table.name,
                scenario=scenario_at(table.scenario, folder) if table.scenario else general,
                settings=settings_of(table.settings, where, f"{place}.settings", folder),
                learner=_learner(table.learner, f"{where}: {place}", folder),
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


def _against(name: str, arms: Sequence[Arm], place: str) -> str:
    labels = [arm.label for arm in arms]
    if name and name not in labels:
        raise unknown_name("arm", name, labels, where=place)
    return name


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
