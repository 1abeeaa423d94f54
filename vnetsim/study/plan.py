"""What a study runs: its cells and the traffic that they replay."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import tomli_w

from vnetsim.errors.paths import path_name
from vnetsim.experiment import Experiment
from vnetsim.plugins import code_file, short_name
from vnetsim.runs.manifest import sha256_of
from vnetsim.scenario.settings_file import to_plain
from vnetsim.storage.records import SkippedEntry

SHARP_NOTE = (
    "Sharp camera: the same run with no image blurred (blur.fraction = 0), which shows what blurred images alone cost. "
    "Blur levels, and weights made of them such as FLSimCo's (Eq. 11), are those of the moving camera, and the same "
    "vehicles take part, unless the selection looks at losses."
)
EQUAL_NOTE = (
    "Equal schedule: payload and work of every participation are those of {}, so that the same vehicles commit in "
    "every arm."
)
CAMERA_NOTE = (
    "{}. All arms replay the same traffic, and a camera changes no timing: it changes how far images are blurred, and "
    "who takes part only where the selection looks at blur or at losses."
)
SEEDS_NOTE = "Seed s replays the traffic of seed number s mod {} of {}, the same in every arm."
TIMED_NOTE = "Every seed has traffic of its own, drawn with that seed; under each condition all arms replay it."
"""Notes on a page about sharp controls, the schedule, cameras, and the traffic of each seed."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run: an arm under a condition at a seed."""

    arm: str  # label of the arm
    condition: str  # label of the condition; empty if there is only one
    experiment: Experiment  # all settings, except that ``scenario`` is still the one to record, not the recording
    traffic: int  # index of its traffic in ``Plan.traffics``
    given: frozenset[str] = frozenset()  # dotted keys of the settings that the study and the command line set

    @property
    def words(self) -> str:
        """The cell's name in messages: arm, condition and seed."""
        return ", ".join(filter(None, (self.arm, self.condition, f"seed {self.experiment.seed}")))

    def folder(self, traffic_sha256: str, *, timing_only: bool = False) -> str:
        """Return the name of its folder: arm, condition, seed, and a hash of settings, traffic and plug-ins' code.

        Other files that settings name are hashed by path, not by content.
        """
        named = self.experiment.plugins()
        short = self.experiment.with_values({key: short_name(name) for key, name in named.items() if name})
        plain = {**to_plain(short), "scenario": traffic_sha256}
        for key, name in named.items():
            if (file := code_file(name)) is not None:
                plain[f"{key.removesuffix('.learner')}_file"] = sha256_of(file)
        if timing_only:
            plain["timing_only"] = True
        digest = hashlib.sha256(tomli_w.dumps(plain).encode()).hexdigest()
        return f"{path_name(self.arm, self.condition)}-seed{self.experiment.seed}-{digest[:12]}"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that a study runs."""

    traffics: tuple[Experiment, ...]  # the experiments whose traffic is recorded, once each, for the cells to replay
    # the cells in the order to run them: all arms and conditions at the first seed, then at the next
    cells: tuple[Cell, ...]
    skipped: tuple[SkippedEntry, ...]  # the pairs of arm and condition that are not run
    interval: str  # see ``vnetsim.storage.records.Interval``
    against: str  # the arm that all others are compared with; empty to compare all pairs
    # dotted keys of settings, except the learner's, that an arm sets, so that arms may differ in them
    arm_settings: tuple[str, ...]
    last_evaluations: int  # number of a metric's last values whose mean is compared
    timing_only: bool  # play the rounds without training
    title: str  # title of the page; empty to make one from scenario and arms
    notes: tuple[str, ...]  # sentences for the page, for example assumptions
