"""The commands that are stopped at every change of the disk: small, and otherwise as users call them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from vnetsim.display import progress_display
from vnetsim.experiment import CostSettings, Experiment, RoundSettings, TrafficSettings
from vnetsim.runs.assembly import assemble
from vnetsim.runs.runner import resume_run, start_run
from vnetsim.runs.traffic_recording import record_mobility
from vnetsim.scenario.settings_file import read_experiment
from vnetsim.storage.run_directory import RunDirectory
from vnetsim.study.request import plan_of
from vnetsim.study.runner import compare

WALK = f"{Path(__file__).parents[1] / 'end_to_end' / 'walk_learners.py'}:Walk"
TRAFFIC = Experiment(
    scenario="gaussian", source={"arrivals_per_s": 0.5}, traffic=TrafficSettings(repeat=False, end_s=15.0)
)


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command, as what it does to a folder.

    Args:
        start: begins in a folder that is empty or missing.
        again: what its messages tell a user to do after it was stopped.
    """

    start: Callable[[Path], Any]
    again: Callable[[Path], Any]


def resumable(start: Callable[[Path], Any]) -> Command:
    """Return a command that goes on with ``resume`` once it has begun, and is else started again."""

    def again(folder: Path) -> None:
        if not (folder / "manifest.json").is_file():
            start(folder)
            return
        with progress_display() as progress:
            resume_run(folder, command=["vnetsim"], progress=progress, trust=True)
        assert RunDirectory(folder).leftovers() == []

    return Command(start=start, again=again)


def _record(folder: Path) -> None:
    with progress_display() as progress:
        record_mobility(TRAFFIC, folder, command=["vnetsim"], progress=progress)


def _run(experiment: Experiment) -> Callable[[Path], None]:
    def start(folder: Path) -> None:
        with progress_display() as progress:
            start_run(assemble(experiment), folder, command=["vnetsim"], progress=progress)

    return start


MOBILITY = resumable(_record)
RUN = resumable(
    _run(
        replace(
            TRAFFIC,
            round=RoundSettings(quorum=2, invited=8, deadline_s=10.0, max_staleness=0),
            cost=CostSettings(model="trained"),
            learner=WALK,
            rounds=2,
            device="cpu",
        )
    )
)


def run_of_scaffold(data: Path) -> Command:
    """Return a round of SCAFFOLD, which keeps state in silos, on tiny images; ``data`` is a folder to put them in."""
    draw, file = np.random.default_rng(0), data / "images.npz"
    np.savez(file, images=draw.integers(0, 255, (60, 8, 8, 3)).astype(np.uint8), labels=np.arange(60) % 3)
    own = {"batch": 4, "steps": 1, "engine": "sequential"}
    sets: list[tuple[tuple[str, ...], Any]] = [(("learning", key), value) for key, value in own.items()]
    sets += [
        (("learner",), "scaffold-classification"), (("cost", "model"), "trained"), (("rounds",), 1),
        (("device",), "cpu"), (("data", "name"), "npz"),
        (("data", "root"), str(file)), (("data", "image_px"), 8), (("silos", "count"), 3), (("silos", "approaches"), 1),
        (("traffic", "end_s"), 15.0), (("source", "arrivals_per_s"), 0.5), (("round", "quorum"), 2),
        (("round", "deadline_s"), 10.0),
    ]  # fmt: skip
    return resumable(_run(read_experiment("gaussian", sets)[0]))


def comparison(engines: Sequence[Any], patch: Callable[[Any], None]) -> Command:
    """Return a comparison of two cells; ``patch`` takes the engine of ``engines`` to begin with, then to go on with."""
    sets = [(("rounds",), 1), (("device",), "cpu"), (("traffic", "end_s"), 12.0)]
    sets += [(("source", "arrivals_per_s"), 0.5), (("round", "quorum"), 1), (("round", "deadline_s"), 8.0)]
    learners = f"{WALK},{WALK.replace(':Walk', ':Shifted')}"
    study, _ = plan_of("gaussian", sets, learners=learners, seeds="0")

    def called(engine: Any) -> Callable[[Path], None]:
        def start(folder: Path) -> None:
            patch(engine)
            with progress_display() as progress:
                compare(study, folder, command=["vnetsim", "compare"], progress=progress)
            assert RunDirectory(folder).leftovers() == []

        return start

    return Command(start=called(engines[0]), again=called(engines[1]))
