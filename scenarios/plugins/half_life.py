"""An aggregation rule: uploads are mixed into the model, and what one counts halves with every few rounds of age."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from vnetsim.learners.aggregation.steps import mixed, normalised

from vnetsim.learning.aggregation import NextModel, RoundUploads
from vnetsim.setting_checks import Within, check_bounds


@dataclass(frozen=True, kw_only=True)
class HalfLifeSettings:
    """How much an upload counts.

    Args:
        mixing: share of a fresh upload in the model.
        half_life: staleness at which it counts half (versions of the model).
    """

    mixing: Annotated[float, Within(0, 1, "", "a share")] = 0.5
    half_life: Annotated[float, Within(0.01, 10_000, "versions", "bounds of round.max_staleness")] = 2.0

    def __post_init__(self) -> None:
        check_bounds("aggregation", self)


class HalfLife:
    """Mixes the uploads of a round into the model one after the other, in order of arrival."""

    name: ClassVar[str] = "half-life"
    source: ClassVar[str] = "an example"
    equations: ClassVar[tuple[str, ...]] = ("w <- (1 - a) w + a w_n,  a = mixing 2^(-tau_n / half_life)",)
    needs_uploads: ClassVar[bool] = True
    Settings: ClassVar[type] = HalfLifeSettings

    def __init__(self, settings: HalfLifeSettings) -> None:
        self._settings = settings

    @classmethod
    def create(cls, settings: HalfLifeSettings) -> HalfLife:
        """Make the rule of one run."""
        return cls(settings)

    def aggregate(self, uploads: RoundUploads) -> NextModel:
        """Return the model with all uploads mixed in, and what each counts in it."""
        state = {name: uploads.model[name] for name in uploads.uploads[0].state}
        shares: list[float] = []
        for upload in uploads.uploads:
            share = self._settings.mixing * 2 ** (-upload.staleness / self._settings.half_life)
            state = mixed(state, upload.state, share)
            shares = [*(earlier * (1 - share) for earlier in shares), share]
        return NextModel(state=state, shares=normalised(shares))
