"""The pace of a round: how many it invites, when it closes, and when it closes at the latest.

A pace is told how a round stands whenever something happened in it, and answers; it changes nothing itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Protocol

from vnetsim.errors.bounds import Share, Within
from vnetsim.experiment import DEFAULT_NAMES, RoundSettings
from vnetsim.plugins import Kind, optional
from vnetsim.simulation.selection.candidate import Candidate

LengthS = Annotated[float, Within(1e-9, 1e12, "s", "a round has an end, and it lies ahead")]


@dataclass(frozen=True, kw_only=True)
class PlannedRound:
    """What a pace plans for a round.

    Args:
        length_s: the round closes so many seconds from now, in place of what ``deadline_s`` said.
        share: share of the training that selection policies are to count with, in (0, 1].
    """

    length_s: LengthS
    share: Share = 1.0


@dataclass(slots=True, kw_only=True)  # made anew for each question: frozen it would take three times as long
class RoundState:
    """How a round stands.

    Args:
        round: its index.
        open_s: when it opened (s).
        now_s: simulated time (s).
        invited: participations invited in it so far.
        in_flight: participations under way inside coverage, older ones included.
        committed: uploads that arrived.
        close_s: when it closes at the latest (s).
        rules: the table ``round`` of the experiment.
        planned_share: share of the training that the pace planned; 1 where it has planned nothing.
        memory: what the pace's ``begin`` returned; None without that method.
    """

    round: int
    open_s: float
    now_s: float
    invited: int
    in_flight: int
    committed: int
    close_s: float
    rules: RoundSettings
    planned_share: float
    memory: Any = None


class Pace(Protocol):
    """Says when a round invites and closes: a frozen keyword-only dataclass, whose fields stand in the table ``pace``.

    Class attributes name it: ``name``; ``source``, a citation; ``closed_by``, how the record says that it closed a
    round, by a ``quorum`` or when ``everyone`` had come to an end; ``exchange``, whether learners whose vehicles
    exchange with each other may have it: their rounds gather ``round.quorum`` vehicles, exchange, and close when all
    have committed or left, and the pace says only how many are invited meanwhile.

    One that has the method ``share`` besides decides how much a vehicle trains; its learners are those whose
    ``Cost.steps`` says that the training may end after some of its local steps, and others are refused by name.

    One that does without ``round.quorum``, ``round.invited`` or the selection policy has a tuple ``needs`` that names
    those of the three, ``"selection"`` for the last, that it does use; without it all of them count.
    """

    name: ClassVar[str]
    source: ClassVar[str]
    exchange: ClassVar[bool]
    closed_by: ClassVar[Literal["quorum", "everyone"]]

    def places(self, state: RoundState) -> int:
        """Return how many more may be invited now; 0 or less for none."""
        ...

    def closes(self, state: RoundState) -> bool:
        """Return whether the round closes now; asked whenever an upload arrived or a participation ended."""
        ...

    @optional
    def begin(self) -> Any:
        """Return the memory of one run, which ``RoundState.memory`` brings back; None without this method."""
        ...

    @optional
    def deadline_s(self, state: RoundState) -> LengthS:
        """Return how long after its opening a round closes at the latest (s), > 0; asked when it opens.

        Without this method it is ``round.deadline_s``.
        """
        ...

    @optional
    def plan(self, candidates: Sequence[Candidate], state: RoundState) -> PlannedRound | None:
        """Plan the open round before its first invitation; None leaves it as it is.

        Asked whenever somebody may be invited, until somebody was.

        Args:
            candidates: who may be invited, in order of entry into coverage, their training whole; at least one.
            state: how the round stands.
        """
        ...

    @optional
    def takes(self, candidate: Candidate, state: RoundState) -> bool:
        """Return whether a candidate may be invited now; its training is what was planned."""
        ...

    @optional
    def share(self, candidate: Candidate, state: RoundState) -> Share:
        """Return the share of its training that a vehicle does, in [0, 1]; asked when the training begins.

        It is rounded down to whole local steps, and is at least one.

        Args:
            candidate: the vehicle as it is now, its training whole.
            state: how the round stands.
        """
        ...


PACES = Kind(
    name="pace",
    group="vnetsim.paces",
    protocol=Pace,
    key="pace.name",
    table="pace",
    default=DEFAULT_NAMES["pace"],
    built_in={
        "quorum": "vnetsim.simulation.pace.quorum:QuorumPace",
        "coverage": "vnetsim.simulation.pace.quorum:CoveragePace",
        "early-upload": "vnetsim.simulation.pace.quorum:EarlyUploadPace",
        "mob-fl": "vnetsim.simulation.pace.mob_fl:MobFlPace",
    },
)
