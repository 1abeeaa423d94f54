"""From what a study asks for to its runs: all settings are resolved, all faults found, before anything runs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from vnetsim.errors import InputError, unknown_name
from vnetsim.experiment import Experiment, ScheduleSettings
from vnetsim.learning import Learner
from vnetsim.learning.registry import find_learner
from vnetsim.plugins import short_name
from vnetsim.runs.assembly import chosen_rule
from vnetsim.scenario.kinds import kind_of, names_source, unknown_kind
from vnetsim.scenario.settings_file import load_experiment, read_experiment, structure, to_plain, to_toml
from vnetsim.simulation.plugins import simulation_plugins
from vnetsim.study.design import Arm, Condition, Design, fields_of
from vnetsim.study.grid import leaves
from vnetsim.study.plan import MOST_CELLS, Cell, Override, Plan
from vnetsim.study.traffic import deciding_settings
from vnetsim.traffic.sources import chosen_source

T = TypeVar("T")


def plan(
    scenario: str,
    learners: Sequence[str],
    seeds: Sequence[int],
    options: Sequence[Override],
    *,
    equal_schedule: str = "",
    limit: int | None = MOST_CELLS,
    trust: bool = False,
) -> Plan:
    """Return the study of some learners at some seeds on one traffic; see ``resolve``."""
    arms = tuple(Arm(label=short_name(name), learner=name) for name in learners)
    conditions = (Condition(scenario=scenario),)
    design = Design(arms=arms, conditions=conditions, seeds=seeds, equal_schedule=equal_schedule)
    return resolve(design, options, limit, trust=trust)


def resolve(
    design: Design, options: Sequence[Override] = (), limit: int | None = MOST_CELLS, *, trust: bool = False
) -> Plan:
    """Return the cells of a study.

    Args:
        design: what it asks for.
        options: settings of the command line, which go before its own.
        limit: the most cells; None for any number.
        trust: whether run directories may name code; see ``vnetsim.scenario.trust``.

    Raises:
        InputError: an unknown learner or setting, a wrong value, learners of different tasks, a missing scenario, too
            many cells, fewer evaluations than are compared, two that are the same experiment, or arms that cannot have
            one schedule.
    """
    design.refuse_options(options)
    design.refuse_many(limit)
    design.refuse_interval()
    pairs, resolver, traffics = design.pairs(), _Resolver(design, options, trust=trust), _TrafficPlan(design)
    experiments = [resolver.experiment(condition, arm) for condition, arm in pairs]
    for (condition, arm), experiment in zip(pairs, experiments, strict=True):
        design.refuse_few_evaluations(condition, arm, experiment)
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
        interval=design.interval,
        against=design.against,
        arm_settings=tuple(dict.fromkeys(".".join(path) for arm in design.arms for path, _ in arm.settings)),
        last_evaluations=design.last_evaluations,
        title=design.title,
        notes=design.all_notes(),
    )


class _Resolver:
    """The settings of arms under conditions.

    Args:
        design: the study.
        options: settings of the command line.
        trust: see ``resolve``.
    """

    def __init__(self, design: Design, options: Sequence[Override], *, trust: bool) -> None:
        self._design = design
        self._trust = trust
        self._options = options
        self._reference = design.reference()
        self._kinds = {condition.learner_of(arm): self._found(condition, arm) for condition, arm in design.pairs()}
        if self._reference and self._reference.learner:
            self._kinds[self._reference.learner] = self._found(design.conditions[0], self._reference)
        tasks: dict[str, list[str]] = {}
        for name, kind in self._kinds.items():
            tasks.setdefault(kind.task, []).append(short_name(name))
        if len(tasks) > 1:
            found = "; ".join(f"{', '.join(names)}: {task}" for task, names in tasks.items())
            where = design.where or "--learners"
            raise InputError(f"{where}: learners of different tasks cannot be compared ({found}).")

    def _found(self, condition: Condition, arm: Arm) -> type[Learner]:
        try:
            return find_learner(condition.learner_of(arm))
        except InputError as error:
            what = "" if arm in self._design.arms else "equal schedule"
            raise InputError(f"{self._design.place(what)}{error}") from None

    def traffic(self, condition: Condition) -> Experiment:
        """Return the experiment whose traffic is recorded for a condition."""
        place = _place(self._design, condition)
        experiment = _placed_errors(place, lambda options: self._loaded(condition, None, options), self._options)
        path = Path(experiment.scenario)
        if names_source(experiment.scenario):
            _placed_errors(place, lambda options: chosen_source(self._loaded(condition, None, options)), self._options)
            return experiment
        if not path.exists():
            raise InputError(f"{place}{path}: no such file or folder.")
        if kind_of(experiment.scenario) is None:
            raise InputError(f"{place}{unknown_kind(experiment.scenario)}")
        return experiment

    def experiment(self, condition: Condition, arm: Arm) -> Experiment:
        """Return the settings of an arm under a condition, its schedule among them."""
        own = self._fitted(condition, arm)
        if self._reference is None:
            return own
        theirs = self._fitted(condition, self._reference)
        ours, other = (leaves({**to_plain(one), "learner": "", "learning": {}}) for one in (own, theirs))
        apart = [".".join(path) for path, value in ours if (path, value) not in other]
        if given := [key for key in apart if any(".".join(path) == key for path, _ in arm.settings)]:
            raise InputError(
                f"{self._design.place()}equal schedule: '{arm.label}' has a {given[0]} of its own, so that others may "
                "commit in it; leave one of them out."
            )
        if apart:  # as the learners' own defaults differ
            raise InputError(
                f"{_place(self._design, condition)}equal schedule: '{arm.label}' and '{self._reference.label}' have "
                f"different defaults of {apart[0]}; set it for both."
            )
        schedule = ScheduleSettings(learner=condition.learner_of(self._reference), learning=theirs.learning)
        result = dataclasses.replace(own, schedule=schedule)
        try:
            simulation_plugins(result)  # once more: not every selection policy goes with a schedule
        except InputError as error:
            raise InputError(f"{_place(self._design, condition)}{error}") from None
        return result

    def _fitted(self, condition: Condition, arm: Arm) -> Experiment:
        """Return the experiment with those settings of ``learning`` that the arm's learner knows, and the arm's own."""
        kind = self._kinds[condition.learner_of(arm)]
        known = fields_of(kind)
        anywhere = set().union(*map(fields_of, self._kinds.values()))

        def build(options: Sequence[Override]) -> Experiment:
            experiment = self._loaded(condition, arm, options)
            for key in experiment.learning:
                if key not in anywhere:
                    raise unknown_name("key", key, anywhere, where="learning")
            simulation_plugins(experiment)  # so that a wrong name or setting of a plug-in shows before anything is run
            chosen_rule(experiment, kind)
            return experiment

        def build_learning(options: Sequence[Override]) -> Any:
            learning = build(options).learning if options != self._options else experiment.learning
            general = {key: value for key, value in learning.items() if key in known}
            # the arm's own settings go before general ones, the command line's before both
            named = {path[1] for path, _ in options if len(path) > 1 and path[0] == "learning"}
            given = {key: value for key, value in general.items() if key in named}
            return structure({**general, **arm.learning, **given}, kind.Settings, "", ("learning",))

        place = self._design.place(f"arm '{arm.label}'") if arm.settings else _place(self._design, condition)
        experiment = _placed_errors(place, build, self._options)
        settings = _placed_errors(self._design.place(f"arm '{arm.label}'"), build_learning, self._options)
        return dataclasses.replace(experiment, learning=to_plain(settings))

    def _loaded(self, condition: Condition, arm: Arm | None, options: Sequence[Override]) -> Experiment:
        if arm is None:
            return load_experiment(condition.scenario, [*condition.settings, *options])
        settings = [*condition.settings, *arm.settings, *options, (("learner",), condition.learner_of(arm))]
        return read_experiment(condition.scenario, settings, trust=self._trust)[0]


class _TrafficPlan:
    """The traffics that a study records, each once.

    Args:
        design: the study.
    """

    def __init__(self, design: Design) -> None:
        self._design = design
        self._known: dict[str, Experiment] = {}  # by all that decides what is recorded

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
        key = json.dumps(deciding_settings(base), sort_keys=True, default=str)
        self._known.setdefault(key, base)
        return Cell(
            arm=arm.label,
            condition=condition.label,
            learner=condition.learner_of(arm),
            experiment=experiment,
            traffic=list(self._known).index(key),
        )

    def _seeded(self, condition: Condition, base: Experiment, seed: int) -> Experiment:
        kind = kind_of(base.scenario)
        seeded = "" if kind is None else kind.seeded_by
        if seeded == "seed":
            return dataclasses.replace(base, seed=seed)
        if seeded == "traffic.seed":
            return dataclasses.replace(base, traffic=dataclasses.replace(base.traffic, seed=seed))
        place = _place(self._design, condition)
        raise InputError(f"{place}traffic_seeds: {base.scenario} is a recording, which has no traffic seed.")


def _place(design: Design, condition: Condition) -> str:
    return design.place(f"condition '{condition.label}'" if condition.label else "")


def _refuse_twins(design: Design, cells: Sequence[Cell]) -> None:
    """Check that no two cells of one seed are the same experiment on the same traffic."""
    seen: dict[str, Cell] = {}
    for cell in cells:
        other = seen.setdefault(f"{cell.learner} {cell.traffic} {to_toml(cell.experiment)}", cell)
        if other is not cell:
            raise InputError(f"{design.place()}'{other.words}' and '{cell.words}' are the same experiment.")


def _placed_errors(place: str, build: Callable[[Sequence[Override]], T], options: Sequence[Override]) -> T:
    """Return ``build(options)``; a fault that is there without the options too is the study's, and said to be."""
    try:
        return build(options)
    except InputError:
        try:
            build(())
        except InputError as error:
            raise InputError(f"{place}{error}") from None
        raise
