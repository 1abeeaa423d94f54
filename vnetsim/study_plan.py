"""From what a study asks for to its runs: all settings are resolved, all faults found, before anything runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from vnetsim.errors import InputError, unknown_name
from vnetsim.experiment import Experiment, ScheduleSettings
from vnetsim.learning import Learner
from vnetsim.mobility import RECORDINGS
from vnetsim.registry import find_learner, short_name
from vnetsim.settings_file import load_experiment, structure, to_plain, to_toml
from vnetsim.study import MOST_CELLS, Cell, Override, Plan
from vnetsim.study_design import Arm, Condition, Design, fields_of
from vnetsim.study_grid import leaves

T = TypeVar("T")


def plan(
    scenario: str,
    learners: Sequence[str],
    seeds: Sequence[int],
    options: Sequence[Override],
    *,
    equal_schedule: str = "",
    limit: int | None = MOST_CELLS,
) -> Plan:
    """Return the study of some learners at some seeds on one traffic; see ``resolve``."""
    arms = tuple(Arm(label=short_name(name), learner=name) for name in learners)
    conditions = (Condition(scenario=scenario),)
    return resolve(Design(arms=arms, conditions=conditions, seeds=seeds, equal_schedule=equal_schedule), options, limit)


def resolve(design: Design, options: Sequence[Override] = (), limit: int | None = MOST_CELLS) -> Plan:
    """Return the cells of a study.

    Args:
        design: what it asks for.
        options: settings of the command line, which go before its own.
        limit: the most cells; None for any number.

    Raises:
        InputError: an unknown learner or setting, a wrong value, learners of different tasks, a missing scenario, too
            many cells, two that are the same experiment, or arms that cannot have one schedule.
    """
    design.refuse_options(options)
    design.refuse_many(limit)
    pairs, resolver, traffics = design.pairs(), _Resolver(design, options), _Traffics(design)
    experiments = [resolver.experiment(condition, arm) for condition, arm in pairs]
    conditions = {condition.label: condition for condition, _ in pairs}
    bases = {label: resolver.traffic(condition) for label, condition in conditions.items()}
    cells = [
        traffics.cell(condition, arm, bases[condition.label], dataclasses.replace(experiment, seed=seed))
        for seed in design.seeds
        for (condition, arm), experiment in zip(pairs, experiments, strict=True)
    ]
    _refuse_twins(design, cells[: len(pairs)])
    return Plan(
        traffics=traffics.all,
        cells=tuple(cells),
        skipped=design.skipped,
        title=design.title,
        notes=design.all_notes(),
    )


class _Resolver:
    """The settings of arms under conditions.

    Args:
        design: the study.
        options: settings of the command line.
    """

    def __init__(self, design: Design, options: Sequence[Override]) -> None:
        self._design = design
        self._options = options
        self._reference = design.reference()
        arms = [*design.arms, *([self._reference] if self._reference else [])]
        self._kinds = {arm.learner: self._found(arm) for arm in arms}
        tasks: dict[str, list[str]] = {}
        for name, kind in self._kinds.items():
            tasks.setdefault(kind.task, []).append(short_name(name))
        if len(tasks) > 1:
            found = "; ".join(f"{', '.join(names)}: {task}" for task, names in tasks.items())
            where = design.where or "--learners"
            raise InputError(f"{where}: learners of different tasks cannot be compared ({found}).")

    def _found(self, arm: Arm) -> type[Learner]:
        try:
            return find_learner(arm.learner)
        except InputError as error:
            what = "" if arm in self._design.arms else "equal schedule"
            raise InputError(f"{self._design.place(what)}{error}") from None

    def traffic(self, condition: Condition) -> Experiment:
        """Return the experiment whose traffic is recorded for a condition."""
        place = _place(self._design, condition)
        experiment = _blaming(place, lambda options: _loaded(condition, None, options), self._options)
        path = Path(experiment.scenario)
        if experiment.scenario != "gaussian" and not path.exists():
            raise InputError(f"{place}{path}: no such file or folder.")
        if path.is_file() and not path.name.endswith((".sumocfg", "windows.parquet", *RECORDINGS)):
            raise InputError(f"{place}{path}: unknown kind of scenario; see vnetsim run --help for those there are.")
        return experiment

    def experiment(self, condition: Condition, arm: Arm) -> Experiment:
        """Return the settings of an arm under a condition, its schedule among them."""
        own = self._fitted(condition, arm)
        if self._reference is None:
            return own
        theirs = self._fitted(condition, self._reference)
        ours, other = (leaves({**to_plain(one), "learner": "", "learning": {}}) for one in (own, theirs))
        apart = [".".join(path) for path, value in ours if (path, value) not in other]
        if apart:  # as the learners' own defaults differ
            raise InputError(
                f"{_place(self._design, condition)}equal schedule: '{arm.label}' and '{self._reference.label}' have "
                f"different defaults of {apart[0]}; set it for both."
            )
        schedule = ScheduleSettings(learner=self._reference.learner, learning=theirs.learning)
        return dataclasses.replace(own, schedule=schedule)

    def _fitted(self, condition: Condition, arm: Arm) -> Experiment:
        """Return the experiment with those settings of ``learning`` that the arm's learner knows, and the arm's own."""
        kind = self._kinds[arm.learner]
        known = fields_of(kind)
        anywhere = set().union(*map(fields_of, self._kinds.values()))

        def build(options: Sequence[Override]) -> Experiment:
            experiment = _loaded(condition, arm.learner, options)
            for key in experiment.learning:
                if key not in anywhere:
                    raise unknown_name("key", key, anywhere, where="learning")
            return experiment

        def build_learning(options: Sequence[Override]) -> Any:
            learning = build(options).learning if options != self._options else experiment.learning
            general = {key: value for key, value in learning.items() if key in known}
            # the arm's own settings go before general ones, the command line's before both
            named = {path[1] for path, _ in options if len(path) > 1 and path[0] == "learning"}
            given = {key: value for key, value in general.items() if key in named}
            return structure({**general, **arm.learning, **given}, kind.Settings, "", ("learning",))

        experiment = _blaming(_place(self._design, condition), build, self._options)
        settings = _blaming(self._design.place(f"arm '{arm.label}'"), build_learning, self._options)
        return dataclasses.replace(experiment, learning=to_plain(settings))


class _Traffics:
    """The traffics that a study records, each once.

    Args:
        design: the study.
    """

    def __init__(self, design: Design) -> None:
        self._design = design
        self._known: dict[object, Experiment] = {}  # by all that decides what is recorded

    @property
    def all(self) -> tuple[Experiment, ...]:
        """Every traffic, in the order of the cells' indices."""
        return tuple(self._known.values())

    def cell(self, condition: Condition, arm: Arm, base: Experiment, experiment: Experiment) -> Cell:
        """Return the cell of a resolved experiment; it replays what ``base`` records, at the traffic seed it is due."""
        seeds = self._design.traffic_seeds
        if seeds:
            base = self._seeded(condition, base, seeds[experiment.seed % len(seeds)])
            traffic = dataclasses.replace(experiment.traffic, seed=base.traffic.seed)
            experiment = dataclasses.replace(experiment, traffic=traffic)
        key = (base.scenario, base.seed, base.traffic, base.gaussian, base.camera)
        self._known.setdefault(key, base)
        return Cell(
            arm=arm.label,
            condition=condition.label,
            learner=arm.learner,
            experiment=experiment,
            traffic=list(self._known).index(key),
        )

    def _seeded(self, condition: Condition, base: Experiment, seed: int) -> Experiment:
        if base.scenario == "gaussian":
            return dataclasses.replace(base, seed=seed)
        if base.scenario.endswith(".sumocfg"):
            return dataclasses.replace(base, traffic=dataclasses.replace(base.traffic, seed=seed))
        place = _place(self._design, condition)
        raise InputError(f"{place}traffic_seeds: {base.scenario} is a recording, which has no traffic seed.")


def _loaded(condition: Condition, learner: str | None, options: Sequence[Override]) -> Experiment:
    if learner is None:
        return load_experiment(condition.scenario, [*condition.settings, *options])
    settings = [*condition.settings, *options, (("learner",), learner)]
    return load_experiment(condition.scenario, settings, find_learner=find_learner)


def _place(design: Design, condition: Condition) -> str:
    return design.place(f"condition '{condition.label}'" if condition.label else "")


def _refuse_twins(design: Design, cells: Sequence[Cell]) -> None:
    """Check that no two cells of one seed are the same experiment on the same traffic."""
    seen: dict[str, Cell] = {}
    for cell in cells:
        other = seen.setdefault(f"{cell.learner} {cell.traffic} {to_toml(cell.experiment)}", cell)
        if other is not cell:
            raise InputError(f"{design.place()}'{other.words}' and '{cell.words}' are the same experiment.")


def _blaming(place: str, build: Callable[[Sequence[Override]], T], options: Sequence[Override]) -> T:
    """Return ``build(options)``; a fault that is there without the options too is the study's, and said to be."""
    try:
        return build(options)
    except InputError:
        try:
            build(())
        except InputError as error:
            raise InputError(f"{place}{error}") from None
        raise
