"""Who takes part in which round of an experiment, as one file, and the same rounds learned from it.

The file holds what a learner is told of the simulation and nothing else, so that neither SUMO nor the tables are needed
where it is replayed: the learners are. ``device_checks.recording`` makes it.
"""

from __future__ import annotations

import importlib
import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vnetsim.experiment import BlurSettings, DataSettings, ExchangeSettings
from vnetsim.experiment.camera import Camera
from vnetsim.learning import AGGREGATOR, Learner, LearnerContext, ModelKey, Participant, Peer
from vnetsim.random_streams import Streams

FORMAT = 2
NEEDED = ("vehicle_id", "rsu_id", "silo", "base_round", "speed_mps", "level_px")
COLUMNS = (*NEEDED, "neighbours", "download_s", "train_s", "upload_s", "work_share", "peers")
"""Of a participant, in the order in which they stand in a file; one may lack those that are not ``NEEDED``. Peers are
places in the file's own list of them."""
PEER_COLUMNS = ("vehicle_id", "silo", "speed_mps", "level_px", "neighbours")
PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def written(schedule: Mapping[str, Any]) -> str:
    """Return a schedule as text, a round a line and a peer a line."""
    long = ("participants", "peers")
    head = json.dumps({key: value for key, value in schedule.items() if key not in long}, indent=1)
    lines = {key: ",\n".join(json.dumps(row, separators=(",", ":")) for row in schedule.get(key, ())) for key in long}
    lists = ",\n".join(f' "{key}": [\n{text}\n]' for key, text in lines.items())
    return f"{head[:-2]},\n{lists}}}\n"


def read(path: Path) -> dict[str, Any]:
    """Return the schedule in a file.

    Raises:
        ValueError: it is no schedule of this version.
    """
    schedule: dict[str, Any] = json.loads(path.read_text())
    columns = tuple(schedule.get("columns", ()))
    if schedule.get("format") != FORMAT or columns[: len(NEEDED)] != NEEDED or not set(columns) <= set(COLUMNS):
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
    joined = []
    for row in schedule["participants"][round_]:
        values = dict(zip(schedule["columns"], row, strict=True))
        peers = [schedule["peers"][place] for place in values.pop("peers", ())]
        told = tuple(Peer(**dict(zip(PEER_COLUMNS, peer, strict=True))) for peer in peers)
        base = ModelKey(AGGREGATOR, values.pop("base_round"))
        joined.append(Participant(round=round_, base=base, peers=told, **values))
    return joined


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
        schedule: see ``read``.
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


def replay(schedule: Mapping[str, Any], learner: Learner, *, first: int = 0) -> Iterator[tuple[int, dict[str, float]]]:
    """Learn the rounds of a schedule again, and after each yield its number and figures; nothing is evaluated.

    Args:
        schedule: see ``read``.
        learner: see ``create``; its state is that before round ``first``.
        first: the round to go on with.
    """
    for round_ in range(first, len(schedule["participants"])):
        joined = participants(schedule, round_)
        updates = list(learner.train(joined)) if joined else []
        yield round_, dict(learner.aggregate([update for update in updates if update.finite]).metrics)
