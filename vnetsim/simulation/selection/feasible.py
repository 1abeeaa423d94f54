"""Selection of those who have the time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Annotated

from vnetsim.setting_checks import Within, check_bounds
from vnetsim.simulation.log import ParticipationRecord
from vnetsim.simulation.selection import Candidate, SelectionContext
from vnetsim.simulation.selection.candidate import ExitPredictor
from vnetsim.simulation.selection.draws import shuffled


class FeasibleSelection:
    """Takes only vehicles that are predicted to be covered long enough, ordered by slack.

    With R_n the predicted rest of the window and T_n the predicted duration of download, training and upload::

        R_n >= T_n (1 + margin),  slack_n = R_n - T_n (1 + margin)

    The least slack goes first, for the others can still wait.
    """

    name = "feasible"
    source = "a rule of vnetsim's own"

    @dataclass(frozen=True, kw_only=True)
    class Settings:
        """Who has the time.

        Args:
            margin: share by which the rest of the window must exceed the participation, for a channel that is shared.
            predictor: how the rest of the window is predicted: `straight` on at the present speed; the `oracle` knows
                the exit, where paths are known beforehand; `history`, the mean dwell of earlier windows from the same
                approach.
        """

        margin: Annotated[float, Within(0, 1000, "", "no window lasts for a thousand participations")] = 0.2
        predictor: ExitPredictor = "straight"

        def __post_init__(self) -> None:
            check_bounds("selection", self)

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @classmethod
    def create(cls, settings: Settings) -> FeasibleSelection:
        """Return the policy with these settings."""
        return cls(settings)

    def select(self, candidates: Sequence[Candidate], free: int, context: SelectionContext) -> Sequence[Candidate]:  # noqa: ARG002 - the protocol's argument
        """Return who has the time, by slack; drawn among equals, as all are that stand."""
        factor = 1 + self._settings.margin
        predictor = self._settings.predictor
        able = []
        for candidate in shuffled(candidates, context.generator):
            remaining_s = candidate.remaining_s(predictor)
            if remaining_s < factor * candidate.train_s:  # rates cost time, and not even the training fits
                continue
            slack_s = remaining_s - factor * candidate.duration_s
            if slack_s >= 0:
                able.append((slack_s, candidate))
        return [candidate for _, candidate in sorted(able, key=itemgetter(0))]

    def after_round(self, records: Sequence[ParticipationRecord]) -> None:
        """Learn nothing."""
