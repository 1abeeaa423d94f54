"""Outcomes of invitations and blur of committed images, for one run or for several runs as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.formatting import THIN, count, percent, plural, quantity
from analysis.loading import RunData

ROAD = ("left_download", "left_training", "left_upload")
EXCHANGE = ("left_exchange",)
RULE = ("stale", "deadline")
_ENDS = {
    "were lost because the vehicle left coverage": ROAD,
    "were lost because it left coverage while it exchanged models with others, or waited for them": EXCHANGE,
    "were ended by a rule of the round (too late, or its deadline)": RULE,
    "were still going on when the run ended": ("unfinished",),
    "were rejected because the update was not finite": ("rejected",),
}


def share_words(share: float) -> str:
    """Return a share in whole per cent; one below 0.5 %, but not 0, as "under 1 %"; NaN as a dash."""
    return f"under 1{THIN}%" if 0 < share < 0.005 else percent(share, 0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Invitations:
    """Outcomes of invitations, and blur of committed updates."""

    outcomes: Counter[str] = field(default_factory=Counter)  # number of invitations by outcome
    handed_over: int = 0  # number of participations that went on at another RSU
    # motion kernel of the images of each committed update, 0 if the settings keep them sharp
    kernels_px: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    image_px: int = 0  # side of an image

    @property
    def total(self) -> int:
        """Number of invitations."""
        return self.outcomes.total()

    def share(self, *outcomes: str) -> float:
        """Return the share of the invitations with one of these outcomes, in [0, 1]; NaN without invitations."""
        return sum(self.outcomes[one] for one in outcomes) / self.total if self.total else np.nan

    @property
    def road_share(self) -> float:
        """Share of the invitations whose vehicle left coverage or went on at another RSU; NaN without invitations."""
        return self.share(*ROAD, *EXCHANGE) + self.handed_over / self.total if self.total else np.nan

    @property
    def blurred(self) -> NDArray[np.float64]:
        """The motion kernels above 1 px (px); shorter ones change no image."""
        return self.kernels_px[self.kernels_px > 1]

    @property
    def what_decided(self) -> str:
        """Shares of commits and of other outcomes, largest first, in words, not capitalised; needs an invitation."""
        of = f"of {plural(self.total, 'invitation')}"
        if self.outcomes["committed"] == self.total:
            return f"{of} all ended in a committed update"
        lost = Counter({words: sum(self.outcomes[one] for one in ends) for words, ends in _ENDS.items()})
        parts = [f"{share_words(some / self.total)} {words}" for words, some in lost.most_common() if some]
        if self.handed_over:
            parts.append(f"{share_words(self.handed_over / self.total)} went on at another RSU")
        return ", ".join([f"{of} {share_words(self.share('committed'))} ended in a committed update", *parts])

    @property
    def how_blurred(self) -> str:
        """Number of committed updates from blurred images, and their median blur, in words; empty without commits."""
        if not len(self.kernels_px):
            return ""
        if not len(self.blurred):
            return "the images of all committed updates were sharp"
        return (
            f"the images of {count(len(self.blurred))} of {plural(len(self.kernels_px), 'committed update')} were "
            f"blurred, by {quantity(float(np.median(self.blurred)), 'px')} of {self.image_px} in the median"
        )


def invitations_of(run: RunData) -> Invitations:
    """Return a run's outcomes and blur; ``handed_over`` without those lost later, kernels of known speeds only."""
    speeds_mps = run.participations.filter(outcome="committed")["speed_mps"].drop_nulls().to_numpy()
    blurs = (speeds_mps * 3.6 > run.experiment.blur.threshold_kmh) & (run.experiment.blur.fraction > 0)
    lost = pl.col("fate").is_in([*ROAD, *EXCHANGE])
    return Invitations(
        outcomes=Counter(run.invited["outcome"].to_list()),
        handed_over=run.handovers.filter(~lost)["participation"].n_unique(),
        kernels_px=np.where(blurs, run.experiment.camera.kernel_px(1.0, run.image_px) * speeds_mps, 0.0),
        image_px=run.image_px,
    )


def add_invitations(runs: Iterable[Invitations]) -> Invitations:
    """Return the invitations of several runs as one, empty for no run; ``image_px`` is that of the first."""
    found = list(runs)
    return Invitations(
        outcomes=sum((one.outcomes for one in found), Counter()),
        handed_over=sum(one.handed_over for one in found),
        kernels_px=np.concatenate([one.kernels_px for one in found]) if found else np.empty(0),
        image_px=found[0].image_px if found else 0,
    )
