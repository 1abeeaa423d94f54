"""The aggregation rule of a run: found and made, and what can be wrong with what it returns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from learners.mathematics.robust import AveragingSettings
from vnetsim.errors import InputError, RunError
from vnetsim.learning import AGGREGATOR, LearnerContext
from vnetsim.learning.aggregation import AGGREGATIONS, SYNC, AggregationRule, NextModel, RoundUploads
from vnetsim.learning.device import all_finite
from vnetsim.plugins import short_name
from vnetsim.plugins.checked import checked

MEMORY = "aggregation."
"""Beginning of the names of what a rule remembers in a learner's state."""


def rule_of(context: LearnerContext) -> AggregationRule:
    """Return the rule that ``aggregation.name`` names, made from the table ``aggregation``.

    Raises:
        InputError: there is none of that name.
        RunError: it cannot be made.
    """
    rule = AGGREGATIONS.find(context.rule)() if context.aggregation is None else context.aggregation
    return checked(rule, AGGREGATIONS.name, AggregationRule)  # type: ignore[no-any-return]


def misfit_rule(rule: AggregationRule, settings: AveragingSettings) -> InputError:
    """Return the error for a rule that reads single uploads where a median of them is wanted."""
    return InputError(
        f"learning.aggregation: '{settings.aggregation}' makes one model of a round's uploads, and aggregation.name = "
        f"'{rule.name}' takes them one by one; leave it at 'mean', or aggregation.name at 'sync'."
    )


def refuse_what_needs_averaging(context: LearnerContext, learner: str, setting: str) -> None:
    """Refuse a rule, or several aggregators, for a learner whose neighbours mix because of a setting.

    Raises:
        InputError: it was asked for one of them.
    """
    why = f"an RSU that averages, and the neighbours of {learner} mix their models ({setting})"
    if context.rule != SYNC:
        raise InputError(f"aggregation.name: '{short_name(context.rule)}' is for {why}; leave it at '{SYNC}'.")
    if context.aggregators != (AGGREGATOR,):
        raise InputError(f"topology.kind: several aggregators are for {why}; leave it at '{AGGREGATOR}'.")


def shares_of(made: NextModel, given: RoundUploads, sent: Mapping[str, Tensor], *, name: str, when: str) -> list[float]:
    """Return what each upload counts, summing to 1 or all 0, once all that a rule returned is what it may return.

    Args:
        made: what it returned.
        given: what it was given.
        sent: tensors of an upload, by name.
        name: of the rule.
        when: in words.

    Raises:
        RunError: naming rule, round and tensor.
    """
    problem = _problem(made, given, sent)
    if problem:
        raise RunError(f"aggregation rule '{name}' failed in aggregate {when}: {problem}.")
    shares = [float(share) for share in made.shares]
    total = math.fsum(shares)
    # what sums to 1 but for rounding stays as it is
    return shares if total == 0 or abs(total - 1) <= 1e-6 else [share / total for share in shares]


def _problem(made: NextModel, given: RoundUploads, sent: Mapping[str, Tensor]) -> str:
    """Return what is wrong, empty for nothing."""
    if made.state and made.state.keys() != sent.keys():
        name = min(made.state.keys() ^ sent.keys())
        return f"its model lacks tensor '{name}'" if name in sent else f"no upload has the tensor '{name}' of its model"
    found = [_tensor_problem(f"'{name}' of its model", made.state[name], given.model[name]) for name in made.state]
    found += [_tensor_problem(f"'{name}' of its memory", tensor, None) for name, tensor in made.memory.items()]
    return next(filter(None, found), "") or _values_problem(made) or _shares_problem(made, len(given.uploads))


def _tensor_problem(words: str, tensor: Any, like: Tensor | None) -> str:
    if not isinstance(tensor, Tensor):
        return f"{words} is a {type(tensor).__name__}, expected a tensor"
    if like is not None and tensor.shape != like.shape:
        return f"{words} has shape {tuple(tensor.shape)}, expected {tuple(like.shape)}"
    if like is not None and tensor.dtype != like.dtype:
        return f"{words} is of type {tensor.dtype}, expected {like.dtype}"
    return ""


def _values_problem(made: NextModel) -> str:
    tensors = {f"'{name}' of its model": tensor for name, tensor in made.state.items()}
    tensors |= {f"'{name}' of its memory": tensor for name, tensor in made.memory.items()}
    if all_finite([tensors.values()])[0]:
        return ""
    bad = next(words for words, tensor in tensors.items() if not tensor.isfinite().all())
    return f"{bad} has values that are not finite"


def _shares_problem(made: NextModel, count: int) -> str:
    if len(made.shares) != count:
        return f"it returned {len(made.shares)} shares for {count} uploads"
    bad = [share for share in made.shares if not (math.isfinite(share) and share >= 0)]
    return f"a share of an upload is {bad[0]}, expected a finite number of at least 0" if bad else ""
