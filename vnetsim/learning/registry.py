"""Learners by name or by file: entry points of group ``vnetsim.learners``, and ``path/to/file.py:Class``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vnetsim.errors import InputError
from vnetsim.learning import KeepsModels, Learner
from vnetsim.plugins import Kind


@dataclass(frozen=True, kw_only=True)
class About:
    """A learner's optional class attributes; see ``vnetsim.learning.Learner``.

    Args:
        payload: what a participation moves over the radio links, in words.
        equations: the equations it implements, one a line.
        defaults: experiment settings that suit it, by dotted key.
        takes_aggregation_rule: whether it folds uploads by the rule that ``aggregation.name`` names.
    """

    payload: str = ""
    equations: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    takes_aggregation_rule: bool = False


def about(learner: type[Learner]) -> About:
    """Return the optional class attributes of a learner, those it lacks empty."""
    given = {
        field.name: getattr(learner, field.name) for field in dataclasses.fields(About) if hasattr(learner, field.name)
    }
    return About(**given)


def _fault(found: type) -> str:
    for part in ("name", "task", "paper", "payload"):
        if not isinstance(getattr(found, part, ""), str):
            return f"its {part} must be a string."
    if not isinstance(getattr(found, "defaults", {}), Mapping):
        return "its defaults must be a mapping from dotted keys to values."
    return ""


LEARNERS = Kind(
    name="learner",
    group="vnetsim.learners",
    protocol=Learner,
    key="learner",
    table="learning",
    fault=_fault,
    package="learners",
)


def require_several_models(learner: type[Learner], setting: str) -> None:
    """Refuse a learner of one model where a setting wants several; what its own settings rule out ``create`` refuses.

    Raises:
        InputError: it is not ``KeepsModels``.
    """
    if not issubclass(learner, KeepsModels):
        raise InputError(
            f"{setting} needs a learner with a model for each aggregator, and {learner.name} has one for all; see "
            "vnetsim.learning.KeepsModels."
        )
