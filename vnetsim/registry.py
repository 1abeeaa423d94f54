"""Learners by name: the entry points of group ``vnetsim.learners``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any

from vnetsim.errors import RunError, unknown_name
from vnetsim.learning import Learner

GROUP = "vnetsim.learners"


@dataclass(frozen=True, kw_only=True)
class About:
    """A learner's optional class attributes; see ``vnetsim.learning.Learner``.

    Args:
        payload: what a visit moves over the radio links, in words.
        equations: the equations it implements, one a line.
        defaults: experiment settings that suit it, by dotted key.
    """

    payload: str = ""
    equations: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)


def about(learner: type[Learner]) -> About:
    """Return the optional class attributes of a learner, those it lacks empty."""
    given = {
        field.name: getattr(learner, field.name) for field in dataclasses.fields(About) if hasattr(learner, field.name)
    }
    return About(**given)


def learner_names() -> list[str]:
    """Return the names of all installed learners, sorted. Imports none of them."""
    return sorted({entry.name for entry in entry_points(group=GROUP)})


def setting_names(learner: str) -> set[str]:
    """Return the names of a learner's settings; see ``find_learner`` for errors."""
    return {field.name for field in dataclasses.fields(find_learner(learner).Settings)}


def find_learner(name: str) -> type[Learner]:
    """Return the learner class called ``name``.

    Raises:
        InputError: no such learner; the message lists those there are.
        RunError: it is installed but cannot be imported.
    """
    matches = [entry for entry in entry_points(group=GROUP) if entry.name == name]
    if not matches:
        raise unknown_name("learner", name, learner_names())
    try:
        found: Any = matches[0].load()
    except (ImportError, AttributeError) as error:
        raise RunError(f"learner '{name}' ({matches[0].value}) cannot be imported: {error}.") from error
    return found  # type: ignore[no-any-return]
