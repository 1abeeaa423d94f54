"""Payload and work of one learner for the participations of another, so that the same vehicles commit.

Timing never depends on weights: payload and work alone decide who commits. A run whose ``schedule`` names another
learner makes that one too, asks it for its costs, and lets it go again; it trains nothing.
"""

from __future__ import annotations

import dataclasses

from vnetsim.errors import InputError
from vnetsim.experiment import ScheduleSettings
from vnetsim.learning import Cost, Exchange, Learner, LearnerContext
from vnetsim.learning.aggregation import SYNC
from vnetsim.learning.registry import find_learner, made_learner
from vnetsim.scenario.chosen import Chosen
from vnetsim.scenario.settings_file import structure


def scheduled(schedule: ScheduleSettings, learner: type[Learner]) -> Chosen | None:
    """Return the learner that gives the schedule; None where the run's own does.

    Args:
        schedule: as the user gave it.
        learner: the run's own, whose task it must share.

    Raises:
        InputError: an unknown learner or setting, or a learner of another task.
    """
    if not schedule.learner:
        return None
    try:
        kind = find_learner(schedule.learner)
    except InputError as error:
        raise InputError(f"schedule.learner: {error}") from None
    if kind.task != learner.task:
        raise InputError(
            f"schedule.learner: {kind.name} learns another task ({kind.task}) than {learner.name} ({learner.task})."
        )
    return Chosen(found=kind, settings=structure(schedule.learning, kind.Settings, "", ("schedule", "learning")))


def costs_of(schedule: Chosen | None, context: LearnerContext, learner: Learner) -> dict[int, Cost]:
    """Return payload and work by silo as ``schedule`` wants them; empty when they are the learner's own.

    Args:
        schedule: the learner that gives them; see ``scheduled``.
        context: what the run's learner was made from.
        learner: the run's own.

    Raises:
        InputError: what the two exchange between vehicles is not of the same kind.
        RunError: the schedule's learner failed.
    """
    if schedule is None:
        return {}
    its_own = dataclasses.replace(context, rule=SYNC, aggregation=None)
    reference = made_learner(schedule.found, its_own, schedule.settings)
    costs = {silo: reference.cost(silo) for silo in range(context.silos)}
    own = _manner(learner.cost(0).exchange)
    given = _manner(costs[0].exchange)
    if own != given:
        raise InputError(
            f"schedule.learner: {schedule.found.name} {given}, but {learner.name} {own}; "
            "these two cannot have one schedule."
        )
    return costs


def _manner(exchange: Exchange | None) -> str:
    """Return in words all that a learner may rely on about who its peers are and when it has them."""
    if exchange is None:
        return "exchanges nothing between vehicles"
    when = "before" if exchange.before_training else "after"
    both = ", in both directions or not at all" if exchange.mutual else ""
    back = ", and takes something back" if exchange.work_flop > 0 or exchange.return_bytes > 0 else ""
    return f"exchanges with neighbours {when} training{both}{back}"
