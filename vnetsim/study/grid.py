"""What a study file abbreviates: grids of settings, and pairs left out by pattern."""

from __future__ import annotations

import dataclasses
import fnmatch
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from vnetsim.errors import InputError, unknown_name
from vnetsim.experiment import PLUGIN_KEYS, Experiment
from vnetsim.learning.registry import find_learner
from vnetsim.paths import from_folder
from vnetsim.plugins import at_folder, short_name
from vnetsim.scenario.kinds import scenario_at
from vnetsim.study.design import Arm, Condition, fields_of
from vnetsim.study.plan import Override, Skipped

MOST_POINTS = 10_000
"""More arms or conditions than this are a slip."""

ELSEWHERE = {
    "seed": "seeds",
    "scenario": "scenario",
    "learner": "[[arms]], or learner of [[conditions]]",
    "schedule": "equal_schedule",
}
"""Keys of an experiment that a study says elsewhere."""

Key = tuple[str, ...]
Grid = Mapping[Key, Sequence[Any]]
Labelled = TypeVar("Labelled", Arm, Condition)


def leaves(table: Mapping[str, Any], above: Key = ()) -> list[Override]:
    """Return the settings of nested tables; a dotted key in quotes means the same as one without."""
    found: list[Override] = []
    for key, value in table.items():
        path = (*above, *key.split("."))
        found += leaves(value, path) if isinstance(value, Mapping) else [(path, value)]
    return found


def settings_of(table: Mapping[str, Any], where: str, name: str, folder: Path) -> tuple[Override, ...]:
    """Return the settings of a table that has the experiment's keys, paths taken from ``folder``.

    Raises:
        InputError: a key that an experiment has not, or that a study says elsewhere.
    """
    found = tuple(leaves(table))
    for path, _ in found:
        refuse_key(path, where, name)
    return tuple((path, _located(path, value, folder)) for path, value in found)


def refuse_key(path: Key, where: str, name: str) -> None:
    """Check that an experiment has a setting of this name; those of ``learning`` are the learners' to know.

    Raises:
        InputError: it has not, with the nearest one that it has.
    """
    if path[0] in ELSEWHERE:
        raise InputError(f"{where}: {name}.{'.'.join(path)}: a study says this with {ELSEWHERE[path[0]]}.")
    kind: Any = Experiment
    for depth, part in enumerate(path):
        if not dataclasses.is_dataclass(kind):
            return  # what reads the experiment tells
        known = {field.name for field in dataclasses.fields(kind)} - (set() if depth else set(ELSEWHERE))
        if part not in known:
            raise unknown_name("key", part, known, where=f"{where}: {'.'.join((name, *path[:depth]))}")
        kind = get_type_hints(kind)[part]


def grid_of(table: Mapping[str, Any], where: str) -> dict[Key, list[Any]]:
    """Return a grid's values by dotted key, split.

    Raises:
        InputError: an unknown key, no list, an empty one, or a value that is there twice.
    """
    grid: dict[Key, list[Any]] = {}
    for path, values in leaves(table):
        key = f"{where}: grid.{'.'.join(path)}"
        if path not in {("scenario",), ("learner",)}:
            refuse_key(path, where, "grid")
        if not isinstance(values, list):
            raise InputError(f"{key}: expected a list of values, got {values!r}.")
        if not values:
            raise InputError(f"{key}: the list is empty, so that the grid expands to nothing.")
        if any(isinstance(value, Mapping) for value in values):
            raise InputError(f"{key}: values of a grid are no tables; write [[conditions]] or [[arms]].")
        if len({json.dumps(value, default=str) for value in values}) < len(values):
            raise InputError(f"{key}: a value is there twice.")
        grid[path] = values
    if math.prod(map(len, grid.values())) > MOST_POINTS:
        raise InputError(f"{where}: grid: it expands to {math.prod(map(len, grid.values()))} points, too many.")
    return grid


def multiplied_arms(arms: Sequence[Arm], grid: Grid, where: str, learners: Sequence[str] = ()) -> list[Arm]:
    """Return every arm at every point of those settings of ``learning`` in the grid that its learner knows.

    Args:
        arms: those of the file.
        grid: its grid.
        where: it stands.
        learners: those of the conditions; an arm that names none knows what all of them know.

    Raises:
        InputError: a setting that no arm's learner knows, or that an arm sets itself.
    """
    mine = {path: values for path, values in grid.items() if path[0] == "learning"}
    common = set.intersection(*(fields_of(find_learner(name)) for name in learners)) if learners else set()
    known = [fields_of(find_learner(arm.learner)) if arm.learner else common for arm in arms]
    for path in mine:
        anywhere = set().union(*known)
        if path[1:] not in {(name,) for name in anywhere}:
            raise unknown_name("key", ".".join(path[1:]), anywhere, where=f"{where}: grid.learning")
    result = []
    for arm, fields in zip(arms, known, strict=True):
        own = {path: values for path, values in mine.items() if path[1] in fields}
        for path in own:
            if path[1] in arm.learning:
                raise InputError(f"{where}: arm '{arm.label}': the grid varies {'.'.join(path)}; set it in one place.")
        for point in _points(own):
            learning = {**arm.learning, **{path[1]: value for path, value in point.items()}}
            result.append(dataclasses.replace(arm, label=_labelled(arm.label, point), learning=learning))
    return result


def multiplied_conditions(conditions: Sequence[Condition], grid: Grid, where: str, folder: Path) -> list[Condition]:
    """Return every condition at every point of the grid's settings other than those of ``learning``.

    Raises:
        InputError: a setting that a condition sets itself.
    """
    own = (("scenario",), ("learner",))
    for name in grid.get(("learner",), ()):
        _check_learner(name, f"{where}: grid.learner", folder)
    mine = {path: values for path, values in grid.items() if path[0] != "learning"}
    untold = {path for path in own[1:] if len(mine.get(path, ())) == 1}  # the only learner tells nothing
    result = []
    for condition in conditions:
        for path in mine:
            if any(path == key for key, _ in condition.settings):
                place = f"condition '{condition.label}'"
                raise InputError(f"{where}: {place}: the grid varies {'.'.join(path)}; set it in one place.")
        for point in _points(mine):
            scenario = point.get(("scenario",))
            others = (item for item in point.items() if item[0] not in own)
            settings = tuple((path, _located(path, value, folder)) for path, value in others)
            result.append(
                Condition(
                    label=_labelled(condition.label, {key: point[key] for key in point if key not in untold}),
                    scenario=condition.scenario if scenario is None else scenario_at(scenario, folder),
                    settings=(*condition.settings, *settings),
                    learner=at_folder(point.get(("learner",), ""), folder) or condition.learner,
                )
            )
    return result


def _check_learner(name: object, place: str, folder: Path) -> None:
    if not isinstance(name, str):
        raise InputError(f"{place}: expected names of learners, got {name!r}.")
    try:
        find_learner(at_folder(name, folder))
    except InputError as error:
        raise InputError(f"{place}: {error}") from None


def _located(path: Key, value: Any, folder: Path) -> Any:
    """Return a value with the files that it names, a plug-in's among them, as they are from the working directory."""
    if ".".join(path) in PLUGIN_KEYS and isinstance(value, str):
        return at_folder(value, folder)
    return from_folder(path, value, folder)


def _points(grid: Grid) -> list[dict[Key, Any]]:
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def _labelled(label: str, point: Mapping[Key, Any]) -> str:
    """Return the label with the point's values; scenario and learner stand for themselves, others follow their key."""
    last = [path[-1] for path in point]
    said = []
    for path, value in point.items():
        alone = path in {("scenario",), ("learner",)}
        name = "" if alone else path[-1] if last.count(path[-1]) == 1 else ".".join(path)
        whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e15
        text = (
            short_name(value)
            if path == ("learner",)
            else value
            if isinstance(value, str)
            else json.dumps(int(value) if whole else value, default=str)
        )
        said.append(f"{name}={text}" if name else text)
    return " ".join(filter(None, (label, ", ".join(said))))


@dataclass(frozen=True, kw_only=True)
class Skip:
    """Pairs that make no sense.

    Args:
        arm: label, or a pattern with ``*``.
        condition: the same of the condition.
        reason: why; the page says so.
    """

    arm: str = "*"
    condition: str = "*"
    reason: str = ""


def skipped_of(
    skips: Sequence[Skip], arms: Sequence[Arm], conditions: Sequence[Condition], where: str
) -> list[Skipped]:
    """Return the pairs that are left out, each with the first reason that is given.

    Raises:
        InputError: no reason, or a pattern that matches nothing.
    """
    found: dict[tuple[str, str], Skipped] = {}
    for number, skip in enumerate(skips, start=1):
        place = f"{where}: [[skip]] no. {number}"
        if not skip.reason.strip():
            raise InputError(f"{place}: reason: say why; the page shows it.")
        if (skip.arm, skip.condition) == ("*", "*"):
            raise InputError(f"{place}: name an arm, a condition, or both; this leaves nothing to run.")
        for arm in _matching(skip.arm, arms, f"{place}: arm"):
            for condition in _matching(skip.condition, conditions, f"{place}: condition"):
                pair = arm.label, condition.label
                found.setdefault(pair, Skipped(arm=pair[0], condition=pair[1], reason=skip.reason))
    return list(found.values())


def _matching(pattern: str, among: Sequence[Labelled], place: str) -> list[Labelled]:
    exact = [one for one in among if one.label == pattern]
    found = exact or [one for one in among if fnmatch.fnmatchcase(one.label, pattern)]
    if not found:
        labels = ", ".join(f"'{one.label}'" for one in among)
        raise InputError(f"{place}: '{pattern}' matches none of {labels}.")
    return found
