"""Rounds with a quorum and a deadline, with or without early upload, and rounds of all vehicles in coverage."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from vnetsim.errors.bounds import Within
from vnetsim.simulation.pace import RoundState
from vnetsim.simulation.selection.candidate import Candidate, ExitPredictor


@dataclass(frozen=True, kw_only=True)
class QuorumPace:
    """Invites at most ``round.invited`` at once; closes with the ``round.quorum``-th upload or at the deadline."""

    name: ClassVar[str] = "quorum"
    source: ClassVar[str] = "Bonawitz et al., Towards federated learning at scale: system design, MLSys 2019"
    exchange: ClassVar[bool] = True
    closed_by: ClassVar[Literal["quorum", "everyone"]] = "quorum"

    def places(self, state: RoundState) -> int:
        """Return ``round.invited`` minus the participations in flight; 0 or less for no free place."""
        return state.rules.invited - state.in_flight

    def closes(self, state: RoundState) -> bool:
        """Return whether ``round.quorum`` updates have arrived in the round."""
        return state.committed >= state.rules.quorum


@dataclass(frozen=True, kw_only=True)
class EarlyUploadPace(QuorumPace):
    """Invites and closes like ``quorum``; vehicles stop their local steps in time for the upload, with what they have.

    With t_step the time of a local step, t_up the predicted time of the upload and R the predicted rest of the window,
    both as they are when the training begins, a vehicle does the most steps k of all its steps, at least one, with::

        k t_step + t_up (1 + margin) <= R

    Args:
        margin: share by which an upload takes longer than with the whole airtime, for a channel that is shared.
        predictor: how the rest of the window is predicted: `straight` on at the present speed; the `oracle` knows
            the exit, where paths are known beforehand; `history`, the mean dwell of earlier windows from the same
            approach.
    """

    name: ClassVar[str] = "early-upload"
    source: ClassVar[str] = (
        "after de Souza, Achir, Campista, Costa (2026): CAIROS, SBRC, whose vehicles decide whether to train on or to "
        "upload early; vnetsim's own reading: before they leave coverage, predicted when the training begins"
    )
    exchange: ClassVar[bool] = False

    margin: Annotated[float, Within(0, 1000, "", "no upload takes a thousand times as long")] = 0.2
    predictor: ExitPredictor = "straight"

    def share(self, candidate: Candidate, state: RoundState) -> float:  # noqa: ARG002 - the protocol's argument
        """Return the share of the training that leaves time for the upload before the predicted exit, in [0, 1]."""
        left_s = candidate.remaining_s(self.predictor) - candidate.upload_s * (1 + self.margin)
        if left_s >= candidate.train_s or candidate.train_s == 0:
            return 1.0
        return max(0.0, left_s / candidate.train_s)


@dataclass(frozen=True, kw_only=True)
class CoveragePace:
    """Invites everyone until the first upload; closes when nobody is in flight any more, or at the deadline."""

    name: ClassVar[str] = "coverage"
    source: ClassVar[str] = "FLSimCo (arXiv:2408.00256): every vehicle in coverage downloads and takes part"
    exchange: ClassVar[bool] = False
    closed_by: ClassVar[Literal["quorum", "everyone"]] = "everyone"
    needs: ClassVar[tuple[str, ...]] = ()

    def places(self, state: RoundState) -> int:
        """Return how many more may be invited: ``sys.maxsize`` until the round's first update has arrived, then 0."""
        return 0 if state.committed else sys.maxsize

    def closes(self, state: RoundState) -> bool:
        """Return whether an update has arrived in the round and nobody is in flight."""
        return state.committed > 0 and state.in_flight == 0
