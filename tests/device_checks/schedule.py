"""Who took part in which round of a recorded run, as one small file, and the same rounds learned again from it.

The file holds what a learner is told of the simulation and nothing else, so that neither SUMO nor the tables are needed
where it is replayed. ``exported`` makes it of a run directory and needs all of vnetsim; all else needs the learners.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from vnetsim.blur import Camera
from vnetsim.experiment import BlurSettings, DataSettings, ExchangeSettings
from vnetsim.learning import Learner, LearnerContext, Participant
from vnetsim.random_streams import Streams

FORMAT = 1
COLUMNS = ("vehicle_id", "rsu_id", "silo", "base_round", "speed_mps", "level_px")
"""Of a participant, in the order in which they stand in the file."""
PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def exported(run: Path) -> dict[str, Any]:
    """Return the schedule of a finished run directory.

    Raises:
        ValueError: the run's learner exchanges models between vehicles, which the file does not hold, or has a file of
            its own.
    """
    import polars as pl  # noqa: PLC0415 - not there on a bare machine

    from vnetsim.learning.registry import find_learner  # noqa: PLC0415
    from vnetsim.scenario.settings_file import load_experiment, read_toml, to_plain  # noqa: PLC0415
    from vnetsim.storage.run_directory import RunDirectory  # noqa: PLC0415

    folder = RunDirectory(run)
    if folder.manifest()["status"] != "finished":
        raise ValueError(f"{run}: has not finished; go on with it first")
    experiment = load_experiment(str(run), [], find_learner=find_learner)
    if folder.has("exchanges"):
        raise ValueError(f"{run}: its vehicles exchange models; only rounds without exchange can be exported")
    if experiment.learner not in registered():
        raise ValueError(f"{run}: its learner {experiment.learner} is none of this repository's")
    committed = folder.read("participations").filter(pl.col("outcome") == "committed").sort("participation")
    rounds = folder.read("rounds").sort("round")["round"].to_list()
    by_round: dict[int, list[list[object]]] = {round_: [] for round_ in rounds}
    for row in committed.iter_rows(named=True):
        by_round[row["round"]].append([row[column] for column in COLUMNS])
    data = dataclasses.replace(experiment.data, root="", download=False)
    return {
        "format": FORMAT,
        "scenario": Path(read_toml(run / "experiment.toml")["scenario"]).name,
        "learner": experiment.learner,
        "learning": dict(experiment.learning),
        "seed": experiment.seed,
        "rounds": experiment.rounds,
        "silos": experiment.silos.count,
        "approaches": experiment.silos.approaches,
        "max_staleness": experiment.round.max_staleness,
        "evaluate_every": experiment.evaluate_every,
        "data": to_plain(data),
        "blur": to_plain(experiment.blur),
        "camera": to_plain(experiment.camera),
        "exchange": to_plain(experiment.exchange),
        "columns": list(COLUMNS),
        "participants": [by_round[round_] for round_ in rounds],
    }


def written(schedule: Mapping[str, Any]) -> str:
    """Return a schedule as text, a round a line."""
    rounds = ",\n".join(json.dumps(row, separators=(",", ":")) for row in schedule["participants"])
    head = json.dumps({key: value for key, value in schedule.items() if key != "participants"}, indent=1)
    return f'{head[:-2]},\n "participants": [\n{rounds}\n]}}\n'


def read(path: Path) -> dict[str, Any]:
    """Return the schedule in a file.

    Raises:
        ValueError: it is no schedule of this version.
    """
    schedule: dict[str, Any] = json.loads(path.read_text())
    if schedule.get("format") != FORMAT or tuple(schedule.get("columns", ())) != COLUMNS:
        raise ValueError(f"{path}: no schedule of this version; export it again")
    return schedule


def registered() -> dict[str, str]:
    """Return the learners of this repository: module and class by name; nothing has to be installed."""
    learners: dict[str, str] = tomllib.loads(PYPROJECT.read_text())["project"]["entry-points"]["vnetsim.learners"]
    return learners


def learner_class(name: str) -> Any:
    """Return the class of one of this repository's learners."""
    module, _, attribute = registered()[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def context_of(schedule: Mapping[str, Any], device: str, data: Mapping[str, Any], *, seed: int) -> LearnerContext:
    """Return what the schedule's learner is built from, with other data settings where ``data`` has some."""
    return LearnerContext(
        streams=Streams(seed=seed).child("learner"),
        device=device,
        rounds=schedule["rounds"],
        silos=schedule["silos"],
        approaches=schedule["approaches"],
        max_staleness=schedule["max_staleness"],
        data=DataSettings(**(schedule["data"] | dict(data))),
        blur=BlurSettings(**schedule["blur"]),
        camera=Camera(**schedule["camera"]),
        exchange=ExchangeSettings(**schedule["exchange"]),
    )


def participants(schedule: Mapping[str, Any], round_: int) -> list[Participant]:
    """Return who commits to a round, in the order of the simulation."""
    return [
        Participant(round=round_, **dict(zip(COLUMNS, row, strict=True))) for row in schedule["participants"][round_]
    ]


def create(
    schedule: Mapping[str, Any],
    device: str,
    *,
    seed: int | None = None,
    data: Mapping[str, Any] | None = None,
    learner: str = "",
    learning: Mapping[str, Any] | None = None,
) -> Learner:
    """Return the schedule's learner, untrained; with another seed, data or settings where they are given.

    Args:
        schedule: see ``exported``.
        device: where it learns.
        seed: of initial model, silos and draws; the recorded run's by default.
        data: settings of ``vnetsim.experiment.DataSettings`` to change.
        learner: another of the same task, by name; it then brings its own defaults.
        learning: the learner's settings to change.
    """
    kind = learner_class(learner or schedule["learner"])
    own = {} if learner else schedule["learning"]
    seed = schedule["seed"] if seed is None else seed
    made: Learner = kind.create(
        context_of(schedule, device, data or {}, seed=seed), kind.Settings(**(own | dict(learning or {})))
    )
    return made


def replay(
    schedule: Mapping[str, Any], learner: Learner, *, first: int = 0, evaluate: Callable[[int], bool] | None = None
) -> Iterator[tuple[int, dict[str, float]]]:
    """Learn the rounds of a schedule again, and after each yield its number and figures.

    Args:
        schedule: see ``exported``.
        learner: see ``create``; its state is that before round ``first``.
        first: the round to go on with.
        evaluate: whether to evaluate after a round; by default as the recorded run did.
    """
    every, last = schedule["evaluate_every"], len(schedule["participants"]) - 1
    due = evaluate or (lambda round_: (round_ + 1) % every == 0)
    for round_ in range(first, last + 1):
        joined = participants(schedule, round_)
        updates = list(learner.train(joined)) if joined else []
        figures = dict(learner.aggregate([update for update in updates if update.finite]).metrics)
        if due(round_) or round_ == last:
            figures |= learner.evaluate(final=round_ == last)
        yield round_, figures
