"""Checks of what a learner returns; errors name learner, round and vehicle.

Anything that breaks the protocol of ``vnetsim.learning`` ends the run with one line, before it reaches the record or
the model. The exception: an update with values that are not finite is rejected, and the run continues.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from vnetsim.errors import NotFiniteError, RunError
from vnetsim.learning import AGGREGATOR, Aggregation, Cost, Learner, Participant, Update
from vnetsim.learning.device import all_finite, out_of_memory
from vnetsim.learning.kinds import LEARNERS
from vnetsim.plugins import plugin_errors
from vnetsim.plugins.results import NOT_NEGATIVE, number_of, require_type

SUM_TOLERANCE = 1e-6
"""How far the sum of a round's weights may be from 1, by the rounding of single precision."""

Shapes = Mapping[str, tuple[int, ...]]
"""Shapes of tensors by name."""


def model_shapes(state: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors ``model.*`` or ``NAME/model.*`` in a learner's state, by their name ``*``."""
    named = {name.rpartition("/")[2]: tuple(tensor.shape) for name, tensor in state.items()}
    return {name.removeprefix("model."): shape for name, shape in named.items() if name.startswith("model.")}


def train_checked(learner: Learner, participants: Sequence[Participant], model: Shapes) -> list[Update]:
    """Let the learner train the participants (at least one), and return their updates in order.

    An update has ``finite = False`` in the result if a value or the loss is not finite. RunError, with round and
    vehicle, unless all updates have the same tensors, with the shapes in ``model`` or, if they are not in it, shapes
    that agree between updates in all but the first dimension.
    """
    when = f"in train in round {participants[0].round}"
    try:
        alone = f" at vehicle '{participants[0].vehicle_id}'" if len(participants) == 1 else ""
        with plugin_errors(LEARNERS.name, learner.name, f"{when}{alone}"):
            updates = list(learner.train(participants))
    except RunError as error:
        if not out_of_memory(error) or "learning.batch" in str(error):
            raise
        raise RunError(f"{error} Lower learning.batch or take a smaller learning.encoder.") from error
    if len(updates) != len(participants):
        raise _make_error(learner, when, f"train returned {len(updates)} updates for {len(participants)} participants")
    for update, participant in zip(updates, participants, strict=True):
        if problem := _update_problem(update, participant, updates[0], model):
            raise _make_error(learner, f"{when} at vehicle '{participant.vehicle_id}'", problem)
    finite = all_finite([list(update.state.values()) if update.finite else [] for update in updates])
    return [
        update if fine and update.finite and math.isfinite(update.loss) else replace(update, finite=False)
        for update, fine in zip(updates, finite, strict=True)
    ]


def _update_problem(update: Any, participant: Participant, first: Update, model: Shapes) -> str:
    """Return in words what is wrong with ``participant``'s update; ``first`` is the first update; empty for nothing."""
    if not isinstance(update, Update):
        return f"it returned {update!r:.80}, expected an Update each"
    if update.participant != participant:
        return f"its update is of vehicle '{update.participant.vehicle_id}'; expected one each, in order"
    if not isinstance(update.state, Mapping) or not _is_number(update.loss):
        return "its update needs a state of tensors by name, and a number as loss"
    if update.state.keys() != first.state.keys():
        names = ", ".join(sorted(update.state.keys() ^ first.state.keys()))
        return f"its update and that of vehicle '{first.participant.vehicle_id}' differ in their tensors: {names}"
    problems = (_tensor_problem(name, tensor, first.state[name], model) for name, tensor in update.state.items())
    return next(filter(None, problems), "")


def _tensor_problem(name: str, tensor: Any, first: Any, model: Shapes) -> str:
    """Return in words what is wrong with a tensor; ``first`` is that of the first update; empty for nothing."""
    if not hasattr(tensor, "shape"):
        return f"'{name}' of its update is a {type(tensor).__name__}, expected a tensor"
    shape, other = tuple(tensor.shape), tuple(first.shape)
    if name in model and shape != model[name]:
        return f"tensor '{name}' of its update has shape {shape}, in the model {model[name]}"
    if name not in model and (len(shape), shape[1:]) != (len(other), other[1:]):
        return f"tensor '{name}' of its update has shape {shape}, that of another vehicle {other}"
    return ""


def aggregate_checked(learner: Learner, updates: Sequence[Update], when: str, into: str = AGGREGATOR) -> Aggregation:
    """Let the learner aggregate ``updates``, all finite, for the aggregator ``into``, and return its checked result.

    RunError, with ``when``, unless it has a weight >= 0 for each update, with the sum 1 or 0, and finite metrics.
    """
    result = learner.aggregate(updates) if into == AGGREGATOR else learner.aggregate(updates, into)
    if not isinstance(result, Aggregation):
        raise _make_error(learner, when, f"it returned {result!r:.80}, expected an Aggregation")
    if len(result.weights) != len(updates):
        raise _make_error(learner, when, f"aggregate returned {len(result.weights)} weights for {len(updates)} updates")
    for update, weight in zip(updates, result.weights, strict=True):
        if not (_is_number(weight) and math.isfinite(weight) and weight >= 0):
            who = f"{when} at vehicle '{update.participant.vehicle_id}'"
            raise _make_error(learner, who, f"its weight is {weight}, expected a finite number of at least 0")
    total = math.fsum(result.weights)
    if total != 0 and abs(total - 1) > SUM_TOLERANCE:
        raise _make_error(learner, when, f"its weights sum to {total:.9g}, expected 1, or 0 where the model is kept")
    exchanges = {f"exchange from '{a}' to '{b}'": value for (a, b), value in result.exchanges.items()}
    finite_metrics(learner, {**result.metrics, **exchanges}, when)
    return result


def finite_metrics(learner: Learner, metrics: Any, when: str) -> dict[str, float]:
    """Return metrics as floats; NotFiniteError for one that is no finite number, RunError if they are no mapping."""
    if not isinstance(metrics, Mapping):
        raise _make_error(learner, when, f"it returned {metrics!r:.80}, expected a mapping of numbers by name")
    for name, value in metrics.items():
        if not (_is_number(value) and math.isfinite(value)):
            problem = f"its '{name}' is {value!r}; what is no finite number is to be left out"
            raise NotFiniteError(f"learner '{learner.name}' failed {when}: {problem}.")
    return {name: float(value) for name, value in metrics.items()}


def cost_of(learner: Learner, silo: int) -> Cost:
    """Return a learner's cost for the data of a silo; RunError unless it is a ``Cost`` of finite numbers >= 0."""
    cost = require_type(learner.cost(silo), Cost, LEARNERS, learner, "cost")
    for size in (cost.download_bytes, cost.upload_bytes, cost.work_flop):
        number_of(size, NOT_NEGATIVE, LEARNERS, learner, "cost")
    return cost


def _is_number(value: Any) -> bool:
    """Return whether ``float`` converts a value, such as a number or a tensor of one element; False for text."""
    try:
        float(value)
    except (TypeError, ValueError, RuntimeError):
        return False
    return not isinstance(value, str)


def _make_error(learner: Learner, when: str, problem: str) -> RunError:
    """Return (not raise) the RunError of a learner that breaks the protocol; ``when`` is as "in train in round 3"."""
    return RunError(f"learner '{learner.name}' failed {when}: {problem}.")
