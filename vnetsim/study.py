"""What a study compares: every arm under every condition at every seed, on the same recorded traffic.

An arm is a learner with its settings, what is compared. A condition is everything else that a study varies: scenario,
traffic, partition of the data. The random streams of a run depend on its seed alone. At one seed and condition, silos,
radio and initial weights are therefore common to all arms.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tomli_w

from vnetsim.errors import InputError, unknown_name
from vnetsim.experiment import Experiment
from vnetsim.learning import Learner
from vnetsim.manifest import sha256_of
from vnetsim.registry import find_learner, learner_file, short_name
from vnetsim.settings_file import load_experiment, structure, to_plain

MOST_CELLS = 500
"""More cells are run only when the user says so."""

Override = tuple[tuple[str, ...], Any]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run: an arm under a condition at a seed.

    Args:
        arm: what is compared, as the page names it; the learner's name where its settings do not vary.
        condition: under what, as the page names it; empty where there is one only.
        learner: its name as given, ``path/to/file.py:CLASS`` included.
        experiment: resolved, but for its traffic: ``scenario`` is still that which is recorded.
        traffic: index of its traffic in ``Plan.traffics``.
    """

    arm: str
    condition: str = ""
    learner: str
    experiment: Experiment
    traffic: int = 0

    @property
    def words(self) -> str:
        """The cell as messages name it."""
        return ", ".join([self.arm, *([self.condition] if self.condition else []), f"seed {self.experiment.seed}"])

    def folder(self, traffic_sha256: str) -> str:
        """Return the name of its folder: arm, seed, and a hash of all that decides its result.

        Traffic and a learner's own file go in by their bytes, not by their paths.
        """
        plain = {**to_plain(self.experiment), "scenario": traffic_sha256, "learner": short_name(self.learner)}
        file = learner_file(self.learner)
        if file is not None:
            plain["learner_file"] = sha256_of(file)
        digest = hashlib.sha256(tomli_w.dumps(plain).encode()).hexdigest()
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", self.arm).strip("-.") or "arm"
        return f"{name[:40]}-seed{self.experiment.seed}-{digest[:12]}"


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """A pair of arm and condition that makes no sense, and why."""

    arm: str
    condition: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that a study runs.

    Args:
        traffics: the experiments whose traffic is recorded, once each, and replayed by the cells.
        cells: in the order to run them: all arms and conditions at the first seed, then at the next.
        skipped: what is left out.
        title: of the page; empty for one made of scenario and arms.
        notes: what the page must say of the study, for example its assumptions.
    """

    traffics: tuple[Experiment, ...]
    cells: tuple[Cell, ...]
    skipped: tuple[Skipped, ...] = ()
    title: str = ""
    notes: tuple[str, ...] = ()


def parse_names(text: str) -> list[str]:
    """Return the learners of ``a,b,c``.

    Raises:
        InputError: fewer than two, or one twice.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    if len(names) < 2:
        raise InputError(f"--learners {text}: name at least two, for example --learners flsimco,fedavg.")
    short = [short_name(name) for name in names]
    twice = [name for name in short if short.count(name) > 1]
    if twice:
        raise InputError(f"--learners {text}: '{twice[0]}' is there twice; learners are told apart by their names.")
    return names


def parse_seeds(text: str) -> list[int]:
    """Return the seeds of ``FIRST:END`` (without END) or ``a,b,c``.

    Raises:
        InputError: malformed, empty, or a seed twice.
    """
    first, colon, end = text.partition(":")
    parts = [part.strip() for part in ((first, end) if colon else text.split(","))]
    if not all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts):
        raise InputError(
            f"--seeds {text}: write FIRST:END, such as 0:10 for the seeds 0 to 9, or a list such as 0,3,7."
        )
    numbers = [int(part) for part in parts]
    if not colon:
        if len(set(numbers)) < len(numbers):
            raise InputError(f"--seeds {text}: a seed is there twice.")
        return numbers
    if numbers[0] >= numbers[1]:
        raise InputError(f"--seeds {text}: no seed; FIRST must be below END, which is not among them.")
    if numbers[1] - numbers[0] > 10**6:
        raise InputError(f"--seeds {text}: {numbers[1] - numbers[0]} seeds are too many.")
    return list(range(*numbers))


def plan(scenario: str, learners: Sequence[str], seeds: Sequence[int], overrides: Sequence[Override]) -> Plan:
    """Return the study of some learners at some seeds on one traffic.

    A setting of the table ``learning`` goes to the learners that know it.

    Raises:
        InputError: an unknown learner or setting, a wrong value, or learners of different tasks.
    """
    for key, _ in overrides:
        if key in {("learner",), ("seed",)}:
            raise InputError(f"--set {key[0]}: a comparison takes --{key[0]}s.")
    kinds = {name: find_learner(name) for name in learners}
    tasks: dict[str, list[str]] = {}
    for name, kind in kinds.items():
        tasks.setdefault(kind.task, []).append(short_name(name))
    if len(tasks) > 1:
        found = "; ".join(f"{', '.join(names)}: {task}" for task, names in tasks.items())
        raise InputError(f"--learners: learners of different tasks cannot be compared ({found}).")
    resolved = {
        name: load_experiment(scenario, [*overrides, (("learner",), name)], find_learner=find_learner)
        for name in learners
    }
    _refuse_unknown(resolved, kinds)
    cells = tuple(
        Cell(
            arm=short_name(name),
            learner=name,
            experiment=dataclasses.replace(_fitted(resolved[name], kinds[name]), seed=seed),
        )
        for seed in seeds
        for name in learners
    )
    return Plan(traffics=(load_experiment(scenario, overrides),), cells=cells)


def _fields(kind: type[Learner]) -> set[str]:
    return {field.name for field in dataclasses.fields(kind.Settings)}


def _refuse_unknown(resolved: Mapping[str, Experiment], kinds: Mapping[str, type[Learner]]) -> None:
    known = {field for kind in kinds.values() for field in _fields(kind)}
    for experiment in resolved.values():
        for key in experiment.learning:
            if key not in known:
                raise unknown_name("key", key, known, where="learning")


def _fitted(experiment: Experiment, kind: type[Learner]) -> Experiment:
    """Return the experiment with those settings of ``learning`` that its learner knows, defaults included."""
    own = {key: value for key, value in experiment.learning.items() if key in _fields(kind)}
    settings: Any = structure(own, kind.Settings, "", ("learning",))
    return dataclasses.replace(experiment, learning=to_plain(settings))
