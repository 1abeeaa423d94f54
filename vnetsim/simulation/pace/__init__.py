"""The pace of rounds: how many vehicles a round invites, and when it closes.

A pace answers questions about the state of a round; it changes nothing itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Protocol

from vnetsim.errors.bounds import Share, Within
from vnetsim.experiment import DEFAULT_NAMES, RoundSettings
from vnetsim.plugins import Kind, optional
from vnetsim.simulation.selection.candidate import Candidate

LENGTH = Within(1e-9, 1e12, "s", "a round has an end, and it lies ahead")
LengthS = Annotated[float, LENGTH]


@dataclass(frozen=True, kw_only=True)
class PlannedRound:
    """What a pace plans for a round.

    Args:
        length_s: the round closes this many seconds from now, whatever ``deadline_s`` said.
        share: share of the training, in (0, 1], that candidates then show to selection policies.
    """

    length_s: LengthS
    share: Share = 1.0


@dataclass(slots=True, kw_only=True)  # created often; frozen would take three times as long
class RoundState:
    """The state of a round.

    Args:
        round: its index.
        open_s: when it opened (s).
        now_s: simulated time (s).
        invited: participations invited in it so far.
        in_flight: participations under way inside coverage, including those of earlier rounds.
        committed: updates that arrived in it.
        close_s: when it closes at the latest (s).
        rules: the settings in ``[round]``.
        planned_share: share of the training that the pace planned; 1 if it planned nothing.
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
    """Decides when a round invites and closes: a frozen keyword-only dataclass; its fields are settings in ``[pace]``.

    Class attributes: ``name``. ``source``, a citation. ``closed_by``, the value in the record when it closes a round:
    ``quorum``, or ``everyone`` if all had finished. ``exchange``, whether it may be used with learners whose vehicles
    exchange with each other; their rounds gather ``round.quorum`` vehicles, exchange, and close when all have committed
    or left, so the pace decides only how many are invited meanwhile.

    A pace with the method ``share`` decides how much a vehicle trains. It needs a learner whose ``Cost.steps`` says
    that training may end after some of its local steps; others are refused.

    A pace that ignores ``round.quorum``, ``round.invited`` or the selection policy has a tuple ``needs`` with those
    that it does use, out of ``"round.quorum"``, ``"round.invited"`` and ``"selection"``; without ``needs`` it uses all.
    """

    name: ClassVar[str]
    source: ClassVar[str]
    exchange: ClassVar[bool]
    closed_by: ClassVar[Literal["quorum", "everyone"]]

    def places(self, state: RoundState) -> int:
        """Return how many more vehicles may be invited now; 0 or less for none."""
        ...

    def closes(self, state: RoundState) -> bool:
        """Return whether the round closes now; called whenever an update arrived or a participation ended."""
        ...

    @optional
    def begin(self) -> Any:
        """Return the pace's memory of one run, passed back as ``RoundState.memory``."""
        ...

    @optional
    def deadline_s(self, state: RoundState) -> LengthS:
        """Return how long after its opening a round closes at the latest (s), > 0; called when it opens.

        Without this method it is ``round.deadline_s``.
        """
        ...

    @optional
    def plan(self, candidates: Sequence[Candidate], state: RoundState) -> PlannedRound | None:
        """Plan the open round before its first invitation; None plans nothing.

        Called whenever there are candidates, until one was invited.

        Args:
            candidates: vehicles that may be invited, in order of entry into coverage, with their whole training; at
                least one.
            state: the state of the round.
        """
        ...

    @optional
    def takes(self, candidate: Candidate, state: RoundState) -> bool:
        """Return whether a candidate may be invited now; its ``train_s`` is that of the planned share."""
        ...

    @optional
    def share(self, candidate: Candidate, state: RoundState) -> Share:
        """Return the share of its training that a vehicle does, in [0, 1]; called when the training begins.

        The share is rounded down to whole local steps, but to no fewer than one.

        Args:
            candidate: the vehicle as it is now, with its whole training.
            state: the state of the round.
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
