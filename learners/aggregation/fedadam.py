"""FedAdam: Adam at the RSU on the mean change of a round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch

from learners.aggregation.steps import rounded
from vnetsim.learning.aggregation import NextModel, RoundUploads
from vnetsim.setting_checks import Within, check_bounds

FIRST, SECOND = "first.", "second."
Decay = Annotated[float, Within(0, 0.99999, "", "at 1 no step is ever forgotten")]


@dataclass(frozen=True, kw_only=True)
class FedAdamSettings:
    """Step, decay and adaptivity.

    Args:
        learning_rate: the server's step, eta: about how far a parameter moves in a round.
        beta1: decay of the mean change.
        beta2: decay of its square.
        tau: adaptivity: changes far below it are scaled alike, far above each to about 1.
    """

    learning_rate: Annotated[
        float, Within(0, 1000, "", "a model is thrown away by a step a thousand times its own")
    ] = 0.01
    beta1: Decay = 0.9
    beta2: Decay = 0.99
    tau: Annotated[float, Within(1e-12, 1000, "", "above 0, for it divides")] = 1e-3

    def __post_init__(self) -> None:
        """Refuse values outside their bounds."""
        check_bounds("aggregation", self)


class FedAdam:
    """Descends the pseudo-gradient, the model less the mean of the uploads, with Adam; without its bias correction.

    The mean is that of ``sync``: weighed by the learner, over stale uploads too. Moments are of parameters alone;
    statistics and counters of BatchNorm are averaged. A round without an upload leaves model and moments as they are.
    """

    name: ClassVar[str] = "fedadam"
    source: ClassVar[str] = "Reddi et al. (2021): Adaptive federated optimization, ICLR, arXiv:2003.00295, Algorithm 2"
    equations: ClassVar[tuple[str, ...]] = (
        "Delta = w - sum_n p_n w_n, p_n the learner's weights",
        "m <- beta1 m + (1 - beta1) Delta,  v <- beta2 v + (1 - beta2) Delta^2;  m = 0, v = tau^2 before the first",
        "w <- w - eta m / (sqrt(v) + tau)",
    )
    needs_uploads: ClassVar[bool] = False
    Settings: ClassVar[type] = FedAdamSettings

    def __init__(self, settings: FedAdamSettings) -> None:
        self._settings = settings

    @classmethod
    def create(cls, settings: FedAdamSettings) -> FedAdam:
        """Return the rule with these settings."""
        return cls(settings)

    def aggregate(self, uploads: RoundUploads) -> NextModel:
        """Return the model after a step of the server."""
        given, state, memory = self._settings, dict(uploads.mean()), {}
        for name in sorted(uploads.parameters & state.keys()):
            old = uploads.model[name].to(torch.float64)
            delta = old - state[name].to(torch.float64)
            first = uploads.memory.get(FIRST + name, torch.zeros_like(delta))
            second = uploads.memory.get(SECOND + name, torch.full_like(delta, given.tau**2))
            first = given.beta1 * first + (1 - given.beta1) * delta
            second = given.beta2 * second + (1 - given.beta2) * delta.square()
            memory[FIRST + name], memory[SECOND + name] = first, second
            moved = old - given.learning_rate * first / (second.sqrt() + given.tau)
            state[name] = rounded(moved, uploads.model[name])
        return NextModel(state=state, shares=[upload.weight for upload in uploads.uploads], memory=memory)
