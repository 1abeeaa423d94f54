"""The schedule of an experiment: its traffic and rounds simulated as a run would, without any training.

    PYTHONPATH=tests python -m device_checks.recording SCENARIO FILE [KEY=VALUE ...]

Timing does not depend on weights, so what a learner is told of a round can be had before anything is learnt. Needs all
of vnetsim; what is made of it (``device_checks.schedule``) does not.
"""

from __future__ import annotations

import dataclasses
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from device_checks.schedule import COLUMNS, FORMAT, PEER_COLUMNS, registered, written
from vnetsim.display import progress_display
from vnetsim.errors import InputError
from vnetsim.experiment import Experiment
from vnetsim.learning import Participant
from vnetsim.learning.aggregation import SYNC
from vnetsim.runs.assembly import assemble
from vnetsim.runs.tables import images_of
from vnetsim.runs.timing import Untrained, refuse_losses
from vnetsim.runs.traffic_recording import opened
from vnetsim.scenario.settings_file import parse_override, read_experiment, to_plain
from vnetsim.simulation.log import RoundResult, RoundSummary
from vnetsim.simulation.loop import simulate
from vnetsim.storage.run_directory import RunDirectory


def export(scenario: str, file: str, *settings: str) -> None:
    """Make the schedule of a scenario, an experiment or a run directory, with settings of the form KEY=VALUE."""
    experiment = read_experiment(scenario, [parse_override(one) for one in settings])[0]
    Path(file).write_text(written(exported(experiment)))


def exported(experiment: Experiment) -> dict[str, Any]:
    """Return the schedule of an experiment, see ``device_checks.schedule``.

    Raises:
        InputError: vehicles are chosen by training losses, rounds are not synchronous, or its learner is none that a
            machine with this repository alone has by its name.
    """
    if experiment.learner not in registered():
        raise InputError(f"learner: {experiment.learner} is none of this repository's.")
    rule = experiment.aggregation.get("name", SYNC)
    if rule != SYNC:
        raise InputError(f"aggregation.name: a schedule holds synchronous rounds, not {rule}.")
    assembly = assemble(experiment)
    refuse_losses(assembly)
    experiment, settings = assembly.experiment, assembly.learner.settings
    learner, costs = assembly.made(assembly.context("cpu"))
    kept = _Kept(learner, costs)
    with (
        progress_display(show=False) as quiet,
        tempfile.TemporaryDirectory() as folder,
        opened(experiment, quiet, RunDirectory(Path(folder))) as traffic,
    ):
        simulate(
            experiment, traffic, kept, assembly.streams,
            plugins=assembly.simulation, images=images_of(learner.describe()),
        )  # fmt: skip
    peers: dict[tuple[Any, ...], int] = {}
    return {
        "format": FORMAT,
        "scenario": Path(experiment.scenario).name,
        "learner": experiment.learner,
        "learning": to_plain(settings),
        "seed": experiment.seed,
        "rounds": experiment.rounds,
        "silos": experiment.silos.count,
        "approaches": experiment.silos.approaches,
        "max_staleness": experiment.round.max_staleness,
        "evaluate_every": experiment.evaluate_every,
        "data": to_plain(dataclasses.replace(experiment.data, root="", download=False)),
        "blur": to_plain(experiment.blur),
        "camera": to_plain(experiment.camera),
        "exchange": to_plain(experiment.exchange),
        "columns": list(COLUMNS),
        "participants": [[_row(one, peers) for one in round_] for round_ in kept.rounds],
        "peers": [list(one) for one in peers],
    }


def _row(participant: Participant, peers: dict[tuple[Any, ...], int]) -> list[Any]:
    """Return the columns of a participant; its peers as places in ``peers``, where new ones are added."""
    found = [tuple(getattr(peer, name) for name in PEER_COLUMNS) for peer in participant.peers]
    places = [peers.setdefault(peer, len(peers)) for peer in found]
    values = {"peers": places, "base_round": participant.base.version}
    return [values[name] if name in values else getattr(participant, name) for name in COLUMNS]


class _Kept(Untrained):
    """Keeps who takes part."""

    rounds: Sequence[Sequence[Participant]] = ()

    def close_round(self, summary: RoundSummary, participants: Sequence[Participant]) -> RoundResult:
        self.rounds = [*self.rounds, participants]
        return super().close_round(summary, participants)


if __name__ == "__main__":
    export(*sys.argv[1:])
