"""An aggregation rule: uploads are mixed into the model, and what one counts halves with every few rounds of age."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from vnetsim.learners.aggregation.asynchronous import mixed_in

from vnetsim.errors.bounds import Within
from vnetsim.learning.aggregation import NextModel, RoundUploads


@dataclass(frozen=True, kw_only=True)
class HalfLife:
    """Mixes the uploads of a round into the model one after the other, in order of arrival.

    Args:
        mixing: share of a fresh upload in the model.
        half_life: staleness at which it counts half (versions of the model).
    """

    name = "half-life"
    source = "an example"
    equations = ("w <- (1 - a) w + a w_n,  a = mixing 2^(-tau_n / half_life)",)
    needs_uploads = True

    mixing: Annotated[float, Within(0, 1, "", "a share")] = 0.5
    half_life: Annotated[float, Within(0.01, 10_000, "versions", "bounds of round.max_staleness")] = 2.0

    def aggregate(self, uploads: RoundUploads) -> NextModel:
        """Return the model with all uploads mixed in, and what each counts in it."""
        return mixed_in(uploads, lambda upload: self.mixing * 2 ** (-upload.staleness / self.half_life))
