"""Asynchronous averaging by delay: the longer a vehicle trained and uploaded, the less its model counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from learners.aggregation.steps import mixed, normalised
from vnetsim.learning.aggregation import NextModel, RoundUploads, Upload
from vnetsim.setting_checks import Within, check_bounds

ZETA = 0.9
"""What each second beyond the first, of training and of the upload, leaves of a share: the paper's value of both."""


@dataclass(frozen=True, kw_only=True)
class AflDelaySettings:
    """What delay costs.

    Args:
        gamma: share of the former model that no upload replaces.
    """

    gamma: Annotated[float, Within(0, 1, "", "a share")] = 0.5

    def __post_init__(self) -> None:
        """Refuse values outside their bounds."""
        check_bounds("aggregation", self)


class AflDelay:
    """Mixes the uploads into the model one after the other, by the seconds their vehicles took; rounds do not count.

    The published expression, w <- gamma w + a w_n, has parts that do not add up to 1: it shrinks the parameters, or,
    below a second, lets them grow. Here they are mixed. All tensors are mixed alike, BatchNorm statistics among them;
    counters are rounded. A share above 1, which delays below a second can give, is taken as 1. The learner's weights
    decide only that an upload of weight 0 stays out.
    """

    name: ClassVar[str] = "afl-delay"
    source: ClassVar[str] = (
        "Wu, Wang, Fan, Fan (2023): Deep reinforcement learning based vehicle selection for asynchronous federated "
        "learning enabled vehicular edge computing, arXiv:2304.02832; the mixing is vnetsim's"
    )
    equations: ClassVar[tuple[str, ...]] = (
        "a = (1 - gamma) b_l b_u,  b_l = 0.9^(train_s - 1),  b_u = 0.9^(upload_s - 1)",
        "w <- (1 - a) w + a w_n, upload by upload",
    )
    needs_uploads: ClassVar[bool] = True
    Settings: ClassVar[type] = AflDelaySettings

    def __init__(self, settings: AflDelaySettings) -> None:
        self._settings = settings

    @classmethod
    def create(cls, settings: AflDelaySettings) -> AflDelay:
        """Return the rule with these settings."""
        return cls(settings)

    def share(self, upload: Upload) -> float:
        """Return a, as it stands above."""
        delay = ZETA ** (upload.train_s - 1) * ZETA ** (upload.upload_s - 1)
        return float((1 - self._settings.gamma) * delay)

    def aggregate(self, uploads: RoundUploads) -> NextModel:
        """Return the model with all uploads mixed in."""
        model = dict(uploads.model)
        shares: list[float] = []
        for upload in uploads.uploads:
            share = min(self.share(upload), 1.0)
            model |= mixed(model, upload.state, share)
            shares = [*(earlier * (1 - share) for earlier in shares), share]
        sent = uploads.uploads[0].state
        return NextModel(state={name: model[name] for name in sent}, shares=normalised(shares))
