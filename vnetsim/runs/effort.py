"""What a run costs at least, reckoned from its settings before it starts: a slip of a zero is not found tomorrow.

The speeds are faster than what was measured on any machine here, so what is called out of all proportion is.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vnetsim.errors import InputError, RunError
from vnetsim.experiment import Experiment
from vnetsim.learning.kinds import DATA_SETS
from vnetsim.learning.registry import find_learner
from vnetsim.scenario.kinds import kind_of
from vnetsim.scenario.settings_file import structure
from vnetsim.scenario.sources import TRAFFIC_SOURCES
from vnetsim.xml_files import NotWellFormedError, UnreadableError, XmlFile

MOST_S = 86_400.0
"""A run that takes longer than a day even so is asked about."""

_VEHICLE_S, _VEHICLE_BYTES = 3e-5, 1000  # of the Gaussian model: one coverage window, recorded
_EVENT_S = 1e-5  # one step of a transfer
_IMAGE_S = 1e-5  # drawn, or read from a file
_TRAINED_S = 2e-6  # one image of one optimizer step, on a fast GPU
_EVALUATED_S = 2e-7  # one test image, without gradients, in large batches
_SUMO_STEP_S = 5e-5  # one step of SUMO with hardly a vehicle, read
_ROUND_S = 1e-3  # aggregation, checkpoint and tables
_MODEL_BYTES = 1e5  # of the smallest network
_DWELL_S = 60.0  # of a vehicle in coverage, where only the simulator knows it
_IMAGE_BYTES = 28 * 28  # of a data set that does not say


@dataclass(frozen=True, kw_only=True)
class Effort:
    """The least that a run takes, with the settings that make it so.

    Args:
        events: of the event loop.
        memory_bytes: held at once.
        time_s: of this machine.
        most: the settings that the time comes from, in words.
        largest: those that the memory comes from.
    """

    events: float
    memory_bytes: float
    time_s: float
    most: str
    largest: str


def effort_of(experiment: Experiment, *, learns: bool) -> Effort:
    """Return what an experiment costs at least.

    Args:
        experiment: its settings.
        learns: whether rounds are run, or the traffic alone is recorded.
    """
    rounds: float = experiment.rounds if learns else 0
    policy, gaussian = experiment.round, experiment.gaussian
    vehicles, dwell_s, played = 0.0, _DWELL_S, "gaussian.arrivals_per_s x gaussian.duration_s"
    if TRAFFIC_SOURCES.built_in.get(experiment.scenario):  # the model of the settings ``gaussian``
        dwell_s = 2 * gaussian.range_m / (gaussian.v_max_kmh / 3.6)
        simulated_s = gaussian.duration_s
        if learns:
            round_s = min(policy.deadline_s, policy.quorum / gaussian.arrivals_per_s + dwell_s)
            simulated_s, played = rounds * round_s, "gaussian.arrivals_per_s x rounds x their length"
            if not experiment.traffic.repeat:
                simulated_s = min(simulated_s, gaussian.duration_s)
        vehicles = gaussian.arrivals_per_s * simulated_s
    rounds = min(rounds, _rounds_to_the_end(experiment))
    transfers = rounds * policy.invited
    steps = transfers * min(policy.deadline_s, dwell_s) / experiment.link.update_s
    images = (experiment.data.train_images + experiment.data.test_images) if learns else 0
    image_bytes = (experiment.data.image_px**2 * 3 or _image_bytes(experiment.data.name)) if images else 0
    learner = find_learner(experiment.learner) if learns else None
    learning = structure(experiment.learning, learner.Settings, "", ("learning",)) if learner else None
    trained = rounds * policy.quorum * _number(learning, "steps") * _number(learning, "batch")
    evaluated = rounds / experiment.evaluate_every * experiment.data.test_images
    sumo_s = _sumo_s(experiment, rounds if learns else math.inf)
    sumo_steps = sumo_s / _step_s(experiment.scenario) if sumo_s else 0.0
    times = {
        played: vehicles * _VEHICLE_S,
        "rounds x round.invited / link.update_s": steps * _EVENT_S,
        "data.train_images and data.test_images": images * _IMAGE_S,
        "rounds x round.quorum x learning.steps x learning.batch": trained * _TRAINED_S,
        "rounds / evaluate_every x data.test_images": evaluated * _EVALUATED_S,
        "rounds": rounds * _ROUND_S,
        "traffic.end_s and traffic.warmup_s": sumo_steps * _SUMO_STEP_S,
    }
    memory = {
        played: vehicles * _VEHICLE_BYTES if learns else 0.0,
        "data.train_images and data.test_images": float(images * image_bytes),
        "round.quorum": policy.quorum * _MODEL_BYTES if learns else 0.0,
        "silos.count, each with a model of its own": _silos_that_learn(experiment, learner, learning, rounds)
        * _MODEL_BYTES,
    }
    return Effort(
        events=vehicles + steps,
        memory_bytes=sum(memory.values()),
        time_s=sum(times.values()),
        most=max(times, key=times.__getitem__),
        largest=max(memory, key=memory.__getitem__),
    )


def _sumo_s(experiment: Experiment, rounds: float) -> float:
    """Return the time that SUMO simulates, as far as the settings tell (s): of a run no longer than its rounds."""
    traffic = experiment.traffic
    with contextlib.suppress(InputError):  # of a scenario at fault something else will tell
        kind = kind_of(experiment.scenario)
        if kind is not None and kind.runs_program:
            left_s = 0.0 if traffic.end_s is None else traffic.end_s - (traffic.begin_s or 0.0) - traffic.warmup_s
            return traffic.warmup_s + min(left_s, rounds * experiment.round.deadline_s)
    return 0.0


def _step_s(scenario: str) -> float:
    """Return the step length that a SUMO configuration names (s), 1 s where it names none, as SUMO takes it."""
    step_s = 1.0

    def start(name: str, attributes: Mapping[str, str]) -> None:
        nonlocal step_s
        if name == "step-length":
            with contextlib.suppress(KeyError, ValueError):
                step_s = float(attributes["value"])

    if Path(scenario).suffix == ".sumocfg":
        with contextlib.suppress(InputError, NotWellFormedError, UnreadableError):
            XmlFile(Path(scenario), start).read()
    return step_s if 0.001 <= step_s <= 1e6 else 1.0


def _silos_that_learn(experiment: Experiment, learner: Any, settings: Any, rounds: float) -> float:
    """Return the silos of which a model is kept: of those drawn for each commit, as many as are expected to differ."""
    commits = rounds * experiment.round.quorum
    if not commits:
        return 0.0
    keeps = getattr(learner, "keeps_models_of_silos", None)
    if keeps is None:
        return 0.0
    count = experiment.silos.count
    return -count * math.expm1(-commits / count) if keeps(settings, experiment.exchange.topology) else 0.0


def _rounds_to_the_end(experiment: Experiment) -> float:
    """Return the fewest rounds that fill the traffic, each open for its whole time; infinite where it does not end."""
    traffic, gaussian = experiment.traffic, TRAFFIC_SOURCES.built_in.get(experiment.scenario)
    end_s = experiment.gaussian.duration_s if gaussian else traffic.end_s
    if traffic.repeat or end_s is None:
        return math.inf
    return math.ceil((end_s - (traffic.begin_s or 0.0)) / experiment.round.deadline_s)


def _image_bytes(name: str) -> int:
    """Return what an image of a data set takes by default; of a set that cannot be had something else will tell."""
    if name not in DATA_SETS.names():  # code of a file is not run for an estimate
        return _IMAGE_BYTES
    with contextlib.suppress(RunError):
        return int(getattr(DATA_SETS.find(name), "image_bytes", _IMAGE_BYTES))
    return _IMAGE_BYTES


def _number(settings: Any, name: str) -> float:
    """Return a setting of a learner that may know it or not."""
    value = getattr(settings, name, None)
    return value if isinstance(value, int | float) else 1.0


def refuse_out_of_proportion(experiments: Sequence[Experiment], *, learns: bool, yes: bool) -> None:
    """Refuse runs that take more than a day, or more memory than there is, unless the user means it.

    Args:
        experiments: all that one command runs, one after the other.
        learns: see ``effort_of``.
        yes: whether the user has said so.

    Raises:
        InputError: with the estimate, and the settings it comes from.
    """
    if yes:
        return
    efforts = [effort_of(one, learns=learns) for one in experiments]
    time_s, events = sum(one.time_s for one in efforts), sum(one.events for one in efforts)
    greedy = max(efforts, key=lambda one: one.memory_bytes)
    there = _memory_bytes()
    if time_s <= MOST_S and greedy.memory_bytes <= there:
        return
    why = max(efforts, key=lambda one: one.time_s).most if time_s > MOST_S else greedy.largest
    needed_gb = greedy.memory_bytes / 1e9
    raise InputError(
        f"This would take at least {_time(time_s)}, {events:.2g} events and {needed_gb:.2g} GB of memory "
        f"(there are {there / 1e9:.2g} GB), by {why}; add --yes if it is meant."
    )


def _time(time_s: float) -> str:
    days = time_s / 86_400
    return f"{days:.2g} days" if days >= 1 else f"{time_s / 3600:.2g} hours"


def _memory_bytes() -> float:
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
