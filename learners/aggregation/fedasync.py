"""FedAsync: each upload is mixed into the model as it arrives, the staler the less."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from learners.aggregation.steps import (
    Exponent,
    HingeKnee,
    HingeSlope,
    StalenessFunction,
    mixed,
    normalised,
    staleness_weight,
)
from vnetsim.learning.aggregation import NextModel, RoundUploads
from vnetsim.setting_checks import Within, check_bounds


@dataclass(frozen=True, kw_only=True)
class FedAsyncSettings:
    """How much an upload counts.

    Args:
        mixing: share of a fresh upload in the model, alpha.
        staleness: s(tau): ``constant`` 1; ``hinge`` 1 up to ``hinge_knee``, then 1 / (``hinge_slope`` (tau - knee));
            ``polynomial`` (1 + tau)^-``exponent``.
        hinge_knee: staleness up to which an upload counts in full, b (rounds).
        hinge_slope: how fast it counts less beyond, a.
        exponent: of the polynomial.
    """

    mixing: Annotated[float, Within(0, 1, "", "a share")] = 0.6
    staleness: StalenessFunction = "polynomial"
    hinge_knee: HingeKnee = 6
    hinge_slope: HingeSlope = 10.0
    exponent: Exponent = 0.5

    def __post_init__(self) -> None:
        """Refuse values outside their bounds."""
        check_bounds("aggregation", self)


class FedAsync:
    """Mixes the uploads into the model one after the other, in order of arrival.

    The published algorithm is that of rounds of one upload: ``round.quorum = 1``, ``round.invited`` vehicles at work
    at a time, ``round.max_staleness`` above 0. Of several uploads in one round all have the staleness of that round:
    tau counts the rounds since the model that the vehicle downloaded, not the uploads mixed in since.

    All tensors are mixed alike, BatchNorm statistics among them; counters are rounded. The learner's weights decide
    only that an upload of weight 0 stays out.
    """

    name: ClassVar[str] = "fedasync"
    source: ClassVar[str] = "Xie, Koyejo, Gupta (2019): Asynchronous federated optimization, arXiv:1903.03934"
    equations: ClassVar[tuple[str, ...]] = (
        "w <- (1 - a) w + a w_n,  a = mixing s(tau_n), upload by upload",
        "s(tau) = 1  |  1 if tau <= b, else 1 / (a (tau - b))  |  (1 + tau)^-exponent",
    )
    needs_uploads: ClassVar[bool] = True
    Settings: ClassVar[type] = FedAsyncSettings

    def __init__(self, settings: FedAsyncSettings) -> None:
        self._settings = settings

    @classmethod
    def create(cls, settings: FedAsyncSettings) -> FedAsync:
        """Make it."""
        return cls(settings)

    def share(self, tau: int) -> float:
        """Return the share a of an upload that is ``tau`` rounds stale."""
        given = self._settings
        return given.mixing * staleness_weight(
            tau, given.staleness, knee=given.hinge_knee, slope=given.hinge_slope, exponent=given.exponent
        )

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
