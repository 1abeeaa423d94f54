"""Early upload: a vehicle stops training while it still has the time to upload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from vnetsim.experiment import RoundSettings
from vnetsim.setting_checks import Within, check_bounds
from vnetsim.simulation.pace import RoundState, WorkPace
from vnetsim.simulation.pace.quorum import QuorumPace
from vnetsim.simulation.selection.candidate import Candidate, ExitPredictor


class EarlyUploadPace(QuorumPace, WorkPace):
    """Invites and closes like ``quorum``; vehicles stop their local steps in time for the upload, with what they have.

    With t_step the time of a local step, t_up the predicted time of the upload and R the predicted rest of the window,
    both as they are when the training begins, a vehicle does the most steps k of all its steps, at least one, with::

        k t_step + t_up (1 + margin) <= R
    """

    name = "early-upload"
    source = (
        "after de Souza, Achir, Campista, Costa (2026): CAIROS, SBRC, whose vehicles decide whether to train on or to "
        "upload early; vnetsim's own reading: before they leave coverage, predicted when the training begins"
    )
    exchange = False

    @dataclass(frozen=True, kw_only=True)
    class Settings:
        """How careful a vehicle is.

        Args:
            margin: share by which an upload takes longer than with the whole airtime, for a channel that is shared.
            predictor: how the rest of the window is predicted: `straight` on at the present speed; the `oracle` knows
                the exit, where paths are known beforehand; `history`, the mean dwell of earlier windows from the same
                approach.
        """

        margin: Annotated[float, Within(0, 1000, "", "no upload takes a thousand times as long")] = 0.2
        predictor: ExitPredictor = "straight"

        def __post_init__(self) -> None:
            check_bounds("pace", self)

    def __init__(self, settings: Settings, rules: RoundSettings) -> None:
        super().__init__(rules)
        self._settings = settings

    @classmethod
    def create(cls, settings: Settings, round_settings: RoundSettings) -> EarlyUploadPace:  # type: ignore[override]
        """Make it."""
        return cls(settings, round_settings)

    def share(self, candidate: Candidate, state: RoundState) -> float:  # noqa: ARG002 - the protocol's argument
        """Return how much of the training there is time for."""
        left_s = candidate.remaining_s(self._settings.predictor) - candidate.upload_s * (1 + self._settings.margin)
        if left_s >= candidate.train_s or candidate.train_s == 0:
            return 1.0
        return max(0.0, left_s / candidate.train_s)
