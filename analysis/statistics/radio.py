"""How often the radio's cap decided a rate: whether distance, path loss and shadowing could matter to a run."""

from __future__ import annotations

from dataclasses import dataclass

from analysis.formatting import count, percent, si
from analysis.loading import RunData


@dataclass(frozen=True, kw_only=True)
class Rates:
    """The rates of one kind of link in a run.

    Args:
        between: whom they connect, in words.
        looked_up: number of rates, > 0.
        capped: how many of them were the cap.
        cap_bps: the cap (bit/s).
    """

    between: str
    looked_up: int
    capped: int
    cap_bps: float

    @property
    def words(self) -> str:
        """What the record says of them."""
        return f"{percent(self.capped / self.looked_up)} of {count(self.looked_up)} at the cap of {self._cap}"

    @property
    def warning(self) -> str:
        """What the reader must know where the cap decided them all; else empty."""
        if self.capped < self.looked_up:
            return ""
        return (
            f"No link between {self.between} ever left its cap: all {count(self.looked_up)} rates were {self._cap} "
            "(link.bandwidth_hz times link.max_spectral_efficiency). Distance, path loss and shadowing made no "
            "difference."
        )

    @property
    def _cap(self) -> str:
        return si(self.cap_bps, "bit/s")


def rates(run: RunData) -> list[Rates]:
    """Return the rates that were used, by kind of link; nothing where none is known or the radio has no cap."""
    radio = run.manifest.radio
    return [
        Rates(between=between, looked_up=use.looked_up, capped=use.capped, cap_bps=radio.cap_bps)
        for between, use in (("RSU and vehicles", radio.links), ("vehicles", radio.sidelinks))
        if radio.cap_bps is not None and use is not None and use.looked_up > 0
    ]
