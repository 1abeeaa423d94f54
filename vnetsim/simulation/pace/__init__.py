"""The pace of a round: how many it invites, when it closes, and when it closes at the latest.

A pace is told how a round stands whenever something happened in it, and answers; it changes nothing itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Protocol, runtime_checkable

from vnetsim.experiment import RoundSettings
from vnetsim.plugins import Kind
from vnetsim.setting_checks import Share, Within
from vnetsim.simulation.selection.candidate import Candidate

LengthS = Annotated[float, Within(1e-9, 1e12, "s", "a round has an end, and it lies ahead")]


@dataclass(frozen=True, kw_only=True)
class RoundState:
    """How a round stands.

    Args:
        round: its index.
        open_s: when it opened (s).
        now_s: simulated time (s).
        invited: participations invited in it so far.
        in_flight: participations under way inside coverage, older ones included.
        committed: uploads that arrived.
    """

    round: int
    open_s: float
    now_s: float
    invited: int
    in_flight: int
    committed: int


@runtime_checkable
class Pace(Protocol):
    """Says when a round invites and when it closes.

    Class attributes name it: ``name``; ``source``, a citation; ``Settings``, a frozen keyword-only dataclass whose
    fields stand in the table ``pace`` of an experiment; ``closed_by``, how the record says that it closed a round, by a
    ``quorum`` or when ``everyone`` had come to an end; ``exchange``, whether learners whose vehicles exchange with
    each other may have it: their rounds gather ``round.quorum`` vehicles, exchange, and close when all have committed
    or left, and the pace says only how many are invited meanwhile.
    """

    name: ClassVar[str]
    source: ClassVar[str]
    exchange: ClassVar[bool]
    closed_by: ClassVar[Literal["quorum", "everyone"]]
    Settings: ClassVar[type]

    @classmethod
    def create(cls, settings: Any, round_settings: RoundSettings) -> Pace:
        """Make the pace of one run from its ``Settings`` and those of rounds."""
        ...

    def places(self, state: RoundState) -> int:
        """Return how many more may be invited now; 0 or less for none."""
        ...

    def closes(self, state: RoundState) -> bool:
        """Return whether the round closes now; asked whenever an upload arrived or a participation ended."""
        ...

    def deadline_s(self, state: RoundState) -> LengthS:
        """Return how long after its opening a round closes at the latest (s), > 0; asked when it opens."""
        ...


class WorkPace:
    """Base of a pace that besides decides how much a vehicle trains, and whom it may have at all.

    Its learners are those whose ``Cost.steps`` says that the training may end after some of its local steps; others are
    refused by name.

    Attributes:
        planned_share: share of the training that selection policies are to count with, in (0, 1].
    """

    planned_share: Share = 1.0

    def plan(self, candidates: Sequence[Candidate], state: RoundState) -> LengthS | None:  # noqa: ARG002 - for subclasses
        """Plan the open round before its first invitation; return how much longer it lasts at most, or None.

        Asked whenever somebody may be invited, until somebody was. The round then closes so many seconds from now, in
        place of what ``deadline_s`` said, > 0.

        Args:
            candidates: who may be invited, in order of entry into coverage, their training whole; at least one.
            state: how the round stands.
        """
        return None

    def takes(self, candidate: Candidate, state: RoundState) -> bool:  # noqa: ARG002
        """Return whether a candidate may be invited now; its training is the planned share."""
        return True

    def share(self, candidate: Candidate, state: RoundState) -> Share:  # noqa: ARG002
        """Return the share of its training that a vehicle does, in [0, 1]; asked when the training begins.

        It is rounded down to whole local steps, and is at least one.

        Args:
            candidate: the vehicle as it is now, its training whole.
            state: how the round stands.
        """
        return 1.0


PACES = Kind(name="pace", group="vnetsim.paces", protocol=Pace, key="round.participation", table="pace")
