"""What a study runs: its cells, and the traffics that they replay."""

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


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run: an arm under a condition at a seed.

    Args:
        arm: what is compared, as the page names it.
        condition: under what, as the page names it; empty where there is one only.
        experiment: resolved, but for its traffic: ``scenario`` is still that which is recorded.
        traffic: index of its traffic in ``Plan.traffics``.
        given: dotted keys of the settings that study and command line give it.
    """

    arm: str
    condition: str
    experiment: Experiment
    traffic: int
    given: frozenset[str] = frozenset()

    @property
    def words(self) -> str:
        """The cell as messages name it."""
        return ", ".join([self.arm, *([self.condition] if self.condition else []), f"seed {self.experiment.seed}"])

    def folder(self, traffic_sha256: str, *, timing_only: bool = False) -> str:
        """Return the name of its folder: arm, condition, seed, and a hash of all that decides its result.

        Traffic and the files of plug-ins go in by their bytes, not by their paths.
        """
        named = self.experiment.plugins()
        short = self.experiment.placed({key: short_name(name) for key, name in named.items() if name})
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
    """Everything that a study runs.

    Args:
        traffics: the experiments whose traffic is recorded, once each, and replayed by the cells.
        cells: in the order to run them: all arms and conditions at the first seed, then at the next.
        interval: see ``vnetsim.storage.records.Interval``.
        against: the arm with which alone the others are compared; empty for all pairs.
        arm_settings: dotted keys of general settings that belong to the arms, and so may differ between them.
        last_evaluations: what is compared is the mean of so many of a metric's last values, 1 for its last.
        title: of the page; empty for one made of scenario and arms.
        notes: what the page must say of the study, for example its assumptions.
    """

    traffics: tuple[Experiment, ...]
    cells: tuple[Cell, ...]
    skipped: tuple[SkippedEntry, ...]
    interval: str
    against: str
    arm_settings: tuple[str, ...]
    last_evaluations: int
    timing_only: bool
    title: str
    notes: tuple[str, ...]
