"""Asynchronous averaging by delay: the longer a vehicle trained and uploaded, the less its model counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch

from learners.aggregation.steps import mixed, normalised, rounded
from vnetsim.learning.aggregation import NextModel, RoundUploads, Upload
from vnetsim.setting_checks import Within, check_bounds

Base = Annotated[float, Within(1e-6, 1, "", "at 1 no delay matters; above, delay would count for a model")]


@dataclass(frozen=True, kw_only=True)
class AflDelaySettings:
    """What delay costs.

    Args:
        gamma: share of the former model that no upload replaces.
        zeta_train: what each second of training beyond the first leaves of an upload's share.
        zeta_upload: the same of its transmission.
        form: ``sound`` mixes, so that the parts of the old and the new model add up to 1; ``printed`` is the
            published expression, whose parts do not: it shrinks the parameters (or, below a second, lets them grow).
    """

    gamma: Annotated[float, Within(0, 1, "", "a share")] = 0.5
    zeta_train: Base = 0.9
    zeta_upload: Base = 0.9
    form: Literal["sound", "printed"] = "sound"

    def __post_init__(self) -> None:
        """Refuse values outside their bounds."""
        check_bounds("aggregation", self)


class AflDelay:
    """Mixes the uploads into the model one after the other, by the seconds their vehicles took; rounds do not count.

    All tensors are mixed alike, BatchNorm statistics among them; counters are rounded. In the form ``printed``
    parameters alone follow that expression. A share above 1, which delays below a second can give, is taken as 1
    where tensors are mixed. The learner's weights decide only that an upload of weight 0 stays out.
    """

    name: ClassVar[str] = "afl-delay"
    source: ClassVar[str] = (
        "Wu, Wang, Fan, Fan (2023): Deep reinforcement learning based vehicle selection for asynchronous federated "
        "learning enabled vehicular edge computing, arXiv:2304.02832; the sound form is vnetsim's"
    )
    equations: ClassVar[tuple[str, ...]] = (
        "a = (1 - gamma) b_l b_u,  b_l = zeta_train^(train_s - 1),  b_u = zeta_upload^(upload_s - 1)",
        "sound: w <- (1 - a) w + a w_n, upload by upload",
        "printed: w <- gamma w + a w_n",
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
        given = self._settings
        delay = given.zeta_train ** (upload.train_s - 1) * given.zeta_upload ** (upload.upload_s - 1)
        return float((1 - given.gamma) * delay)

    def aggregate(self, uploads: RoundUploads) -> NextModel:
        """Return the model with all uploads mixed in."""
        model, gamma = dict(uploads.model), self._settings.gamma
        printed = self._settings.form == "printed"
        shares: list[float] = []
        for upload in uploads.uploads:
            share = self.share(upload)
            before, bounded = dict(model), min(share, 1.0)
            model |= mixed(before, upload.state, bounded)
            if printed:
                for name in uploads.parameters & upload.state.keys():
                    old, new = before[name].to(torch.float64), upload.state[name].to(torch.float64)
                    model[name] = rounded(gamma * old + share * new, before[name])
            kept = gamma if printed else 1 - bounded
            shares = [*(earlier * kept for earlier in shares), share if printed else bounded]
        sent = uploads.uploads[0].state
        return NextModel(state={name: model[name] for name in sent}, shares=normalised(shares))
