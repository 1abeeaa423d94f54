"""Synchronous averaging: the round's uploads are averaged, whatever model they started from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vnetsim.learning.aggregation import NextModel, RoundUploads


@dataclass(frozen=True, kw_only=True)
class SyncSettings:
    """No settings."""


class Sync:
    """The weighted mean of the round's uploads becomes the model; ``learning.aggregation`` can make it a median.

    A stale upload counts like a fresh one. Statistics and counters are averaged like parameters.
    """

    name: ClassVar[str] = "sync"
    source: ClassVar[str] = (
        "McMahan et al. (2017): Communication-efficient learning of deep networks from decentralized data, AISTATS"
    )
    equations: ClassVar[tuple[str, ...]] = ("w <- sum_n p_n w_n, p_n the learner's weights",)
    needs_uploads: ClassVar[bool] = False
    Settings: ClassVar[type] = SyncSettings

    @classmethod
    def create(cls, settings: SyncSettings) -> Sync:  # noqa: ARG003 - the protocol's argument
        """Return the rule with these settings."""
        return cls()

    def aggregate(self, uploads: RoundUploads) -> NextModel:
        """Return the mean."""
        return NextModel(state=uploads.mean(), shares=[upload.weight for upload in uploads.uploads])
