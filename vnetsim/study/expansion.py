"""Expand the tables of a study to its cells, in one pass; all faults are found before anything runs.

A cell's settings come, in increasing priority, from the study, its condition, its arm, and the command line.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from vnetsim.errors import InputError, unknown_name
from vnetsim.errors.bounds import TRAINS
from vnetsim.experiment import ALL_ROUNDS, Experiment, ScheduleSettings
from vnetsim.learning import Learner
from vnetsim.learning.kinds import LEARNERS
from vnetsim.plugins import short_name
from vnetsim.runs.assembly import assemble
from vnetsim.runs.effect import find_idle, idle_everywhere, idle_in_file, refuse_idle
from vnetsim.scenario.kinds import TRAFFIC_SOURCES, kind_of, names_source, unknown_kind
from vnetsim.scenario.plugins import resolve_plugin
from vnetsim.scenario.settings_file import (
    LAPTOP,
    Override,
    keys_in_file,
    leaves,
    load_experiment,
    names_most,
    read_experiment,
    to_plain,
    to_toml,
)
from vnetsim.storage.structure import structure
from vnetsim.study.levels import (
    ELSEWHERE,
    LEARNER,
    SCENARIO,
    SHARP,
    Level,
    StudyTables,
    arms_of,
    common_learner,
    conditions_of,
    error_context,
    grid_of,
    keys_of,
    reference_of,
    refuse_same_labels,
    seeds_of,
    skipped_of,
    with_sharp_controls,
)
from vnetsim.study.plan import CAMERA_NOTE, EQUAL_NOTE, SEEDS_NOTE, SHARP_NOTE, TIMED_NOTE, Cell, Plan
from vnetsim.study.traffic import deciding_settings

T = TypeVar("T")


class Expansion:
    """Arms and conditions of a study; ``plan`` expands them to cells.

    Args:
        values: tables of the study; see ``vnetsim.study.request``.
        options: settings of the command line.
        where: file of the tables, for messages; empty for the command line.
        folder: folder that relative paths in the tables start from.
        trust: whether run directories may name code; see ``vnetsim.scenario.trust``.
        timing_only: play the rounds without training, by default over all of the traffic, which each seed draws.
        scale: scale of the learners.
        least: least number of arms times conditions; not checked with ``timing_only``.
        common: the tables without those of the chosen size; None if the study has no sizes.

    Raises:
        InputError: an unknown learner or setting, a wrong value, learners of different tasks, or a missing scenario.
            ``plan`` raises it for too many cells, fewer evaluations than are compared, two equal cells, arms that
            cannot share a schedule, or a selection by losses without training.
        RunError: an installed plug-in is at fault.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        options: Sequence[Override],
        *,
        where: str,
        folder: Path,
        trust: bool,
        timing_only: bool = False,
        scale: str = LAPTOP,
        least: int = 2,
        common: Mapping[str, Any] | None = None,
    ) -> None:
        self._options = options
        self._common = common
        self._folder = folder
        self._where = where
        self._trust = trust
        self._scale = scale
        self._timing_only = timing_only
        with error_context(where):
            self._tables = structure(values, StudyTables, "")
            grid = grid_of(self._tables.grid)
            self._conditions = conditions_of(self._tables, grid, folder)
            default = Experiment.learner if timing_only and not self._tables.arms else ""
            learner = common_learner(self._tables, folder) or default
            self._arms = arms_of(self._tables.arms, grid, self._conditions, folder, learner)
            self._reference = reference_of(self._tables.equal_schedule, self._arms, folder)
            self._controlled = self._tables.sharp_control and not timing_only
            if self._controlled:
                self._arms = with_sharp_controls(self._arms)
        with error_context(where, "[[arms]]" if where else "--learners"):
            if not self._arms or (not timing_only and len(self._arms) * len(self._conditions) < least):
                wanted = "one, such as flsimco" if timing_only else "two, such as flsimco and fedavg"
                more = ", or one under at least two [[conditions]]" if where and not timing_only else ""
                raise InputError(f"name at least {wanted}{more}; this has {len(self._arms)}.")
            refuse_same_labels(self._arms)
        with error_context(where, "[[conditions]]"):
            refuse_same_labels(self._conditions)
        with error_context(where):
            self._skipped = skipped_of(self._tables.skip, self._arms, self._conditions)
            self._seeds = seeds_of(self._tables.seeds, "seeds")
            given = self._tables.traffic_seeds
            if given is not None and any(("traffic", "seed") in one.settings for one in self._conditions):
                raise InputError("traffic.seed: traffic_seeds says it already; leave one of them out.")
            self._traffic_seeds = () if given is None else seeds_of(given, "traffic_seeds")
            self._keys = self._keys_of_learners()
        for path, _ in options:
            key = ".".join(path)
            if path[0] in ELSEWHERE:
                raise InputError(f"--set {key}: a comparison takes {ELSEWHERE[path[0]][1]}.")
            if path == SHARP and self._controlled:
                raise InputError(f"--set {key}: sharp_control sets it; leave one of them out.")
            if any(path[: len(one)] == one[: len(path)] for one in grid):
                raise InputError(f"--set {key}: {where} varies it; change it there.")
        if timing_only:
            whole: list[Override] = [(("rounds",), ALL_ROUNDS), (("traffic", "repeat"), False)]
            self._options = [*(one for one in whole if one[0] not in grid), *options]

    def _with_traffic_seed(self, base: Experiment, seed: int) -> Experiment:
        """Return the experiment to record for a cell's ``seed``; ``base`` itself if the settings decide its traffic."""
        # traffic_seeds adds the variation of traffic to the paired differences; without training, seeds that share
        # their traffic would not be repetitions
        kind = kind_of(base.scenario)
        seeded_by = kind.seeded_by if kind else ""
        if self._traffic_seeds and not seeded_by:
            with error_context(self._where):
                raise InputError(f"traffic_seeds: {base.scenario} is a recording, which has no traffic seed.")
        if self._traffic_seeds:
            return base.with_values({seeded_by: self._traffic_seeds[seed % len(self._traffic_seeds)]})
        if self._timing_only and seeded_by and base.traffic.seed is None:
            return base.with_values({seeded_by: seed})
        return base

    def _keys_of_learners(self) -> dict[str, set[str]]:
        """Return the names of the settings of each learner in the study; refuse unknown ones, and different tasks."""
        more = [] if self._reference is None else [(self._conditions[0], self._reference)]
        settings = [{**condition.settings, **arm.settings} for condition, arm in [*self._pairs(), *more]]
        learners = dict.fromkeys(one[LEARNER] for one in settings)
        tasks: dict[str, list[str]] = {}
        for name in learners:
            tasks.setdefault(LEARNERS.find(name).task, []).append(short_name(name))
        if len(tasks) > 1:
            found = "; ".join(f"{', '.join(names)}: {task}" for task, names in tasks.items())
            raise InputError(f"learners of different tasks cannot be compared ({found}).")
        return {name: keys_of(name) for name in learners}

    def _pairs(self) -> list[tuple[Level, Level]]:
        """Return the pairs (condition, arm) that are not skipped."""
        left_out = {(one.condition, one.arm) for one in self._skipped}
        pairs = itertools.product(self._conditions, self._arms)
        return [(condition, arm) for condition, arm in pairs if (condition.label, arm.label) not in left_out]

    def plan(self, limit: int | None) -> Plan:
        """Return the plan, of at most ``limit`` cells (None for any number); InputError as in the class."""
        tables, pairs = self._tables, self._pairs()
        with error_context(self._where):
            self._refuse_numbers(len(pairs) * len(self._seeds), limit)
        # first, so that a fault of a condition is not blamed on an arm
        bases = {condition.label: self._base(condition) for condition, _ in pairs}
        experiments = [self._experiment(condition, arm) for condition, arm in pairs]
        options = {".".join(path) for path, value in self._options if value != {}}
        self._refuse_idle(pairs, experiments, options)
        traffics: dict[str, Experiment] = {}  # by all that decides what is recorded
        cells: list[Cell] = []
        for seed in self._seeds:
            for (condition, arm), experiment in zip(pairs, experiments, strict=True):
                base = self._with_traffic_seed(bases[condition.label], seed)
                cell = dataclasses.replace(experiment, seed=seed)
                # a replay has no window to show
                cell = cell.with_values({"traffic.gui": False, "traffic.seed": base.traffic.seed})
                key = json.dumps(deciding_settings(base), sort_keys=True, default=str)
                traffics.setdefault(key, base)
                number = list(traffics).index(key)
                given = frozenset(self._find_given_keys(condition, arm, cell) | options)
                cells.append(
                    Cell(arm=arm.label, condition=condition.label, experiment=cell, traffic=number, given=given)
                )
        seen: dict[str, Cell] = {}
        for one in cells[: len(pairs)]:
            other = seen.setdefault(f"{one.traffic} {to_toml(one.experiment)}", one)
            if other is not one:
                with error_context(self._where):
                    raise InputError(f"'{other.words}' and '{one.words}' are the same experiment.")
        drawn = any(self._with_traffic_seed(base, 0) is not base for base in bases.values())
        of_arms = [path for arm in self._arms for path in arm.settings if path[0] not in {"learner", "learning"}]
        return Plan(
            traffics=tuple(traffics.values()),
            cells=tuple(cells),
            skipped=tuple(self._skipped),
            interval=tables.interval,
            against=tables.against,
            arm_settings=tuple(dict.fromkeys(map(".".join, of_arms))),
            last_evaluations=1 if self._timing_only else tables.last_evaluations,
            timing_only=self._timing_only,
            title=tables.title,
            notes=(*tables.notes, *self._notes(drawn=drawn)),
        )

    def _refuse_numbers(self, cells: int, limit: int | None) -> None:
        """Refuse no cells, more than ``limit`` cells (None: any number), and an ``against`` that is no arm."""
        tables, seeds = self._tables, len(self._seeds)
        if not cells:
            raise InputError("[[skip]]: everything is left out.")
        if tables.against and tables.against not in {arm.label for arm in self._arms}:
            raise unknown_name("arm", tables.against, [arm.label for arm in self._arms], where="against")
        if limit is not None and cells > limit:
            conditions, left_out = len(self._conditions), len(self._skipped) * seeds
            factors = [f"{len(self._arms)} {'arms' if self._where else 'learners'}"]
            factors += [f"{conditions} conditions"] * (conditions > 1)
            factors += [f"{seeds} seeds"] + [f"less {left_out} left out"] * (left_out > 0)
            raise InputError(f"{cells} cells ({', '.join(factors)}): add --yes if you mean it.")

    def _refuse_idle(
        self, pairs: Sequence[tuple[Level, Level]], experiments: Sequence[Experiment], options: Collection[str]
    ) -> None:
        """Refuse settings without effect in every cell that sets them, unless they act in the tables without a size."""
        lacking = self._find_idle(pairs, experiments, options)
        refuse_idle({key: why for key, why in lacking.items() if key in options})
        with error_context(self._where):
            refuse_idle({key: why for key, why in lacking.items() if key not in self._find_common_idle(lacking)})
        for scenario in dict.fromkeys(condition.settings[SCENARIO] for condition, _ in pairs):
            cases = []
            for (condition, arm), experiment in zip(pairs, experiments, strict=True):
                if condition.settings[SCENARIO] == scenario:
                    given = self._find_given_keys(condition, arm, experiment).union(options)
                    known = keys_in_file(scenario) - given
                    cases.append((known, idle_in_file(assemble(experiment), scenario, given)))
            refuse_idle(idle_everywhere(cases), f"{scenario}: ")

    def _find_idle(
        self, pairs: Sequence[tuple[Level, Level]], experiments: Sequence[Experiment], options: Collection[str]
    ) -> dict[str, str]:
        """Return the settings without effect in every cell that sets them, and why; see ``find_idle``."""
        cases = []
        for (condition, arm), experiment in zip(pairs, experiments, strict=True):
            made, given = assemble(experiment), self._find_given_keys(condition, arm, experiment).union(options)
            training = find_idle(made, given.intersection(options), {TRAINS.key: not self._timing_only})
            cases.append((given, find_idle(made, given, {}) | training))
        return idle_everywhere(cases)

    def _find_given_keys(self, condition: Level, arm: Level, experiment: Experiment) -> set[str]:
        """Return the keys that the study sets in a cell, except other learners' and a condition's that sets most."""
        others = set().union(*self._keys.values()) - self._keys[experiment.learner]
        common = () if names_most(condition.settings) else condition.settings
        keys = {".".join(path) for path in (*common, *arm.settings)}
        return keys - {f"learning.{key}" for key in others}

    def _find_common_idle(self, lacking: Mapping[str, str]) -> set[str]:
        """Return the keys in ``lacking`` that act in the tables without a size; all if those alone are no study."""
        if not lacking or self._common is None:
            return set()
        try:
            alone = Expansion(self._common, (), where="", folder=self._folder, trust=self._trust, least=1)
            pairs = alone._pairs()
            experiments = [alone._experiment(*pair) for pair in pairs]
        except InputError:  # the common tables alone are no complete study
            return set(lacking)
        given = set().union(*(alone._find_given_keys(*pair, one) for pair, one in zip(pairs, experiments, strict=True)))
        return given.intersection(lacking) - alone._find_idle(pairs, experiments, ()).keys()

    def _notes(self, *, drawn: bool) -> Iterator[str]:
        """Yield notes for the page; ``drawn`` says that traffic depends on the seed."""
        if self._controlled:
            yield SHARP_NOTE
        if self._reference is not None:
            yield EQUAL_NOTE.format(self._reference.label)
        own = {path for arm in self._arms for path in arm.settings}
        if any(path[0] == "camera" for path in own):
            apart = {path[0] for path in own if len({repr(arm.settings.get(path)) for arm in self._arms}) > 1}
            said = "Only the camera differs between arms" if apart == {"camera"} else "Arms have cameras of their own"
            yield CAMERA_NOTE.format(said)
        if self._traffic_seeds:
            yield SEEDS_NOTE.format(len(self._traffic_seeds), ", ".join(map(str, self._traffic_seeds)))
        elif self._timing_only and drawn:
            yield TIMED_NOTE

    def _experiment(self, condition: Level, arm: Level) -> Experiment:
        """Return the experiment of an arm under a condition, its seed still to be set; refuse too few evaluations."""
        own, reference = self._fit_learning(condition, arm), self._reference
        if reference is not None:
            theirs = self._fit_learning(condition, reference)
            with error_context(self._where, "equal schedule"):
                _refuse_other_rounds(arm, own, reference, theirs)
                schedule = ScheduleSettings(learner=theirs.learner, learning=theirs.learning)
                # assemble again: not every selection policy supports a schedule
                own = self._fill_defaults(dataclasses.replace(own, schedule=schedule))
        wanted = self._tables.last_evaluations
        evaluations = wanted if own.rounds is None else -(-own.rounds // own.evaluate_every)
        if evaluations < wanted and not self._timing_only:
            under = f" under '{condition.label}'" if condition.label else ""
            with error_context(self._where):
                raise InputError(
                    f"last_evaluations = {wanted}: '{arm.label}'{under} is evaluated {evaluations} "
                    f"time{'s' * (evaluations > 1)} only (rounds = {own.rounds}, evaluate_every = "
                    f"{own.evaluate_every}): ask for more rounds, or average fewer."
                )
        return own

    def _fit_learning(self, condition: Level, arm: Level) -> Experiment:
        """Return the experiment of an arm under a condition; drop ``learning`` keys that only other learners have."""
        settings = {**condition.settings, **arm.settings}
        scenario = settings.pop(SCENARIO)
        own = {path[1] for path in arm.settings if path[0] == "learning"}
        anywhere = set().union(*self._keys.values())

        def build(options: Sequence[Override]) -> Experiment:
            given = [*settings.items(), *options]
            experiment, learner = read_experiment(scenario, given, trust=self._trust, scale=self._scale)
            for key in experiment.learning.keys() - anywhere:
                raise unknown_name("key", key, anywhere, where="learning")
            known = self._keys[experiment.learner] | own
            learning = {key: value for key, value in experiment.learning.items() if key in known}
            return self._fill_defaults(dataclasses.replace(experiment, learning=learning), learner)

        return self._build_with_options(condition, arm, build)

    def _fill_defaults(self, experiment: Experiment, learner: type[Learner] | None = None) -> Experiment:
        """Return an experiment with its plug-ins' defaults; refuse a selection by losses if nobody is trained."""
        made = assemble(experiment, learner)
        if self._timing_only:
            made.refuse_losses(trains=False)
        return made.experiment

    def _base(self, condition: Level) -> Experiment:
        """Return the experiment whose traffic is recorded for a condition; refuse a scenario that does not exist."""
        settings = [item for item in condition.settings.items() if item[0] not in {SCENARIO, LEARNER}]

        def build(options: Sequence[Override]) -> Experiment:
            experiment = load_experiment(condition.settings[SCENARIO], [*settings, *options])
            if names_source(experiment.scenario):
                resolve_plugin(TRAFFIC_SOURCES, experiment.source, experiment.scenario)
            elif not Path(experiment.scenario).exists():
                raise InputError(f"{experiment.scenario}: no such file or folder.")
            elif kind_of(experiment.scenario) is None:
                raise unknown_kind(experiment.scenario)
            return experiment

        return self._build_with_options(condition, None, build)

    def _build_with_options(self, condition: Level, arm: Level | None, build: Callable[[Sequence[Override]], T]) -> T:
        """Return ``build(options)``; if that and ``build(())`` fail, the study is at fault: name condition and arm."""
        try:
            return build(self._options)
        except InputError:
            words = [f"condition '{condition.label}'"] * bool(condition.label)
            places = ", ".join(words if arm is None else [f"arm '{arm.label}'", *words])
            with error_context(*((self._where, places) if self._where else ())):
                build(())
            raise


def _refuse_other_rounds(arm: Level, own: Experiment, reference: Level, theirs: Experiment) -> None:
    """Refuse two arms that share a schedule but differ in more than learner and blur."""
    ours, other = (leaves({**to_plain(one), "learner": "", "learning": {}}) for one in (own, theirs))
    differs = [path for path in {**ours, **other} if ours.get(path) != other.get(path)]
    apart = [path for path in differs if path[0] != "blur"]  # blur does not change the schedule
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
