"""Early upload: a vehicle stops training while it still has the time to upload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from vnetsim.errors.bounds import Within
from vnetsim.simulation.pace import RoundState
from vnetsim.simulation.pace.quorum import QuorumPace
from vnetsim.simulation.selection.candidate import Candidate, ExitPredictor


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
        """Return how much of the training there is time for."""
        left_s = candidate.remaining_s(self.predictor) - candidate.upload_s * (1 + self.margin)
        if left_s >= candidate.train_s or candidate.train_s == 0:
            return 1.0
        return max(0.0, left_s / candidate.train_s)
