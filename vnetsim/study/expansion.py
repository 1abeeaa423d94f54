"""From the tables of a study to its cells, in one pass; all faults are found before anything runs.

An arm is a label and settings, and so is a condition. A grid multiplies both. A cell has the settings of the study,
over them those of its condition, over these its arm's, and the command line's on top.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

from vnetsim.errors import InputError, unknown_name
from vnetsim.experiment import PLUGIN_KEYS, Experiment, ScheduleSettings
from vnetsim.learning.registry import find_learner
from vnetsim.paths import from_folder
from vnetsim.plugins import at_folder, short_name
from vnetsim.runs.assembly import assemble
from vnetsim.scenario.kinds import kind_of, names_source, scenario_at, unknown_kind
from vnetsim.scenario.settings_file import load_experiment, read_experiment, to_plain, to_toml
from vnetsim.setting_checks import Within
from vnetsim.storage.comparison import LEAST_FOR_BCA, Interval
from vnetsim.storage.structure import structure
from vnetsim.study.plan import Cell, Plan, Skipped
from vnetsim.study.traffic import DECIDING, deciding_settings
from vnetsim.traffic.sources import chosen_source

T = TypeVar("T")
Key = tuple[str, ...]
"""The dotted key of a setting, split."""
Override = tuple[Key, Any]
"""A setting and its value."""
Grid = Mapping[Key, Sequence[Any]]

LEARNER, SCENARIO = ("learner",), ("scenario",)

MOST_POINTS = 10_000
"""A grid of more is a slip."""

ELSEWHERE = {
    "seed": ("seeds", "--seeds"),
    "scenario": ("scenario", "the scenario first"),
    "learner": ("learner of [[arms]] or [[conditions]]", "--learners"),
    "schedule": ("equal_schedule", "--equal-schedule"),
}
"""What a study file, and the command line, say instead of these settings."""


@dataclass(frozen=True, kw_only=True)
class StudyTables:
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
    sizes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _Table:
    """The keys of ``[[arms]]`` and ``[[conditions]]``."""

    name: str = ""
    learner: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _ArmTable(_Table):
    learning: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _ConditionTable(_Table):
    scenario: str = ""


@dataclass(frozen=True, kw_only=True)
class _SkipTable:
    arm: str = "*"
    condition: str = "*"
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class _Level:
    """An arm or a condition.

    Args:
        label: as the page names it; empty for the only condition.
        settings: of its cells, scenario and learner among them; paths hold from the working directory.
    """

    label: str
    settings: Mapping[Key, Any]


def expand(
    values: Mapping[str, Any], options: Sequence[Override], *, where: str, folder: Path, limit: int | None, trust: bool
) -> Plan:
    """Return the cells of a study.

    Args:
        values: its tables; see ``vnetsim.study.request``.
        options: settings of the command line.
        where: the file that the tables stand in, for messages; empty for the command line.
        folder: from which paths in the tables are taken.
        limit: the most cells; None for any number.
        trust: whether run directories may name code; see ``vnetsim.scenario.trust``.

    Raises:
        InputError: an unknown learner or setting, a wrong value, learners of different tasks, a missing scenario, too
            many cells, fewer evaluations than are compared, two cells that are the same experiment, or arms that cannot
            have one schedule.
        RunError: an installed plug-in is at fault.
    """
    return _Study(values, options, where=where, folder=folder, trust=trust).plan(limit)


@contextmanager
def placed(*where: str) -> Iterator[None]:
    """Name the places of a fault, such as file and table, before what is said of it; empty ones are none."""
    try:
        yield
    except InputError as error:
        raise InputError(": ".join([*filter(None, where), str(error)])) from None


def seeds_of(value: object, place: str) -> Sequence[int]:
    """Return the seeds of ``FIRST:END`` (without END), of ``a,b,c`` or of a list; ``place`` names them in messages.

    Raises:
        InputError: malformed, empty, too many, or a seed twice.
    """
    found = value
    if isinstance(value, str):
        first, colon, end = value.partition(":")
        parts = [part.strip() for part in ((first, end) if colon else value.split(","))]
        if all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts):
            numbers = [int(part) for part in parts]
            found = range(*numbers) if colon else numbers
    with placed(place):
        if isinstance(found, range) and len(found) > 10**6:
            raise InputError(f"{value}: {len(found)} seeds are too many.")
        if not isinstance(found, list | range) or not all(type(seed) is int and seed >= 0 for seed in found):
            raise InputError(
                "expected FIRST:END, such as 0:10 for the seeds 0 to 9, or a list of whole numbers from 0, such as "
                f"0,3,7; got {value!r}."
            )
        if not found:
            raise InputError(f"{value}: no seed; FIRST must be below END, which is not among them.")
        if len(set(found)) < len(found):
            raise InputError(f"{value}: a seed is there twice.")
    return found


def leaves(table: Mapping[str, Any], above: Key = ()) -> dict[Key, Any]:
    """Return the settings of nested tables; a dotted key in quotes means the same as one without."""
    found: dict[Key, Any] = {}
    for key, value in table.items():
        path = (*above, *key.split("."))
        found |= leaves(value, path) if isinstance(value, Mapping) else {path: value}
    return found


def _settings(table: Mapping[str, Any], folder: Path) -> dict[Key, Any]:
    """Return the settings of a table ``settings``, with paths taken from ``folder``."""
    found = leaves(table)
    for path in found:
        _refuse_elsewhere(path, "settings")
    return {path: _located(path, value, folder) for path, value in found.items()}


def _refuse_elsewhere(path: Key, table: str) -> None:
    if path[0] in ELSEWHERE:
        raise InputError(f"{table}.{'.'.join(path)}: a study says this with {ELSEWHERE[path[0]][0]}.")


def _located(path: Key, value: Any, folder: Path) -> Any:
    """Return a value with the files that it names, a plug-in's among them, as they are from the working directory."""
    if path == SCENARIO:
        return scenario_at(value, folder)
    if ".".join(path) in PLUGIN_KEYS and isinstance(value, str):
        return at_folder(value, folder)
    return from_folder(path, value, folder)


def _tables(values: Any, kind: type[T], name: str) -> list[tuple[str, T]]:
    """Return the tables of ``[[name]]`` as the dataclass ``kind``, each with its place."""
    if not isinstance(values, Sequence) or not all(isinstance(one, Mapping) for one in values):
        raise InputError(f"{name}: write each as a table below a line [[{name}]].")
    places = [f"[[{name}]] no. {number}" for number in range(1, len(values) + 1)]
    return [(place, structure(one, kind, place)) for place, one in zip(places, values, strict=True)]


def _conditions(tables: StudyTables, grid: Grid, folder: Path) -> list[_Level]:
    """Return the conditions, at every point of the grid's settings other than those of ``learning``.

    Without ``[[conditions]]`` there is one, which has no label. Each has the settings of the study below its own.
    """
    general = _settings(tables.settings, folder)
    if tables.scenario:
        general[SCENARIO] = scenario_at(tables.scenario, folder)
    levels = []
    for place, table in _tables(tables.conditions, _ConditionTable, "conditions"):
        with placed(place):
            if not table.name:
                raise InputError("name: say what the page is to call it.")
            named: dict[Key, str] = {LEARNER: table.learner, SCENARIO: table.scenario}
            settings = {path: _located(path, name, folder) for path, name in named.items() if name}
            levels.append(_Level(label=table.name, settings={**settings, **_settings(table.settings, folder)}))
    own = {path: points for path, points in grid.items() if path[0] != "learning"}
    found = []
    for level in levels or [_Level(label="", settings={})]:
        with placed(f"condition '{level.label}'" if level.label else ""):
            found += _multiplied(level, own, folder)
    for one in found:
        if SCENARIO not in {**general, **one.settings}:
            which = f" for condition '{one.label}'" if one.label else ""
            raise InputError(f'scenario: name the traffic{which}, such as "gaussian" or "city.sumocfg".')
    return [_Level(label=one.label, settings={**general, **one.settings}) for one in found]


def _arms(values: Any, grid: Grid, conditions: Sequence[_Level], folder: Path) -> list[_Level]:
    """Return the arms, each at every point of those settings of ``learning`` in the grid that its learner knows.

    Args:
        values: ``[[arms]]``.
        grid: of the study.
        conditions: which may name the learners; an arm that names none knows what all of these know.
        folder: from which paths are taken.
    """
    learners = list(dict.fromkeys(one.settings[LEARNER] for one in conditions if LEARNER in one.settings))
    complete = all(LEARNER in one.settings for one in conditions)
    levels = []
    for place, table in _tables(values, _ArmTable, "arms"):
        with placed(place):
            if table.learner and learners:
                raise InputError("learner: a condition, or the grid, names one too; say it in one place.")
            if not table.learner and not complete:
                raise InputError('learner: name one, for example learner = "flsimco".')
            if not table.learner and not table.name:
                raise InputError("name: say what the page is to call it; its learner is the condition's.")
            learning = leaves({"learning": table.learning})
            own = {path: _located(path, value, folder) for path, value in learning.items()}
            if table.learner:
                own[LEARNER] = at_folder(table.learner, folder)
            general = _settings(table.settings, folder)
            for path in general:
                if path[0] in {"learning", *DECIDING}:
                    instead = "learning, beside settings" if path[0] == "learning" else "[[conditions]]"
                    raise InputError(f"settings.{'.'.join(path)}: a study says this with {instead}.")
            levels.append(_Level(label=table.name or short_name(table.learner), settings={**own, **general}))
    of_learning = {path: points for path, points in grid.items() if path[0] == "learning"}
    named = [[level.settings[LEARNER]] if LEARNER in level.settings else learners for level in levels]
    known = [set.intersection(*({("learning", key) for key in keys_of(name)} for name in names)) for names in named]
    for path in of_learning.keys() - set().union(*known):
        raise unknown_name("key", ".".join(path[1:]), {key[1] for key in set().union(*known)}, where="grid.learning")
    found = []
    for level, keys in zip(levels, known, strict=True):
        with placed(f"arm '{level.label}'"):
            found += _multiplied(level, {path: of_learning[path] for path in of_learning if path in keys}, folder)
    return found


def _refuse_same_labels(levels: Sequence[_Level]) -> None:
    labels = [level.label for level in levels]
    for label in labels:
        if labels.count(label) > 1:
            raise InputError(f"'{label}' is there twice; give each a name of its own.")


def keys_of(learner: str) -> set[str]:
    """Return the names of a learner's settings."""
    return {one.name for one in dataclasses.fields(find_learner(learner).Settings)}


def _grid(table: Mapping[str, Any]) -> dict[Key, Sequence[Any]]:
    """Return a grid's values by dotted key, split.

    Raises:
        InputError: no list, an empty one, or too many points.
    """
    grid = leaves(table)
    for path, values in grid.items():
        if path not in {SCENARIO, LEARNER}:
            _refuse_elsewhere(path, "grid")
        with placed(f"grid.{'.'.join(path)}"):
            if not isinstance(values, list) or not values:
                raise InputError(f"expected a list of values, got {values!r}.")
            if path in {SCENARIO, LEARNER} and not all(isinstance(value, str) for value in values):
                raise InputError(f"expected names, got {values!r}.")
    if (points := math.prod(map(len, grid.values()))) > MOST_POINTS:
        raise InputError(f"grid: it expands to {points} points, too many.")
    return grid


def _multiplied(level: _Level, grid: Grid, folder: Path) -> list[_Level]:
    """Return an arm or a condition at every point of a grid.

    Raises:
        InputError: a setting that it sets itself.
    """
    for path in grid.keys() & level.settings.keys():
        raise InputError(f"the grid varies {'.'.join(path)}; set it in one place.")
    points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    untold = {LEARNER} if len(grid.get(LEARNER, ())) == 1 else set()  # the only learner tells nothing
    return [
        _Level(
            label=_labelled(level.label, {path: value for path, value in point.items() if path not in untold}),
            settings={**level.settings, **{path: _located(path, value, folder) for path, value in point.items()}},
        )
        for point in points
    ]


def _labelled(label: str, point: Mapping[Key, Any]) -> str:
    """Return the label with the point's values; scenario and learner stand for themselves, others follow their key."""
    # a plug-in's name is a value of its table
    short = {path: path[-1] if path[-1] != "name" else path[-2] for path in point}
    last = list(short.values())
    said = []
    for path, value in point.items():
        whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e15
        text = value if isinstance(value, str) else json.dumps(int(value) if whole else value, default=str)
        if path in {SCENARIO, LEARNER}:
            said.append(short_name(text) if path == LEARNER else text)
        else:
            said.append(f"{short[path] if last.count(short[path]) == 1 else '.'.join(path)}={text}")
    return " ".join(filter(None, (label, ", ".join(said))))


def _skipped(values: Any, arms: Sequence[_Level], conditions: Sequence[_Level]) -> list[Skipped]:
    """Return the pairs that are left out, each with the first reason that is given.

    Raises:
        InputError: no reason, or a pattern that matches nothing.
    """
    found: dict[tuple[str, str], Skipped] = {}
    for place, skip in _tables(values, _SkipTable, "skip"):
        with placed(place):
            if not skip.reason.strip():
                raise InputError("reason: say why; the page shows it.")
            if (skip.arm, skip.condition) == ("*", "*"):
                raise InputError("name an arm, a condition, or both; this leaves nothing to run.")
            pairs = itertools.product(
                _matching(skip.arm, arms, "arm"), _matching(skip.condition, conditions, "condition")
            )
            for arm, condition in pairs:
                found.setdefault((arm, condition), Skipped(arm=arm, condition=condition, reason=skip.reason))
    return list(found.values())


def _matching(pattern: str, among: Sequence[_Level], key: str) -> list[str]:
    labels = [one.label for one in among]
    found = [pattern] if pattern in labels else fnmatch.filter(labels, pattern)
    if not found:
        raise InputError(f"{key}: '{pattern}' matches none of {', '.join(labels)}.")
    return found


def _reference(name: str, arms: Sequence[_Level], folder: Path) -> _Level | None:
    """Return the arm of a label, else the only arm of a learner, else that learner with its own defaults."""
    if not name:
        return None
    located = at_folder(name, folder)
    found = [arm for arm in arms if arm.label == name]
    found = found or [arm for arm in arms if arm.settings.get(LEARNER) == located]
    if len(found) > 1:
        labels = ", ".join(f"'{arm.label}'" for arm in found)
        raise InputError(f"equal schedule: several arms are of {name}: name one of {labels}.")
    return found[0] if found else _Level(label=short_name(name), settings={LEARNER: located})


class _Study:
    """What the tables of a study come to; see ``expand``."""

    def __init__(
        self, values: Mapping[str, Any], options: Sequence[Override], *, where: str, folder: Path, trust: bool
    ) -> None:
        self._options = options
        self._where = where
        self._trust = trust
        with placed(where):
            self._tables = structure(values, StudyTables, "")
            grid = _grid(self._tables.grid)
            self._conditions = _conditions(self._tables, grid, folder)
            self._arms = _arms(self._tables.arms, grid, self._conditions, folder)
        with placed(where, "[[arms]]" if where else "--learners"):
            if len(self._arms) < 2:
                raise InputError(f"name at least two, such as flsimco and fedavg; this has {len(self._arms)}.")
            _refuse_same_labels(self._arms)
        with placed(where, "[[conditions]]"):
            _refuse_same_labels(self._conditions)
        with placed(where):
            self._skipped = _skipped(self._tables.skip, self._arms, self._conditions)
            self._seeds = seeds_of(self._tables.seeds, "seeds")
            self._traffic_seeds = self._seeds_of_traffic()
            self._reference = _reference(self._tables.equal_schedule, self._arms, folder)
            self._keys = self._keys_of_learners()
        self._refuse_options(grid)

    def _seeds_of_traffic(self) -> Sequence[int]:
        """Return the traffic seeds, of which seed s takes that with the number s modulo how many they are.

        So the variation of traffic goes into the paired differences. None means the one traffic of the settings.
        """
        if self._tables.traffic_seeds is None:
            return ()
        if any(("traffic", "seed") in one.settings for one in self._conditions):
            raise InputError("traffic.seed: traffic_seeds says it already; leave one of them out.")
        return seeds_of(self._tables.traffic_seeds, "traffic_seeds")

    def _keys_of_learners(self) -> dict[str, set[str]]:
        """Return the names of settings by learner.

        Raises:
            InputError: there is no such learner, or they learn different tasks.
        """
        more = [] if self._reference is None else [(self._conditions[0], self._reference)]
        settings = [{**condition.settings, **arm.settings} for condition, arm in [*self._pairs(), *more]]
        learners = dict.fromkeys(one[LEARNER] for one in settings)
        tasks: dict[str, list[str]] = {}
        for name in learners:
            tasks.setdefault(find_learner(name).task, []).append(short_name(name))
        if len(tasks) > 1:
            found = "; ".join(f"{', '.join(names)}: {task}" for task, names in tasks.items())
            raise InputError(f"learners of different tasks cannot be compared ({found}).")
        return {name: keys_of(name) for name in learners}

    def _refuse_options(self, grid: Grid) -> None:
        for path, _ in self._options:
            key = ".".join(path)
            if path[0] in ELSEWHERE:
                raise InputError(f"--set {key}: a comparison takes {ELSEWHERE[path[0]][1]}.")
            if any(path[: len(one)] == one[: len(path)] for one in grid):
                raise InputError(f"--set {key}: {self._where} varies it; change it there.")

    def _pairs(self) -> list[tuple[_Level, _Level]]:
        """Return condition and arm of what is not left out."""
        left_out = {(one.condition, one.arm) for one in self._skipped}
        pairs = itertools.product(self._conditions, self._arms)
        return [(condition, arm) for condition, arm in pairs if (condition.label, arm.label) not in left_out]

    def plan(self, limit: int | None) -> Plan:
        """Return the cells, at most ``limit`` of them, and all that is said of them."""
        tables, pairs = self._tables, self._pairs()
        with placed(self._where):
            self._refuse_numbers(len(pairs) * len(self._seeds), limit)
        # first, so that a fault of a condition is not blamed on an arm
        bases = {condition.label: self._base(condition) for condition, _ in pairs}
        experiments = [self._experiment(condition, arm) for condition, arm in pairs]
        traffics: dict[str, Experiment] = {}  # by all that decides what is recorded
        cells = []
        for seed in self._seeds:
            for (condition, arm), experiment in zip(pairs, experiments, strict=True):
                base, cell = bases[condition.label], dataclasses.replace(experiment, seed=seed)
                if self._traffic_seeds:
                    with placed(self._where):
                        base = _seeded(base, self._traffic_seeds[seed % len(self._traffic_seeds)])
                    traffic = dataclasses.replace(cell.traffic, seed=base.traffic.seed)
                    cell = dataclasses.replace(cell, traffic=traffic)
                key = json.dumps(deciding_settings(base), sort_keys=True, default=str)
                traffics.setdefault(key, base)
                number = list(traffics).index(key)
                cells.append(Cell(arm=arm.label, condition=condition.label, experiment=cell, traffic=number))
        self._refuse_twins(cells[: len(pairs)])
        of_arms = [path for arm in self._arms for path in arm.settings if path[0] not in {"learner", "learning"}]
        return Plan(
            traffics=tuple(traffics.values()),
            cells=tuple(cells),
            skipped=tuple(self._skipped),
            interval=tables.interval,
            against=tables.against,
            arm_settings=tuple(dict.fromkeys(map(".".join, of_arms))),
            last_evaluations=tables.last_evaluations,
            title=tables.title,
            notes=(*tables.notes, *self._notes()),
        )

    def _refuse_numbers(self, cells: int, limit: int | None) -> None:
        tables, seeds = self._tables, len(self._seeds)
        if not cells:
            raise InputError("[[skip]]: everything is left out.")
        if tables.against and tables.against not in {arm.label for arm in self._arms}:
            raise unknown_name("arm", tables.against, [arm.label for arm in self._arms], where="against")
        if tables.interval == "bca" and seeds < LEAST_FOR_BCA:
            raise InputError(
                f'interval = "bca": covers too little below {LEAST_FOR_BCA} seeds, and this has {seeds}; take '
                '"sign-flip", or "t" if the differences are normal.'
            )
        if limit is not None and cells > limit:
            conditions, left_out = len(self._conditions), len(self._skipped) * seeds
            factors = [f"{len(self._arms)} {'arms' if self._where else 'learners'}"]
            factors += [f"{conditions} conditions"] * (conditions > 1)
            factors += [f"{seeds} seeds"] + [f"less {left_out} left out"] * (left_out > 0)
            raise InputError(f"{cells} cells ({', '.join(factors)}): add --yes if you mean it.")

    def _notes(self) -> Iterator[str]:
        """Yield what a reader must know of schedule and traffic."""
        if self._reference is not None:
            yield (
                f"Equal schedule: payload and work of every participation are those of {self._reference.label}, so "
                "that the same vehicles commit in every arm."
            )
        if self._traffic_seeds:
            listed = ", ".join(map(str, self._traffic_seeds))
            yield (
                f"Seed s replays the traffic of seed number s mod {len(self._traffic_seeds)} of {listed}, the same in "
                "every arm."
            )

    def _experiment(self, condition: _Level, arm: _Level) -> Experiment:
        """Return what an arm's cells under a condition are, but for their seeds."""
        own, reference = self._fitted(condition, arm), self._reference
        if reference is not None:
            theirs = self._fitted(condition, reference)
            with placed(self._where, "equal schedule"):
                _refuse_other_rounds(arm, own, reference, theirs)
                schedule = ScheduleSettings(learner=theirs.learner, learning=theirs.learning)
                # once more: not every selection policy goes with a schedule
                own = assemble(dataclasses.replace(own, schedule=schedule)).experiment
        evaluations, wanted = -(-own.rounds // own.evaluate_every), self._tables.last_evaluations
        if evaluations < wanted:
            under = f" under '{condition.label}'" if condition.label else ""
            with placed(self._where):
                raise InputError(
                    f"last_evaluations = {wanted}: '{arm.label}'{under} is evaluated {evaluations} "
                    f"time{'s' * (evaluations > 1)} only (rounds = {own.rounds}, evaluate_every = "
                    f"{own.evaluate_every}): ask for more rounds, or average fewer."
                )
        return own

    def _fitted(self, condition: _Level, arm: _Level) -> Experiment:
        """Return the experiment with those settings of ``learning`` that its learner knows, and the arm's own."""
        settings = {**condition.settings, **arm.settings}
        scenario = settings.pop(SCENARIO)
        own = {path[1] for path in arm.settings if path[0] == "learning"}
        anywhere = set().union(*self._keys.values())

        def build(options: Sequence[Override]) -> Experiment:
            given = [*settings.items(), *options]
            experiment, learner = read_experiment(scenario, given, trust=self._trust)
            for key in experiment.learning.keys() - anywhere:
                raise unknown_name("key", key, anywhere, where="learning")
            known = self._keys[experiment.learner] | own
            learning = {key: value for key, value in experiment.learning.items() if key in known}
            return assemble(dataclasses.replace(experiment, learning=learning), learner).experiment

        return self._resolved(condition, arm, build)

    def _base(self, condition: _Level) -> Experiment:
        """Return the experiment whose traffic is recorded for a condition."""
        settings = [item for item in condition.settings.items() if item[0] not in {SCENARIO, LEARNER}]

        def build(options: Sequence[Override]) -> Experiment:
            experiment = load_experiment(condition.settings[SCENARIO], [*settings, *options])
            if names_source(experiment.scenario):
                chosen_source(experiment)
            elif not Path(experiment.scenario).exists():
                raise InputError(f"{experiment.scenario}: no such file or folder.")
            elif kind_of(experiment.scenario) is None:
                raise InputError(unknown_kind(experiment.scenario))
            return experiment

        return self._resolved(condition, None, build)

    def _resolved(self, condition: _Level, arm: _Level | None, build: Callable[[Sequence[Override]], T]) -> T:
        """Return ``build(options)``; a fault that is there without the options too is the study's, and said to be."""
        try:
            return build(self._options)
        except InputError:
            with self._of(condition, arm):
                build(())
            raise

    def _of(self, condition: _Level, arm: _Level | None) -> AbstractContextManager[None]:
        """Name arm and condition, where a file does, in messages about them."""
        if not self._where:
            return placed()
        words = [f"condition '{condition.label}'"] * bool(condition.label)
        return placed(self._where, ", ".join(words if arm is None else [f"arm '{arm.label}'", *words]))

    def _refuse_twins(self, cells: Sequence[Cell]) -> None:
        """Check that no two cells of one seed are the same experiment on the same traffic."""
        seen: dict[str, Cell] = {}
        for cell in cells:
            other = seen.setdefault(f"{cell.traffic} {to_toml(cell.experiment)}", cell)
            if other is not cell:
                with placed(self._where):
                    raise InputError(f"'{other.words}' and '{cell.words}' are the same experiment.")


def _refuse_other_rounds(arm: _Level, own: Experiment, reference: _Level, theirs: Experiment) -> None:
    """Check that two arms that are to have one schedule differ in their learners alone.

    Raises:
        InputError: naming what else differs.
    """
    ours, other = (leaves({**to_plain(one), "learner": "", "learning": {}}) for one in (own, theirs))
    apart = [path for path in {**ours, **other} if ours.get(path) != other.get(path)]
    for path, one in itertools.product(apart, (arm, reference)):
        if path in one.settings:
            raise InputError(
                f"'{one.label}' has a {'.'.join(path)} of its own, so that others may commit in it; leave one of them "
                "out."
            )
    if apart:
        raise InputError(
            f"'{arm.label}' and '{reference.label}' have different defaults of {'.'.join(apart[0])}; set it for both."
        )


def _seeded(base: Experiment, seed: int) -> Experiment:
    """Return an experiment with another traffic seed."""
    kind = kind_of(base.scenario)
    if kind is not None and kind.seeded_by == "seed":
        return dataclasses.replace(base, seed=seed)
    if kind is not None and kind.seeded_by == "traffic.seed":
        return dataclasses.replace(base, traffic=dataclasses.replace(base.traffic, seed=seed))
    raise InputError(f"traffic_seeds: {base.scenario} is a recording, which has no traffic seed.")
