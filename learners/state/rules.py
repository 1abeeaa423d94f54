"""The aggregation rule of a run: its creation, and checks of what it returns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from vnetsim.errors import InputError, NotFiniteError, RunError
from vnetsim.learning import AGGREGATOR, LearnerContext
from vnetsim.learning.aggregation import AGGREGATIONS, SYNC, AggregationRule, NextModel, RoundUploads
from vnetsim.learning.device import all_finite
from vnetsim.plugins import short_name

MEMORY = "aggregation."  # prefix of a rule's memory in a learner's state
NOT_FINITE = "has values that are not finite"


def rule_of(context: LearnerContext) -> AggregationRule:
    """Return the context's aggregation rule, or a new one by its name; InputError if unknown, RunError if broken."""
    rule: AggregationRule = AGGREGATIONS.find(context.rule)() if context.aggregation is None else context.aggregation
    return rule


def refuse_what_needs_averaging(context: LearnerContext, learner: str, setting: str) -> None:
    """Raise InputError for a rule other than ``sync``, or several aggregators; it names ``learner``, ``setting``."""
    why = f"an RSU that averages, and the neighbours of {learner} mix their models ({setting})"
    if context.rule != SYNC:
        raise InputError(f"aggregation.name: '{short_name(context.rule)}' is for {why}; leave it at '{SYNC}'.")
    if context.aggregators != (AGGREGATOR,):
        raise InputError(f"topology.kind: several aggregators are for {why}; leave it at '{AGGREGATOR}'.")


def shares_of(made: NextModel, given: RoundUploads, sent: Mapping[str, Tensor], *, name: str, when: str) -> list[float]:
    """Check what a rule ``made`` of ``given``; return its shares of the uploads, scaled to the sum 1, or all 0.

    RunError if it is invalid or its model's names are not ``sent``'s, NotFiniteError for values that are not finite.
    """
    problem = f"it returned a {type(made).__name__}, expected a NextModel"
    if isinstance(made, NextModel):
        problem = _describe_bad_result(made, given, sent)
    if problem:
        fault = NotFiniteError if problem.endswith(NOT_FINITE) else RunError
        raise fault(f"aggregation rule '{name}' failed in aggregate {when}: {problem}.")
    shares = [float(share) for share in made.shares]
    total = math.fsum(shares)
    # shares that sum to 1 within rounding are not changed
    return shares if total == 0 or abs(total - 1) <= 1e-6 else [share / total for share in shares]


def describe_bad_tensor(tensors: Mapping[str, Any], likes: Mapping[str, Tensor]) -> str:
    """Return what is wrong with a plug-in's tensors, keyed by their names in messages; empty if nothing is.

    Each must have shape and type of its namesake in ``likes``, if any. For NaN or inf the text ends with NOT_FINITE.
    """
    for words, tensor in tensors.items():
        like = likes.get(words, tensor)
        if not isinstance(tensor, Tensor):
            return f"{words} is a {type(tensor).__name__}, expected a tensor"
        if (tensor.shape, tensor.dtype) != (like.shape, like.dtype):
            has, wanted = (f"{one.dtype} of shape {tuple(one.shape)}" for one in (tensor, like))
            return f"{words} is {has}, expected {wanted}"
    if not all_finite([tensors.values()])[0]:
        bad = next(words for words, tensor in tensors.items() if not tensor.isfinite().all())
        return f"{bad} {NOT_FINITE}"
    return ""


def _describe_bad_result(made: NextModel, given: RoundUploads, sent: Mapping[str, Tensor]) -> str:
    """Return what is wrong with a rule's model, memory or shares, for a message; empty if nothing is."""
    if made.state and made.state.keys() != sent.keys():
        name = min(made.state.keys() ^ sent.keys())
        return f"its model lacks tensor '{name}'" if name in sent else f"no upload has the tensor '{name}' of its model"
    likes = {f"'{name}' of its model": given.model[name] for name in made.state}
    tensors = {f"'{name}' of its model": tensor for name, tensor in made.state.items()}
    tensors |= {f"'{name}' of its memory": tensor for name, tensor in made.memory.items()}
    if problem := describe_bad_tensor(tensors, likes):
        return problem
    if len(made.shares) != len(given.uploads):
        return f"it returned {len(made.shares)} shares for {len(given.uploads)} uploads"
    wrong = [share for share in made.shares if not (math.isfinite(share) and share >= 0)]
    return f"a share of an upload is {wrong[0]}, expected a finite number of at least 0" if wrong else ""
