"""What a study asks for, before its settings are resolved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from vnetsim.errors import InputError
from vnetsim.experiment import Experiment
from vnetsim.learning import Learner
from vnetsim.plugins import short_name
from vnetsim.storage.comparison import LEAST_FOR_BCA
from vnetsim.study.plan import Override, Skipped


@dataclass(frozen=True, kw_only=True)
class Arm:
    """What is compared.

    Args:
        label: as the page names it.
        learner: its name; the path of its file, if it has one, holds from the working directory. Empty for that of the
            condition.
        learning: the learner's settings that belong to the arm.
        settings: of its cells, besides those of ``learning``; none that changes the traffic.
    """

    label: str
    learner: str
    learning: Mapping[str, Any] = field(default_factory=dict)
    settings: tuple[Override, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Condition:
    """Under what arms are compared.

    Args:
        label: as the page names it; empty for the only one.
        scenario: whose traffic is recorded; its path holds from the working directory.
        settings: of all its cells. Those of the table ``learning`` go to the learners that know them.
        learner: of the arms that name none.
    """

    label: str = ""
    scenario: str
    settings: tuple[Override, ...] = ()
    learner: str = ""

    def learner_of(self, arm: Arm) -> str:
        """Return the learner of an arm under this condition."""
        return arm.learner or self.learner


@dataclass(frozen=True, kw_only=True)
class Design:
    """What a study asks for.

    Args:
        where: the file that says so, for messages; empty for a command line.
        arms: at least two, of one task.
        conditions: at least one.
        seeds: of the cells.
        traffic_seeds: seed s replays the traffic of ``traffic_seeds[s % n]`` in all arms, so that the variation of
            traffic goes into the paired differences; empty for the one traffic that the settings give. Only SUMO and
            the Gaussian model have a traffic seed.
        equal_schedule: an arm or a learner whose payload and work are those of all arms; empty for each its own.
        against: label of the arm with which alone the others are compared; empty for all pairs.
        interval: see ``vnetsim.study.plan.Plan``.
        last_evaluations: see ``vnetsim.study.plan.Plan``.
        skipped: pairs of arm and condition that are left out.
        varied: dotted keys, split, that differ between arms or conditions by design, so that no option may set them.
        title: see ``vnetsim.study.plan.Plan``.
        notes: see ``vnetsim.study.plan.Plan``.
    """

    where: str = ""
    arms: tuple[Arm, ...]
    conditions: tuple[Condition, ...]
    seeds: Sequence[int]
    traffic_seeds: Sequence[int] = ()
    equal_schedule: str = ""
    against: str = ""
    interval: str = "sign-flip"
    last_evaluations: int = 1
    skipped: tuple[Skipped, ...] = ()
    varied: frozenset[tuple[str, ...]] = frozenset()
    title: str = ""
    notes: tuple[str, ...] = ()

    def place(self, what: str = "") -> str:
        """Return how a message about the study begins: the file, and ``what`` of it, each with a colon."""
        return "".join(f"{part}: " for part in (self.where, what) if part)

    def pairs(self) -> list[tuple[Condition, Arm]]:
        """Return what is not left out."""
        left_out = {(skipped.arm, skipped.condition) for skipped in self.skipped}
        return [
            (condition, arm)
            for condition in self.conditions
            for arm in self.arms
            if (arm.label, condition.label) not in left_out
        ]

    def reference(self) -> Arm | None:
        """Return whose payload and work are those of all arms, None for each its own.

        It is the arm of that label, else the only arm of that learner, else that learner with its own defaults.

        Raises:
            InputError: several arms have that learner.
        """
        name = self.equal_schedule
        if not name:
            return None
        named = [arm for arm in self.arms if arm.label == name] or [arm for arm in self.arms if arm.learner == name]
        if len(named) > 1:
            labels = ", ".join(f"'{arm.label}'" for arm in named)
            raise InputError(f"{self.place('equal schedule')}several arms are of {name}: name one of {labels}.")
        return named[0] if named else Arm(label=short_name(name), learner=name)

    def all_notes(self) -> tuple[str, ...]:
        """Return the notes, and what a reader must know of schedule and traffic."""
        notes = list(self.notes)
        reference = self.reference()
        if reference is not None:
            notes.append(
                f"Equal schedule: payload and work of every participation are those of {reference.label}, so that the "
                "same vehicles commit in every arm."
            )
        if self.traffic_seeds:
            listed = ", ".join(map(str, self.traffic_seeds))
            notes.append(
                f"Seed s replays the traffic of seed number s mod {len(self.traffic_seeds)} of {listed}, the same in "
                "every arm."
            )
        return tuple(notes)

    def refuse_options(self, options: Sequence[Override]) -> None:
        """Check that options set nothing that is for the study to say.

        Raises:
            InputError: naming the option and what to do.
        """
        instead = {
            "learner": "--learners",
            "seed": "--seeds",
            "scenario": "the scenario first",
            "schedule": "--equal-schedule",
        }
        for path, _ in options:
            key = ".".join(path)
            if path[0] in instead:
                raise InputError(f"--set {key}: a comparison takes {instead[path[0]]}.")
            if any(path[: len(one)] == one[: len(path)] for one in self.varied):
                raise InputError(f"--set {key}: {self.where} varies it; change it there.")

    def refuse_few_evaluations(self, condition: Condition, arm: Arm, experiment: Experiment) -> None:
        """Check that a run has as many evaluations after training as are compared.

        Raises:
            InputError: it has fewer, however long its traffic lasts.
        """
        evaluations = -(-experiment.rounds // experiment.evaluate_every)
        if evaluations >= self.last_evaluations:
            return
        under = f" under '{condition.label}'" if condition.label else ""
        raise InputError(
            f"{self.place()}last_evaluations = {self.last_evaluations}: '{arm.label}'{under} is evaluated "
            f"{evaluations} time{'s' * (evaluations > 1)} only (rounds = {experiment.rounds}, evaluate_every = "
            f"{experiment.evaluate_every}): ask for more rounds, or average fewer."
        )

    def refuse_interval(self) -> None:
        """Check that there are seeds enough for the bootstrap's intervals.

        Raises:
            InputError: there are not.
        """
        if self.interval == "bca" and len(self.seeds) < LEAST_FOR_BCA:
            raise InputError(
                f'{self.place()}interval = "bca": covers too little below {LEAST_FOR_BCA} seeds, and this has '
                f'{len(self.seeds)}; take "sign-flip", or "t" if the differences are normal.'
            )

    def refuse_many(self, limit: int | None) -> None:
        """Check that there are at most ``limit`` cells, None for any number.

        Raises:
            InputError: with the number and how to run them all the same.
        """
        cells = len(self.pairs()) * len(self.seeds)
        if limit is None or cells <= limit:
            return
        factors = [f"{len(self.arms)} {'arms' if self.where else 'learners'}"]
        if len(self.conditions) > 1:
            factors.append(f"{len(self.conditions)} conditions")
        factors.append(f"{len(self.seeds)} seeds")
        if self.skipped:
            factors.append(f"less {len(self.skipped) * len(self.seeds)} left out")
        raise InputError(f"{self.place()}{cells} cells ({', '.join(factors)}): add --yes if you mean it.")


def fields_of(kind: type[Learner]) -> set[str]:
    """Return the names of a learner's settings."""
    return {one.name for one in fields(kind.Settings)}
