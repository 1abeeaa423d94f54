"""What a reader must know before the numbers: what came to nothing, and the setting that would change it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from analysis.formatting import clean, count, duration, percent, plural, quantity, si
from analysis.loading import RunData
from analysis.statistics.windows import dwell, entries

_MAX_SILENT = 10
_MANY_STALE, _MOST = 1 / 3, 1 / 2
"""From which share of those invited a way to end is reported."""

_STAGES = {
    "left_download": ("while the model came down", "raise link.bandwidth_hz, or widen the range"),
    "left_training": (
        "while they trained",
        "lower learning.steps, raise compute.median_flops, or widen the range",
    ),
    "left_exchange": (
        "while they waited for or exchanged with others",
        "lower round.quorum or exchange.limit_s, or widen the range",
    ),
    "left_upload": ("while the model went up", "raise link.bandwidth_hz, or widen the range"),
}
"""Words and cure for each stage in which a vehicle may leave."""

_STATUS = {
    "running": "The run has not finished: this report shows what had been written when it was made.",
    "interrupted": "The run was interrupted: this report shows the rounds finished until then.",
    "failed": "The run failed: this report shows what had been written until then.",
}


def _status(run: RunData) -> list[str]:
    line = _STATUS.get(run.manifest.status)
    return [line] if line else []


def _finished(run: RunData) -> bool:
    return run.manifest.status == "finished"


def _silent_rsus(run: RunData) -> list[str]:
    # windows are written when they end: only a finished run knows that nobody came
    seen = set(run.windows["rsu_id"].unique())
    silent = [rsu for rsu in run.rsus if rsu.id not in seen and _finished(run)]
    lines = [
        f"RSU {clean(rsu.id, 40)} had no traffic: no vehicle came within {rsu.range_m:g} m of "
        f"({rsu.x_m:.6g}, {rsu.y_m:.6g}). Check its position, its range and the simulated time."
        for rsu in silent[:_MAX_SILENT]
    ]
    if len(silent) > _MAX_SILENT:
        lines.append(f"{len(silent) - _MAX_SILENT} more RSUs had no traffic.")
    return lines


def _no_exchange(run: RunData) -> list[str]:
    if not run.exchange_plan or not _finished(run):
        return []
    if not run.exchanges.is_empty():
        if (run.exchanges["outcome"] == "completed").any():
            return []
        return [
            (
                f"None of {plural(run.exchanges.height, 'exchange')} between vehicles completed: "
                "each contact ended first. Raise exchange.range_m, exchange.limit_s or link.bandwidth_hz, or set "
                "exchange.relay=true."
            )
        ]
    return [
        (
            "No exchange between vehicles took place, though this learner has one: no two vehicles of a round were in "
            "contact. Check exchange.range_m, exchange.relay and round.quorum."
        )
    ]


def _over_early(run: RunData) -> list[str]:
    """Return what is to be said where the rounds were over before most vehicles could have crossed the disc."""
    if not run.learning or not _finished(run) or run.manifest.ended_by != "rounds" or run.windows.is_empty():
        return []
    found = dwell(run.windows)
    if 2 * found.cut <= found.windows:
        return []
    made = run.manifest.traffic
    took = duration((run.manifest.time_s or made.begin_s) - made.begin_s)
    filled = made.kind == "gaussian" or run.experiment.traffic.warmup_s
    fill = "" if filled else ", or let the net fill first (--warmup SECONDS)"
    return [f"The rounds were over after {took}, sooner than most vehicles leave: raise rounds{fill}."]


def _ways_out(run: RunData) -> list[str]:
    """Return what is to be said of how participations ended."""
    invited = run.participations.filter(pl.col("outcome") != "not_selected")
    if not _finished(run) or not run.learning or run.windows.is_empty():
        return []
    if invited.is_empty():
        return ["No vehicle was invited: check the range of the RSU and the simulated time."]
    ended = dict(invited.group_by("outcome").len().iter_rows())
    total, lines = invited.height, []
    if not ended.get("committed"):
        lines.append(
            f"None of {plural(total, 'invited participation')} committed: the model is as it was at the beginning."
        )
    stale = ended.get("stale", 0)
    staleness, most = run.experiment.round.max_staleness, run.experiment.round.invited
    # with 0 every round drops whoever took up a place late: that is how it works, and the page's figure says how much
    if staleness > 0 and stale >= _MANY_STALE * total:
        lines.append(
            f"{count(stale)} of {count(total)} invited were too stale, still at work when their round closed: raise "
            f"round.max_staleness (now {count(staleness)}) or invite fewer (round.invited, now {count(most)})."
        )
    late = ended.get("deadline", 0)
    if late >= _MOST * total:
        lines.append(
            f"{count(late)} of {count(total)} invited were cut off by the round's deadline: raise round.deadline_s."
        )
    left = {name: ended[name] for name in _STAGES if name in ended}
    if sum(left.values()) >= _MOST * total:
        stage = max(left, key=lambda name: left[name])
        words, cure = _STAGES[stage]
        cure = cure.replace("raise link.bandwidth_hz", _faster_link(run))
        lines.append(
            f"{count(sum(left.values()))} of {count(total)} invited left before they had finished, "
            f"{count(left[stage])} of them {words}: {cure} (traffic.range_m, or the scenario's own)."
        )
    return lines


def _faster_link(run: RunData) -> str:
    """Return what makes the links of a run faster: the settings of the built-in radio models do nothing to others."""
    model, radio = str(run.experiment.link.get("model", "tr37885")), run.manifest.plugins.get("radio")
    name = clean(radio.name, 40) if radio else "given"
    own = f"check the rates of the radio model '{name}', which are in bit/s"
    return {"tr37885": "raise link.bandwidth_hz", "constant": "raise link.rate_bps"}.get(model, own)


def _rounded_up(value: float) -> float:
    """Return a number >= 0 of two digits, at least as large."""
    digits = 1 - math.floor(math.log10(value)) if value > 0 else 0
    return math.ceil(round(value * 10.0**digits, 6)) / 10.0**digits


def _sharp(run: RunData) -> list[str]:
    """Return what is to be said where no vehicle's images were blurred."""
    speeds = entries(run.windows)["entry_speed_mps"]
    who = "vehicle"
    if run.learning:
        speeds = run.participations.filter(pl.col("outcome") == "committed")["speed_mps"].drop_nulls()
        who = "vehicle that committed"
    if speeds.is_empty():
        return []
    fastest = float(speeds.max())  # type: ignore[arg-type]
    kernel = run.camera.kernel_px(fastest, run.image_px)
    threshold = run.experiment.blur.threshold_kmh
    if run.learning and fastest * 3.6 <= threshold and kernel > 1:
        return [
            (
                f"All training images stayed sharp: no {who} was faster than blur.threshold_kmh, {threshold:g} km/h. "
                "Lower it, or take faster traffic."
            )
        ]
    if kernel > 1:
        return []
    needed = run.camera.exposure_s / kernel if kernel > 0 else 0.0
    cure = (
        f"raise camera.exposure_s (now {run.camera.exposure_s:g}) above {_rounded_up(needed):g}, or take faster traffic"
    )
    return [
        f"All images stay sharp: at {quantity(fastest * 3.6, 'km/h')}, the fastest {who}, the motion kernel is "
        f"{quantity(kernel, 'px')} long and only one above 1 px changes an image of {run.image_px} px"
        + (f": {cure}." if kernel > 0 else ".")
    ]


def _equal_after_all(run: RunData) -> list[str]:
    """Return what is to be said where a speed limit of the learner's struck nobody."""
    learner = run.manifest.learner
    limit = learner.settings.get("limit_kmh") if learner and learner.name == "discard" else None
    if not isinstance(limit, int | float) or not _finished(run):
        return []
    speeds = run.participations.filter(pl.col("outcome") == "committed")["speed_mps"].drop_nulls()
    if speeds.is_empty() or float((speeds * 3.6).max()) > limit:  # type: ignore[arg-type]
        return []
    return [
        (
            f"Nobody above {limit:g} km/h committed, so discard weighed all updates equally, as fedavg does: lower "
            "learning.limit_kmh, or take faster traffic."
        )
    ]


def _mostly_sharp(run: RunData) -> list[str]:
    """Return what is to be said where a median vehicle's images are sharp though the fastest ones' are not."""
    speeds = entries(run.windows)["entry_speed_mps"]
    if speeds.is_empty() or _sharp(run):
        return []
    sharp = float((run.camera.kernel_px(1.0, run.image_px) * speeds <= 1).mean())  # type: ignore[arg-type]
    if sharp < 0.95:
        return []
    return [
        (
            f"{percent(sharp, 0)} of the vehicles are too slow to blur an image of {run.image_px} px: raise "
            f"camera.exposure_s (now {run.camera.exposure_s:g})."
        )
    ]


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


def _radio(run: RunData) -> list[str]:
    return [one.warning for one in rates(run) if one.warning]


_KINDS: tuple[Callable[[RunData], list[str]], ...] = (
    _status,
    _silent_rsus,
    _no_exchange,
    _over_early,
    _ways_out,
    _equal_after_all,
    _sharp,
    _mostly_sharp,
    _radio,
)


def notices(run: RunData) -> list[str]:
    """Return one line for each thing that a reader must know, for the top of the page and the end of the terminal."""
    return [line for kind in _KINDS for line in kind(run)]
