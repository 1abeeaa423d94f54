"""MOB-FL: chooses a round's length and local steps together, from the predicted rest of the vehicles' windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from vnetsim.errors.bounds import Within
from vnetsim.simulation.pace import PlannedRound, RoundState
from vnetsim.simulation.pace.quorum import CoveragePace, QuorumPace
from vnetsim.simulation.selection.candidate import Candidate, ExitPredictor

SHORTEST_S = 0.1  # no round is planned shorter, as none may be set
MOST_CHOICES = 100  # at most this many numbers of local steps are tried; they are evenly spread


def best_round(
    transfer_s: Sequence[float], train_s: Sequence[float], rest_s: Sequence[float], *, steps: int, longest_s: float
) -> PlannedRound | None:
    """Return the length T and the share E / steps that maximise sum_n [R_n >= T_n(E), T_n(E) <= T] E / T.

    None if no vehicle can finish even one step. T_n(E) = transfer_n + train_n E / steps. For a given E the best T is
    one of the T_n(E), so only these are tried. Among equal values the round with fewer steps, then the shorter
    one, is returned.

    Args:
        transfer_s: download and upload of each vehicle (s); at least one vehicle.
        train_s: its whole training, of all steps (s).
        rest_s: R_n, the predicted rest of its window (s).
        steps: the most local steps.
        longest_s: the longest round (s).
    """
    choices = np.unique(np.linspace(1, steps, min(steps, MOST_CHOICES)).round())
    took = np.asarray(transfer_s, float) + np.asarray(train_s, float) * choices[:, None] / steps  # (choices, vehicles)
    length = np.sort(np.where((took <= np.asarray(rest_s)) & (took <= longest_s), took, np.inf), axis=1)
    uploads = np.arange(1, length.shape[1] + 1)
    value = uploads * choices[:, None] / np.maximum(length, SHORTEST_S)
    if not value.max() > 0:
        return None
    row, column = np.unravel_index(value.argmax(), value.shape)
    return PlannedRound(length_s=max(float(length[row, column]), SHORTEST_S), share=float(choices[row]) / steps)


@dataclass(frozen=True, kw_only=True)
class MobFlPace(CoveragePace):
    """Plans each round for the vehicles in coverage: its length T, after which it closes, and their local steps E.

    R_n is the predicted rest of a window, T_n(E) = (1 + margin) (download + upload + training of E steps)::

        T, E = argmax sum_n [R_n >= T_n(E) and T_n(E) <= T] E / T,  T at most what is left of round.deadline_s

    A round is planned when its first vehicles may be invited. It invites vehicles (at most ``round.invited`` at once,
    ordered by ``selection.name``) that have R_n >= T_n(E) and can finish before the round ends, including later
    arrivals. It closes when nobody is in flight any more, at the latest after T.

    Args:
        margin: share by which a participation takes longer than alone on the channel, > 0: an upload that arrives
            with the end of its round is too late.
        predictor: how the rest of the window is predicted: `straight` on at the present speed; the `oracle` knows
            the exit, where paths are known beforehand; `history`, the mean dwell of earlier windows from the same
            approach.
    """

    name: ClassVar[str] = "mob-fl"
    source: ClassVar[str] = (
        "Xie, Sun, Zhou, Niu, Xu, Chen, Gunduz (2022): MOB-FL, arXiv:2212.03519; the sum in this form, the margin, and "
        "who is invited later: vnetsim's own reading"
    )
    needs: ClassVar[tuple[str, ...]] = ("round.invited", "selection")

    margin: Annotated[float, Within(0.001, 1000, "", "no window lasts for a thousand participations")] = 0.2
    predictor: ExitPredictor = "straight"

    def plan(self, candidates: Sequence[Candidate], state: RoundState) -> PlannedRound | None:
        """Return the round's best length and share of local steps; None if nobody has time even for one step."""
        factor = 1 + self.margin
        return best_round(
            [factor * (candidate.download_s + candidate.upload_s) for candidate in candidates],
            [factor * candidate.train_s for candidate in candidates],
            [candidate.remaining_s(self.predictor) for candidate in candidates],
            steps=max(1, *(candidate.steps for candidate in candidates)),
            longest_s=state.open_s + state.rules.deadline_s - state.now_s,
        )

    def takes(self, candidate: Candidate, state: RoundState) -> bool:
        """Return whether a vehicle, with the margin, can finish before its predicted exit and before the round ends."""
        took_s = (1 + self.margin) * candidate.duration_s
        # the sum of the parts may differ from the plan's in its last digits
        return took_s <= (1 + 1e-9) * min(candidate.remaining_s(self.predictor), state.close_s - state.now_s)

    def share(self, candidate: Candidate, state: RoundState) -> float:  # noqa: ARG002 - the protocol's arguments
        """Return the planned share of the local steps, the same for all candidates of the round."""
        return state.planned_share

    places = QuorumPace.places
