"""FedAsync: each upload is mixed into the model as it arrives, the staler the less."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from learners.aggregation.steps import StalenessSettings, mixed, normalised
from vnetsim.learning.aggregation import NextModel, RoundUploads
from vnetsim.setting_checks import Within


@dataclass(frozen=True, kw_only=True)
class FedAsyncSettings(StalenessSettings):
    """How much an upload counts.

    Args:
        mixing: share of a fresh upload in the model, alpha.
    """

    mixing: Annotated[float, Within(0, 1, "", "a share")] = 0.6


class FedAsync:
    """Mixes the uploads into the model one after the other, in order of arrival.

    The published algorithm is that of rounds of one upload: ``round.quorum = 1``, ``round.invited`` vehicles at work
    at a time, ``round.max_staleness`` above 0. Of several uploads in one round all have the staleness of that round:
    tau counts the versions of the model since the one that the vehicle downloaded, and a round makes one.

    All tensors are mixed alike, BatchNorm statistics among them; counters are rounded. The learner's weights decide
    only that an upload of weight 0 stays out.
    """

    name: ClassVar[str] = "fedasync"
    source: ClassVar[str] = "Xie, Koyejo, Gupta (2019): Asynchronous federated optimization, arXiv:1903.03934"
    equations: ClassVar[tuple[str, ...]] = (
        "w <- (1 - a) w + a w_n,  a = mixing s(tau_n), upload by upload",
        "s(tau) = 1  |  1 if tau <= b, else 1 / (a (tau - b) + 1)  |  (1 + tau)^-exponent",
    )
    needs_uploads: ClassVar[bool] = True
    Settings: ClassVar[type] = FedAsyncSettings

    def __init__(self, settings: FedAsyncSettings) -> None:
        self._settings = settings

    @classmethod
    def create(cls, settings: FedAsyncSettings) -> FedAsync:
        """Return the rule with these settings."""
        return cls(settings)

    def share(self, tau: int) -> float:
        """Return the share a of an upload whose base is ``tau`` versions old."""
        return self._settings.mixing * self._settings.staleness_weight(tau)

    def aggregate(self, uploads: RoundUploads) -> NextModel:
        """Return the model with all uploads mixed in."""
        model = dict(uploads.model)
        shares: list[float] = []
        for upload in uploads.uploads:
            share = self.share(upload.staleness)
            model |= mixed(model, upload.state, share)
            shares = [*(earlier * (1 - share) for earlier in shares), share]
        sent = uploads.uploads[0].state
        return NextModel(state={name: model[name] for name in sent}, shares=normalised(shares))
