"""Conduct of vehicles: what hostile or lazy ones send in place of the change of an honest local training.

Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Protocol

from vnetsim.errors import InputError
from vnetsim.experiment import DEFAULT_NAMES, Experiment, HostileSettings
from vnetsim.plugins import Kind
from vnetsim.random_streams import Streams

HONEST = DEFAULT_NAMES["conduct"]
"""The conduct of a run that names none."""

Change = Mapping[str, Any]
"""The change of a local training, y - x: trained parameters by name; not to be changed in place."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Hostile:
    """A hostile vehicle of a round.

    Args:
        vehicle_id: the vehicle.
        change: what an honest vehicle with its data would send.
        memory: what its conduct returned as ``Sends.memory`` at the last upload of its silo; empty before the first.
        draws: a ``torch.Generator`` on the CPU, seeded for vehicle and round.
    """

    vehicle_id: str
    change: Change
    memory: Mapping[str, Any]
    draws: Any


@dataclass(frozen=True, kw_only=True, eq=False)
class HostileRound:
    """The hostile vehicles of a round, and what they are assumed to know if they coordinate.

    Args:
        hostile: the hostile vehicles, in order of arrival; at least one.
        honest: changes of the round's honest vehicles, before their codec; perhaps none.
    """

    hostile: Sequence[Hostile]
    honest: Sequence[Change]


@dataclass(frozen=True, kw_only=True, eq=False)
class Sends:
    """The ``change`` that a hostile vehicle sends, with names, shapes and types of its own, and its ``memory``."""

    change: Change
    memory: Mapping[str, Any] = field(default_factory=dict)


class Conduct(Protocol):
    """What hostile vehicles do: a frozen keyword-only dataclass; fields: settings of ``conduct``.

    Class attributes: ``name``; ``source``, a citation; ``equations``, one a line; ``flips_labels``, whether they train
    on label C - 1 - y in place of y, of C classes.
    """

    name: ClassVar[str]
    source: ClassVar[str]
    equations: ClassVar[tuple[str, ...]]
    flips_labels: ClassVar[bool]

    def send(self, given: HostileRound) -> Sequence[Sends]:
        """Return what each vehicle of ``given.hostile`` sends, in their order."""
        ...


CONDUCTS = Kind(
    name="conduct",
    group="vnetsim.conducts",
    protocol=Conduct,
    key="conduct.name",
    table="conduct",
    default=HONEST,
    package="learners",
    built_in={
        "honest": "learners.conducts:Honest",
        "label-flip": "learners.conducts:LabelFlip",
        "sign-flip": "learners.conducts:SignFlip",
        "scaling": "learners.conducts:Scaling",
        "noise": "learners.conducts:Noise",
        "free-rider": "learners.conducts:FreeRider",
        "replay": "learners.conducts:Replay",
        "alie": "learners.conducts:Alie",
        "ipm": "learners.conducts:Ipm",
    },
)


def is_hostile(vehicle_id: str, hostile: HostileSettings, streams: Streams) -> bool:
    """Return whether a vehicle is hostile: its id equals a name or fits a pattern, or chance makes it one of the share.

    A larger share keeps the hostile vehicles of a smaller one. ``streams`` is the learner's branch.
    """
    if any(vehicle_id == name or fnmatchcase(vehicle_id, name) for name in hostile.vehicles):
        return True
    return hostile.share > 0 and float(streams.generator("hostile", vehicle_id).random()) < hostile.share


def refuse_hostile_without_conduct(experiment: Experiment) -> None:
    """Raise InputError if the settings make vehicles hostile, but the conduct is ``honest``."""
    hostile, conduct = experiment.hostile, experiment.conduct.get("name", HONEST)
    if conduct == HONEST and (hostile.share > 0 or hostile.vehicles):
        key = "hostile.share" if hostile.share > 0 else "hostile.vehicles"
        names = ", ".join(sorted(CONDUCTS.built_in.keys() - {HONEST}))
        raise InputError(f"{key}: hostile vehicles need conduct.name, what they do: {names}, or path/to/file.py:CLASS.")
