"""Read arms and conditions from the tables of a study (each is a label and settings) and multiply them by the grid."""

from __future__ import annotations

import dataclasses
import fnmatch
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

from vnetsim.errors import InputError, unknown_name
from vnetsim.errors.bounds import Within
from vnetsim.errors.paths import from_folder
from vnetsim.experiment import PLUGIN_KEYS
from vnetsim.learning.kinds import LEARNERS
from vnetsim.plugins import at_folder, short_name
from vnetsim.scenario.kinds import scenario_at
from vnetsim.scenario.settings_file import Key, leaves
from vnetsim.storage.records import Interval, SkippedEntry
from vnetsim.storage.structure import structure

T = TypeVar("T")
Grid = Mapping[Key, Sequence[Any]]

LEARNER, SCENARIO, LEARNING = ("learner",), ("scenario",), ("learning",)
SHARP = ("blur", "fraction")
"""Setting that turns off the blur of images with 0; blur levels, and weights computed from them, do not change."""
TRAFFIC_TABLES = ("traffic", "source")
"""Tables of settings that decide what is recorded; the camera does not, as each run computes blur from speeds."""
MOST_POINTS = 10_000  # of a grid
ELSEWHERE = {
    "seed": ("seeds", "--seeds"),
    "scenario": ("scenario", "the scenario first"),
    "learner": ("learner of [settings], [[arms]] or [[conditions]]", "--learners"),
    "schedule": ("equal_schedule", "--equal-schedule"),
}
"""Settings that a study does not take, with the key of a study file and the command-line option to use instead."""


@dataclass(frozen=True, kw_only=True)
class StudyTables:
    """The keys of a study file."""

    title: str = ""
    notes: tuple[str, ...] = ()
    scenario: str = ""
    seeds: Any = "0:10"
    traffic_seeds: Any = None
    equal_schedule: str = ""
    sharp_control: bool = False
    against: str = ""
    last_evaluations: Annotated[int, Within(1, 10**6, "", "the mean of no value is none; more than any run has")] = 1
    interval: Interval = "sign-flip"
    settings: Mapping[str, Any] = field(default_factory=dict)
    arms: Any = ()
    conditions: Any = ()
    grid: Mapping[str, Any] = field(default_factory=dict)
    skip: Any = ()
    sizes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _ArmTable:
    """The keys of ``[[arms]]``."""

    name: str = ""
    learner: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    learning: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _ConditionTable:
    """The keys of ``[[conditions]]``."""

    name: str = ""
    learner: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    scenario: str = ""


@dataclass(frozen=True, kw_only=True)
class _SkipTable:
    """The keys of ``[[skip]]``: labels or patterns of labels (``*``, ``?``), and why they are not run."""

    arm: str = "*"
    condition: str = "*"
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Level:
    """An arm or a condition: ``label``, empty for the only condition, and ``settings`` of its cells, paths resolved."""

    label: str
    settings: Mapping[Key, Any]


@contextmanager
def error_context(*where: str) -> Iterator[None]:
    """Put places, such as file and table, before the message of an InputError from the block; skip empty places."""
    try:
        yield
    except InputError as error:
        raise InputError(": ".join([*filter(None, where), str(error)])) from None


def seeds_of(value: object, place: str) -> Sequence[int]:
    """Return the seeds of ``FIRST:END`` (without END), ``a,b,c`` or a list; else InputError, which names ``place``."""
    found = value
    if isinstance(value, str):
        first, colon, end = value.partition(":")
        parts = [part.strip() for part in ((first, end) if colon else value.split(","))]
        if all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts):
            numbers = [int(part) for part in parts]
            found = range(*numbers) if colon else numbers
    if isinstance(found, list | range) and 0 < len(found) <= 10**6:
        whole = all(type(seed) is int and seed >= 0 for seed in found)
        if whole and len(set(found)) == len(found):
            return found
    raise InputError(
        f"{place}: expected FIRST:END, FIRST below END, such as 0:10 for the seeds 0 to 9, or a list of whole numbers "
        f"from 0, such as 0,3,7, none of them twice; a million at most; got {value!r}."
    )


def _read_settings(table: Mapping[str, Any], folder: Path) -> dict[Key, Any]:
    """Return a table ``settings`` by split key, its paths taken from ``folder``; InputError for keys in ELSEWHERE."""
    found = leaves(table)
    for path in found:
        _refuse_key_of_study(path, "settings")
    return {path: _locate(path, value, folder) for path, value in found.items()}


def _refuse_key_of_study(path: Key, table: str) -> None:
    """Raise InputError, naming ``table``, if the setting ``path`` is in ``ELSEWHERE``: a study has a key for it."""
    if path[0] in ELSEWHERE:
        raise InputError(f"{table}.{'.'.join(path)}: a study says this with {ELSEWHERE[path[0]][0]}.")


def _locate(path: Key, value: Any, folder: Path) -> Any:
    """Return a setting's value; a relative path in it, also of a scenario or plug-in, is joined to ``folder``."""
    if path == SCENARIO:
        return scenario_at(value, folder)
    if ".".join(path) in PLUGIN_KEYS and isinstance(value, str):
        return at_folder(value, folder)
    return from_folder(path, value, folder)


def _read_tables(values: Any, kind: type[T], name: str) -> list[tuple[str, T]]:
    """Return (place for messages, table as ``kind``) for each ``[[name]]``; InputError: no tables, or wrong keys."""
    if not isinstance(values, Sequence) or not all(isinstance(one, Mapping) for one in values):
        raise InputError(f"{name}: write each as a table below a line [[{name}]].")
    places = ((f"[[{name}]] no. {number}", one) for number, one in enumerate(values, start=1))
    return [(place, structure(one, kind, place)) for place, one in places]


def common_learner(tables: StudyTables, folder: Path) -> str:
    """Return ``learner`` of ``[settings]``, its path taken from ``folder``; empty if absent, InputError if no text."""
    name = tables.settings.get("learner", "")
    if not isinstance(name, str):
        raise InputError(f"settings.learner: expected a name, got {name!r}.")
    return at_folder(name, folder) if name else ""


def conditions_of(tables: StudyTables, grid: Grid, folder: Path) -> list[Level]:
    """Return the conditions, each at every point of the grid without its ``learning`` settings.

    A condition's settings override the study's. Without ``[[conditions]]`` there is one, with an empty label. If any
    condition names a learner, that of ``[settings]`` is the default of the others. InputError: a condition has no name
    or no scenario, or sets what the grid varies.
    """
    general = _read_settings({key: value for key, value in tables.settings.items() if key != "learner"}, folder)
    if tables.scenario:
        general[SCENARIO] = scenario_at(tables.scenario, folder)
    levels = []
    for place, table in _read_tables(tables.conditions, _ConditionTable, "conditions"):
        with error_context(place):
            if not table.name:
                raise InputError("name: say what the page is to call it.")
            named: dict[Key, str] = {LEARNER: table.learner, SCENARIO: table.scenario}
            settings = {path: _locate(path, name, folder) for path, name in named.items() if name}
            levels.append(Level(label=table.name, settings={**settings, **_read_settings(table.settings, folder)}))
    own = {path: points for path, points in grid.items() if path[0] != "learning"}
    found = []
    for level in levels or [Level(label="", settings={})]:
        with error_context(f"condition '{level.label}'" if level.label else ""):
            found += _multiply(level, own, folder)
    for one in found:
        if SCENARIO not in {**general, **one.settings}:
            which = f" for condition '{one.label}'" if one.label else ""
            raise InputError(f'scenario: name the traffic{which}, such as "gaussian" or "city.sumocfg".')
    if any(LEARNER in one.settings for one in found) and (learner := common_learner(tables, folder)):
        general[LEARNER] = learner
    return [Level(label=one.label, settings={**general, **one.settings}) for one in found]


def arms_of(values: Any, grid: Grid, conditions: Sequence[Level], folder: Path, learner: str) -> list[Level]:
    """Return the arms, each at every point of those ``learning`` settings of the grid that its learner has.

    If conditions name learners, those settings are the ones that all of these have; if not, ``learner`` is the default
    of the arms ("" for none). Without ``[[arms]]`` (``values``), the only learner is the only arm. InputError: an arm
    has no learner or two, sets what the grid or a condition must set, or no learner has a setting of the grid.
    """
    learners = list(dict.fromkeys(one.settings[LEARNER] for one in conditions if LEARNER in one.settings))
    complete = all(LEARNER in one.settings for one in conditions)
    only = learners[0] if complete and len(learners) == 1 else "" if learners else learner
    if not values and only:
        values = [{"name": short_name(only)}]
    levels = []
    for place, table in _read_tables(values, _ArmTable, "arms"):
        with error_context(place):
            if table.learner and learners:
                raise InputError("learner: a condition, or the grid, names one too; say it in one place.")
            levels.append(_make_arm(table, table.learner or ("" if learners else learner), folder, complete=complete))
    of_learning = {path: points for path, points in grid.items() if path[0] == "learning"}
    named = [[level.settings[LEARNER]] if LEARNER in level.settings else learners for level in levels]
    known = [set.intersection(*({("learning", key) for key in keys_of(name)} for name in names)) for names in named]
    for path in of_learning.keys() - set().union(*known):
        raise unknown_name("key", ".".join(path[1:]), {key[1] for key in set().union(*known)}, where="grid.learning")
    found = []
    for level, keys in zip(levels, known, strict=True):
        with error_context(f"arm '{level.label}'"):
            found += _multiply(level, {path: of_learning[path] for path in of_learning if path in keys}, folder)
    return found


def _make_arm(table: _ArmTable, learner: str, folder: Path, *, complete: bool) -> Level:
    """Return a table as an arm; InputError: a wrong key, or no ``learner`` unless ``complete``: conditions do."""
    if not learner and not complete:
        raise InputError('learner: name one, for example learner = "flsimco".')
    if not learner and not table.name:
        raise InputError("name: say what the page is to call it; its learner is the condition's.")
    own = {path: _locate(path, value, folder) for path, value in leaves(table.learning, LEARNING).items()}
    if learner:
        own[LEARNER] = at_folder(learner, folder)
    general = _read_settings(table.settings, folder)
    for path in general:
        if path[0] in {"learning", *TRAFFIC_TABLES}:
            instead = "learning, beside settings" if path[0] == "learning" else "[[conditions]]"
            raise InputError(f"settings.{'.'.join(path)}: a study says this with {instead}.")
    return Level(label=table.name or short_name(learner), settings={**own, **general})


def with_sharp_controls(arms: Sequence[Level]) -> list[Level]:
    """Return the arms, each followed by its copy without blurred images; InputError if one sets ``blur.fraction``."""
    found = []
    for arm in arms:
        if SHARP in arm.settings:
            key = ".".join(SHARP)
            raise InputError(f"'{arm.label}' has a {key} of its own, which sharp_control sets; leave one out.")
        found += [arm, Level(label=f"{arm.label}, sharp camera", settings={**arm.settings, SHARP: 0.0})]
    return found


def refuse_same_labels(levels: Sequence[Level]) -> None:
    """Raise InputError if a label occurs twice."""
    labels = [level.label for level in levels]
    for label in labels:
        if labels.count(label) > 1:
            raise InputError(f"'{label}' is there twice; give each a name of its own.")


def keys_of(learner: str) -> set[str]:
    """Return the names of a learner's settings; InputError for an unknown learner."""
    return {one.name for one in dataclasses.fields(LEARNERS.find(learner).Settings)}


def grid_of(table: Mapping[str, Any]) -> dict[Key, Sequence[Any]]:
    """Return a grid's lists of values by split key; InputError: wrong key or value, or over ``MOST_POINTS`` points."""
    grid = leaves(table)
    for path, values in grid.items():
        if path not in {SCENARIO, LEARNER}:
            _refuse_key_of_study(path, "grid")
        with error_context(f"grid.{'.'.join(path)}"):
            if not isinstance(values, list) or not values:
                raise InputError(f"expected a list of values, got {values!r}.")
            if path in {SCENARIO, LEARNER} and not all(isinstance(value, str) for value in values):
                raise InputError(f"expected names, got {values!r}.")
    if (points := math.prod(map(len, grid.values()))) > MOST_POINTS:
        raise InputError(f"grid: it expands to {points} points, too many.")
    return grid


def _multiply(level: Level, grid: Grid, folder: Path) -> list[Level]:
    """Return a copy of a level for each grid point, values in its label; InputError if both set the same key."""
    for path in grid.keys() & level.settings.keys():
        raise InputError(f"the grid varies {'.'.join(path)}; set it in one place.")
    silent = {LEARNER} if len(grid.get(LEARNER, ())) == 1 else set()  # the only learner needs no label
    found = []
    for values in itertools.product(*grid.values()):
        point = dict(zip(grid, values, strict=True))
        label = _make_label(level.label, {path: value for path, value in point.items() if path not in silent})
        own = {path: _locate(path, value, folder) for path, value in point.items()}
        found.append(Level(label=label, settings={**level.settings, **own}))
    return found


def _make_label(label: str, point: Mapping[Key, Any]) -> str:
    """Return the label with the point's values as KEY=VALUE; of scenario and learner only the value."""
    # KEY is the last part of the key, or the table of a plug-in's name, such as selection.name
    short = {path: path[-1] if path[-1] != "name" else path[-2] for path in point}
    last, said = list(short.values()), []
    for path, value in point.items():
        whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e15
        text = value if isinstance(value, str) else json.dumps(int(value) if whole else value, default=str)
        if path in {SCENARIO, LEARNER}:
            said.append(short_name(text) if path == LEARNER else text)
        else:
            said.append(f"{short[path] if last.count(short[path]) == 1 else '.'.join(path)}={text}")
    return " ".join(filter(None, (label, ", ".join(said))))


def skipped_of(values: Any, arms: Sequence[Level], conditions: Sequence[Level]) -> list[SkippedEntry]:
    """Return the pairs of arm and condition that ``[[skip]]`` (``values``) names, each with the first reason given.

    InputError: a table has no reason, matches nothing, or names neither arm nor condition.
    """
    found: dict[tuple[str, str], SkippedEntry] = {}
    for place, skip in _read_tables(values, _SkipTable, "skip"):
        with error_context(place):
            if not skip.reason.strip():
                raise InputError("reason: say why; the page shows it.")
            if (skip.arm, skip.condition) == ("*", "*"):
                raise InputError("name an arm, a condition, or both; this leaves nothing to run.")
            labels = _match_labels(skip.arm, arms, "arm"), _match_labels(skip.condition, conditions, "condition")
            for arm, condition in itertools.product(*labels):
                found.setdefault((arm, condition), SkippedEntry(arm=arm, condition=condition, reason=skip.reason))
    return list(found.values())


def _match_labels(pattern: str, among: Sequence[Level], key: str) -> list[str]:
    """Return ``[pattern]`` if that is a label, else all labels that match; InputError, naming ``key``, if none does."""
    labels = [one.label for one in among]
    found = [pattern] if pattern in labels else fnmatch.filter(labels, pattern)
    if not found:
        raise InputError(f"{key}: '{pattern}' matches none of {', '.join(labels)}.")
    return found


def reference_of(name: str, arms: Sequence[Level], folder: Path) -> Level | None:
    """Return the arm with label ``name``, else the one with learner ``name``, else a new arm of it; None for "".

    InputError if several arms have that learner.
    """
    if not name:
        return None
    located = at_folder(name, folder)
    found = [arm for arm in arms if arm.label == name] or [one for one in arms if one.settings.get(LEARNER) == located]
    if len(found) > 1:
        labels = ", ".join(f"'{arm.label}'" for arm in found)
        raise InputError(f"equal schedule: several arms are of {name}: name one of {labels}.")
    return found[0] if found else Level(label=short_name(name), settings={LEARNER: located})
