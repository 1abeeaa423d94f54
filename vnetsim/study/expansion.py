"""Expand the tables of a study to its cells, in one pass; all faults are found before anything runs.

A cell's settings come, in increasing priority, from the study, its condition, its arm, and the command line.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
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


@dataclass
class Expansion:
    """Arms and conditions of a study; ``plan`` expands them to cells.

    ``values`` are the study's tables, ``common`` those without the chosen size's (None for a study without sizes), and
    ``options`` the command line's settings, which override both. Relative paths in tables start from ``folder``;
    ``where`` is their file for messages, empty for the command line. ``least`` is the least number of arms times
    conditions, unless ``timing_only``. InputError: an unknown learner or setting, a wrong value, or learners of
    different tasks. RunError: an installed plug-in is at fault.
    """

    values: Mapping[str, Any]
    options: Sequence[Override]
    _: KW_ONLY
    where: str
    folder: Path
    trust: bool
    timing_only: bool = False
    scale: str = LAPTOP
    least: int = 2
    common: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        """Read and check the tables; with ``timing_only``, ``options`` begin with settings that play all traffic."""
        where, folder, timing_only = self.where, self.folder, self.timing_only
        with error_context(where):
            self._tables = structure(self.values, StudyTables, "")
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
            if not self._arms or (not timing_only and len(self._arms) * len(self._conditions) < self.least):
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
            self._keys = self._find_learner_keys()
        for path, _ in self.options:
            key = ".".join(path)
            if path[0] in ELSEWHERE:
                raise InputError(f"--set {key}: a comparison takes {ELSEWHERE[path[0]][1]}.")
            if path == SHARP and self._controlled:
                raise InputError(f"--set {key}: sharp_control sets it; leave one of them out.")
            if any(path[: len(one)] == one[: len(path)] for one in grid):
                raise InputError(f"--set {key}: {where} varies it; change it there.")
        if timing_only:
            whole: list[Override] = [(("rounds",), ALL_ROUNDS), (("traffic", "repeat"), False)]
            self.options = [*(one for one in whole if one[0] not in grid), *self.options]

    def _with_traffic_seed(self, base: Experiment, seed: int) -> Experiment:
        """Return ``base`` with one of ``traffic_seeds`` (InputError: recording), ``seed`` if only timed, or as is."""
        # without training, seeds that share their traffic would not be repetitions
        kind = kind_of(base.scenario)
        seeded_by = kind.seeded_by if kind else ""
        if self._traffic_seeds and not seeded_by:
            with error_context(self.where):
                raise InputError(f"traffic_seeds: {base.scenario} is a recording, which has no traffic seed.")
        if self._traffic_seeds:
            return base.with_values({seeded_by: self._traffic_seeds[seed % len(self._traffic_seeds)]})
        if self.timing_only and seeded_by and base.traffic.seed is None:
            return base.with_values({seeded_by: seed})
        return base

    def _find_learner_keys(self) -> dict[str, set[str]]:
        """Return setting names by learner; InputError: a learner is unknown, or learners are of different tasks."""
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
        """Return the plan, of at most ``limit`` cells (None for any number).

        InputError: too many cells, fewer evaluations than are compared, two equal cells, a missing scenario, a setting
        without effect, arms that cannot share a schedule, or a selection by losses without training.
        """
        tables, pairs = self._tables, self._pairs()
        with error_context(self.where):
            self._refuse_numbers(len(pairs) * len(self._seeds), limit)
        # first, so that a fault of a condition is not blamed on an arm
        bases = {condition.label: self._make_traffic_experiment(condition) for condition, _ in pairs}
        experiments = [self._make_experiment(condition, arm) for condition, arm in pairs]
        options = {".".join(path) for path, value in self.options if value != {}}
        self._refuse_idle(pairs, experiments, options)
        traffics: dict[str, Experiment] = {}  # by all that decides what is recorded
        cells: list[Cell] = []
        for seed in self._seeds:
            for (condition, arm), experiment in zip(pairs, experiments, strict=True):
                base = self._with_traffic_seed(bases[condition.label], seed)
                # a replay has no window to show
                cell = experiment.with_values({"seed": seed, "traffic.gui": False, "traffic.seed": base.traffic.seed})
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
                with error_context(self.where):
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
            last_evaluations=1 if self.timing_only else tables.last_evaluations,
            timing_only=self.timing_only,
            title=tables.title,
            notes=(*tables.notes, *self._notes(drawn=drawn)),
        )

    def _refuse_numbers(self, cells: int, limit: int | None) -> None:
        """Raise InputError for no cells, more than ``limit`` (None: any number), or an ``against`` that is no arm."""
        tables, seeds = self._tables, len(self._seeds)
        if not cells:
            raise InputError("[[skip]]: everything is left out.")
        if tables.against and tables.against not in {arm.label for arm in self._arms}:
            raise unknown_name("arm", tables.against, [arm.label for arm in self._arms], where="against")
        if limit is not None and cells > limit:
            conditions, left_out = len(self._conditions), len(self._skipped) * seeds
            factors = [f"{len(self._arms)} {'arms' if self.where else 'learners'}"]
            factors += [f"{conditions} conditions"] * (conditions > 1)
            factors += [f"{seeds} seeds"] + [f"less {left_out} left out"] * (left_out > 0)
            raise InputError(f"{cells} cells ({', '.join(factors)}): add --yes if you mean it.")

    def _refuse_idle(
        self, pairs: Sequence[tuple[Level, Level]], experiments: Sequence[Experiment], options: Collection[str]
    ) -> None:
        """Raise InputError for a setting that acts in no cell that sets it; ``options``: keys of the command line."""
        lacking = self._find_idle(pairs, experiments, options)
        refuse_idle({key: why for key, why in lacking.items() if key in options})
        with error_context(self.where):
            refuse_idle({key: why for key, why in lacking.items() if key not in self._find_acting(lacking)})
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
        """Return by dotted key why settings act in no cell that sets them; all cells set the keys ``options``."""
        cases = []
        for (condition, arm), experiment in zip(pairs, experiments, strict=True):
            made, given = assemble(experiment), self._find_given_keys(condition, arm, experiment).union(options)
            training = find_idle(made, given.intersection(options), {TRAINS.key: not self.timing_only})
            cases.append((given, find_idle(made, given, {}) | training))
        return idle_everywhere(cases)

    def _find_given_keys(self, condition: Level, arm: Level, experiment: Experiment) -> set[str]:
        """Return the dotted keys that arm and condition set, no other learner's; none of a condition that sets most."""
        others = set().union(*self._keys.values()) - self._keys[experiment.learner]
        common = () if names_most(condition.settings) else condition.settings
        keys = {".".join(path) for path in (*common, *arm.settings)}
        return keys - {f"learning.{key}" for key in others}

    def _find_acting(self, lacking: Mapping[str, str]) -> set[str]:
        """Return the keys in ``lacking`` that act without the size's tables; all if the rest is no study."""
        if not lacking or self.common is None:
            return set()
        try:
            alone = Expansion(self.common, (), where="", folder=self.folder, trust=self.trust, least=1)
            pairs = alone._pairs()
            experiments = [alone._make_experiment(*pair) for pair in pairs]
        except InputError:
            return set(lacking)
        given = set().union(*(alone._find_given_keys(*pair, one) for pair, one in zip(pairs, experiments, strict=True)))
        return given.intersection(lacking) - alone._find_idle(pairs, experiments, ()).keys()

    def _notes(self, *, drawn: bool) -> Iterator[str]:
        """Yield notes for the page; ``drawn``: each seed draws its own traffic."""
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
        elif self.timing_only and drawn:
            yield TIMED_NOTE

    def _make_experiment(self, condition: Level, arm: Level) -> Experiment:
        """Return an arm's experiment, not yet with a cell's seed; InputError: too few evaluations, or unlike rounds."""
        own, reference = self._read_experiment(condition, arm), self._reference
        if reference is not None:
            theirs = self._read_experiment(condition, reference)
            with error_context(self.where, "equal schedule"):
                _refuse_other_rounds(arm, own, reference, theirs)
                schedule = ScheduleSettings(learner=theirs.learner, learning=theirs.learning)
                # assemble again: not every selection policy supports a schedule
                own = self._fill_defaults(replace(own, schedule=schedule))
        wanted = self._tables.last_evaluations
        evaluations = wanted if own.rounds is None else -(-own.rounds // own.evaluate_every)
        if evaluations < wanted and not self.timing_only:
            under = f" under '{condition.label}'" if condition.label else ""
            with error_context(self.where):
                raise InputError(
                    f"last_evaluations = {wanted}: '{arm.label}'{under} is evaluated {evaluations} "
                    f"time{'s' * (evaluations > 1)} only (rounds = {own.rounds}, evaluate_every = "
                    f"{own.evaluate_every}): ask for more rounds, or average fewer."
                )
        return own

    def _read_experiment(self, condition: Level, arm: Level) -> Experiment:
        """Return an arm's experiment without the common schedule, and without ``learning`` of other learners."""
        settings = {**condition.settings, **arm.settings}
        scenario = settings.pop(SCENARIO)
        own = {path[1] for path in arm.settings if path[0] == "learning"}
        anywhere = set().union(*self._keys.values())

        def build(options: Sequence[Override]) -> Experiment:
            given = [*settings.items(), *options]
            experiment, learner = read_experiment(scenario, given, trust=self.trust, scale=self.scale)
            for key in experiment.learning.keys() - anywhere:
                raise unknown_name("key", key, anywhere, where="learning")
            known = self._keys[experiment.learner] | own
            learning = {key: value for key, value in experiment.learning.items() if key in known}
            return self._fill_defaults(replace(experiment, learning=learning), learner)

        return self._build_with_options(condition, arm, build)

    def _fill_defaults(self, experiment: Experiment, learner: type[Learner] | None = None) -> Experiment:
        """Return an experiment with its plug-ins' defaults; InputError: selection by losses, but nobody is trained."""
        made = assemble(experiment, learner)
        if self.timing_only:
            made.refuse_losses(trains=False)
        return made.experiment

    def _make_traffic_experiment(self, condition: Level) -> Experiment:
        """Return the experiment to record for a condition, before a traffic seed; InputError: no such scenario."""
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
        """Return ``build(self.options)``; an InputError names condition and arm if ``build(())`` fails too."""
        try:
            return build(self.options)
        except InputError:
            words = [f"condition '{condition.label}'"] * bool(condition.label)
            places = ", ".join(words if arm is None else [f"arm '{arm.label}'", *words])
            with error_context(*((self.where, places) if self.where else ())):
                build(())
            raise


def _refuse_other_rounds(arm: Level, own: Experiment, reference: Level, theirs: Experiment) -> None:
    """Raise InputError if two arms that share a schedule differ in more than learner, its settings and blur."""
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
