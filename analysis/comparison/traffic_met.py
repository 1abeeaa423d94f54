"""Vehicles that drove past, outcomes of invitations, and whether the runs of an arm met the traffic.

Runs meet the traffic if they last at least a median dwell and lose at least ``LEAST_LOST`` of the invitations to the
road: the vehicle left coverage, or went on at another RSU.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.comparison.data import CellData, ComparisonData
from analysis.comparison.pairs import ComparedPair
from analysis.comparison.verdicts import Family
from analysis.formatting import MOST_NAMED, NONE, THIN, Table, count, duration, named, number, plural, shortened
from analysis.report.invitations import EXCHANGE, ROAD, RULE, Invitations, add_invitations, share_words
from analysis.statistics.windows import Dwell

LEAST_LOST = 0.05
"""Least share of invitations lost to the road for which a run has met the traffic."""
_MANY = 0.2
_MOST_SENTENCES = 4
_ABOUT_ENDS = (
    "Shares of the invitations of all cells together. Left: the vehicle left coverage while it downloaded, trained or "
    "uploaded. Rule: too late for its round, or cut off by its deadline. At end: still going on when the run ended."
)
_BANDWIDTH = {"tr37885": "radio.bandwidth_hz", "constant": "radio.rate_bps"}


@dataclass(frozen=True, kw_only=True, eq=False)
class ArmRuns:
    """An arm's finished cells and all their invitations under a condition, which is empty if there is only one."""

    arm: str
    condition: str
    cells: Sequence[CellData]
    invitations: Invitations

    @property
    def name(self) -> str:
        """The arm, with its condition if there are several conditions."""
        return f"{shortened(self.arm)}, {shortened(self.condition)}" if self.condition else shortened(self.arm)

    @property
    def lasted_s(self) -> float:
        """Median simulated time of the cells (s)."""
        return float(np.median([cell.simulated_s for cell in self.cells]))

    @property
    def dwell(self) -> Dwell | None:
        """Dwell in the recorded traffic, of several the middle; None if unknown, or if no vehicle leaves coverage."""
        known = [cell.traffic.dwell for cell in self.cells if cell.traffic.dwell is not None]
        left = sorted((one for one in known if one.cut < one.windows), key=lambda one: one.at_least_s)
        return left[len(left) // 2] if left else None

    @property
    def short(self) -> bool:
        """Whether the runs lasted less than the median dwell; False if ``dwell`` is None."""
        return self.dwell is not None and self.lasted_s < _bound_s(self.dwell)

    @property
    def hardly_lost(self) -> bool:
        """Whether the road ended under ``LEAST_LOST`` of the invitations; False without invitations or ``dwell``."""
        return self.dwell is not None and self.invitations.road_share < LEAST_LOST

    @property
    def figures(self) -> str:
        """The arm's name and, in brackets, why its runs are ``short`` or ``hardly_lost``; one of these must be True."""
        words = []
        if self.hardly_lost:
            lost = share_words(self.invitations.road_share)
            words.append(f"{lost} of {plural(self.invitations.total, 'invitation')} lost to the road")
        if self.short and self.dwell:
            words.append(f"runs of {duration(self.lasted_s)}, median dwell {self.dwell.median}")
        return f"{self.name} ({'; '.join(words)})"


def _bound_s(dwell: Dwell) -> float:
    """Return the median dwell (s), or a lower bound of it if the median is not finite."""
    return dwell.median_s if math.isfinite(dwell.median_s) else dwell.at_least_s


def arm_runs(data: ComparisonData) -> list[ArmRuns]:
    """Return an item per condition and arm with finished cells; ``condition`` is empty if there is only one."""
    several = len(data.conditions) > 1
    return [
        ArmRuns(
            arm=arm,
            condition=one.name if several else "",
            cells=one.of(arm),
            invitations=add_invitations(cell.invitations for cell in one.of(arm)),
        )
        for one in data.conditions
        for arm in one.present
    ]


def who_drove_past(data: ComparisonData) -> str:
    """Return a sentence on the vehicles in a run and their median time in range; empty if either is unknown."""
    vehicles = [cell.vehicles for cell in data.cells if cell.vehicles]
    dwells = [cell.traffic.dwell for cell in data.cells if cell.traffic.dwell is not None]
    if not vehicles or not dwells:
        return ""
    seconds = [_bound_s(one) for one in dwells]
    unseen = "more than " * any(math.isinf(one.median_s) for one in dwells)
    return (
        f"{_span([count(pick(vehicles)) for pick in (min, max)])} vehicles drove past in a run, in range for {unseen}"
        f"{_span([number(pick(seconds)) for pick in (min, max)])}{THIN}s in the median."
    )


def _span(ends: Sequence[str]) -> str:
    """Return "a to b" for a pair of texts; one of them if both are equal."""
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def what_decided(runs: Sequence[ArmRuns], *, learning: bool) -> list[str]:
    """Return a sentence on the invitations of each item, with blur if ``learning``; from five items on, one on all."""
    known = [one for one in runs if one.invitations.total]
    if len(known) <= _MOST_SENTENCES:
        lines = []
        for one in known:
            blurred = one.invitations.how_blurred if learning else ""
            lines.append(f"{one.name}: {one.invitations.what_decided}{'; ' * bool(blurred)}{blurred}.")
        return lines
    shares = {
        "ended in a committed update": ("committed",),
        "were lost because the vehicle left coverage": (*ROAD, *EXCHANGE),
        "were ended by a rule of the round": RULE,
        "were still going on when the run ended": ("unfinished",),
    }
    parts = []
    for words, outcomes in shares.items():
        found = [one.invitations.share(*outcomes) for one in known]
        parts.append(f"{_span([share_words(pick(found)) for pick in (min, max)])} {words}")
    return [f"Of the invitations of an arm {', '.join(parts)}: see Who takes part."]


def decided_table(runs: Sequence[ArmRuns], title: str, noun: str, *, learning: bool) -> Table:
    """Return the outcomes of invitations by arm, over all its cells; ``learning`` adds columns on blur.

    Outcomes that never occurred have no column, except committed, left and rule.
    """
    ends = {"committed": ("committed",), "left": ROAD, "exchange": EXCHANGE, "rule": RULE,
            "at end": ("unfinished",), "rejected": ("rejected",)}  # fmt: skip
    always = ("committed", "left", "rule")
    shown = {
        head: outcomes
        for head, outcomes in ends.items()
        if head in always or any(one.invitations.share(*outcomes) > 0 for one in runs)
    }
    moved = any(one.invitations.handed_over for one in runs)
    rows = []
    for one in runs:
        made = one.invitations
        shares = [made.share(*outcomes) for outcomes in shown.values()]
        shares += [made.handed_over / made.total if made.total else math.nan] * moved
        rows.append(
            (one.name, count(made.total), *(share_words(share) for share in shares), *_blur_words(made) * learning)
        )
    notes = [_ABOUT_ENDS]
    if "exchange" in shown:
        notes.append("Exchange: it left coverage while it exchanged models with others, or waited for them.")
    if learning:
        notes.append("Blurred: committed updates whose images had a motion kernel above 1 px; px: its median.")
    return Table(
        title=title,
        head=(noun, "invited", *shown, *["handed over"] * moved, *("blurred", "px") * learning),
        rows=rows,
        note=" ".join(notes),
    )


def _blur_words(made: Invitations) -> tuple[str, str]:
    """Return the number of blurred committed updates and their median motion kernel (px); dashes if there are none."""
    total, blurred = len(made.kernels_px), made.blurred
    if not total:
        return NONE, NONE
    return f"{count(len(blurred))} of {count(total)}", number(float(np.median(blurred))) if len(blurred) else NONE


def not_met(data: ComparisonData, runs: Sequence[ArmRuns]) -> list[str]:
    """Return lines on the runs that did not meet the traffic, and settings that would change it; empty if all did.

    A further line tells under which conditions no vehicle leaves coverage. Empty without training, where such runs are
    results like any others.
    """
    if data.record.timing_only:
        return []
    lines = []
    if still := [one for one in runs if one.dwell is None and any(cell.traffic.dwell for cell in one.cells)]:
        under = list(dict.fromkeys(one.condition for one in still))
        where = f" under {named(under)}" * (len(still) < len(runs))
        lines.append(f"Nobody leaves coverage in the recorded traffic{where}: the road decides nothing there.")
    found = [one for one in runs if one.short or one.hardly_lost]
    if not found:
        return lines
    part = f"{count(len(found))} of {count(len(runs))} {data.arm_word}s"
    who = "This comparison" if len(found) == len(runs) else part
    figures = "; ".join(one.figures for one in found[:MOST_NAMED])
    if len(found) > MOST_NAMED:
        figures += f" and {count(len(found) - MOST_NAMED)} more"
    verdicts = "Their verdicts are withheld."
    if len(found) < len(runs):
        verdicts = "Verdicts between them, and on runs shorter than a dwell, are withheld."
    if all(_has_equal_schedule(one) for one in found):
        verdicts = f"All {data.arm_word}s have one schedule, so verdicts are given, and are on learning alone."
    cures = f"What would change it: {'; '.join(_cures(found))}."
    return [*lines, f"{who} did not meet the traffic: {figures}. {verdicts} {cures}"]


def _has_equal_schedule(one: ArmRuns) -> bool:
    """Return whether all cells have set ``schedule.learner``, which gives them the payload and work of one learner."""
    return all(cell.settings.get("schedule.learner") for cell in one.cells)


def _cures(found: Sequence[ArmRuns]) -> list[str]:
    """Return settings, with their present values, that would make more invitations be lost to the road."""
    cells = [cell for one in found for cell in one.cells]
    made = add_invitations(one.invitations for one in found)
    cures = []
    by_rounds = any(cell.ended_by == "rounds" for cell in cells)
    if by_rounds or any(one.short for one in found) or made.share("unfinished") >= _MANY:
        longest = duration(max(one.lasted_s for one in found))
        how = "--time in place of --rounds" if by_rounds else "--time"
        cures.append(f"more simulated time: {how} (now {longest})")
    if not any(one.hardly_lost for one in found):
        return cures
    if made.share("stale") >= _MANY:
        cures.append(_cure_words(cells, "older updates taken:", "round.max_staleness"))
    if made.share("deadline") >= _MANY:
        cures.append(_cure_words(cells, "a later deadline:", "round.deadline_s"))
    cures.append(_cure_words(cells, "a larger model on the clock:", "cost.model"))
    if all(cell.settings.get("cost.model") not in (None, "trained") for cell in cells):
        cures.append("more images in a local training: cost.images")
    radios = {str(cell.settings.get("radio.name", "tr37885")) for cell in cells}
    cures += [f"a slower link: {_BANDWIDTH[name]}" for name in sorted(radios & set(_BANDWIDTH))]
    if made.share("stale") < _MANY:
        cures.append(_cure_words(cells, "more vehicles that share it:", "round.invited"))
    return cures


def _cure_words(cells: Sequence[CellData], words: str, key: str) -> str:
    """Return ``words`` and a setting's key, with its value if all cells that have the setting agree."""
    values = {str(cell.settings[key]) for cell in cells if key in cell.settings}
    return f"{words} {key}{f' (now {values.pop()})' if len(values) == 1 else ''}"


def withhold(data: ComparisonData, runs: Sequence[ArmRuns], families: Sequence[Family]) -> list[Family]:
    """Return the families, with verdicts withheld on pairs whose runs did not meet the traffic.

    A verdict is withheld if a run of either side was too short, or if too few invitations were lost to the road on both
    sides. If too few were lost on one side only, as for a policy that avoids losses, the road causes the difference.
    Nothing is withheld in a comparison without training. An arm with ``schedule.learner`` in all cells is not judged:
    in its pairs a verdict is withheld only if the other side was too short.
    """
    several = len(data.conditions) > 1
    found = {(one.arm, one.condition): one for one in runs if not _has_equal_schedule(one)}

    def is_unmet(family: Family, pair: ComparedPair) -> bool:
        """Return whether a pair's verdict is to be withheld."""
        sides = [
            (name, family.within if several else "") if family.compared == "arms" else (family.within, name)
            for name in (pair.first, pair.second)
        ]
        both = [found[side] for side in sides if side in found]
        return any(one.short for one in both) or (len(both) == 2 and all(one.hardly_lost for one in both))

    if data.record.timing_only:
        return list(families)
    return [
        family._replace(pairs=[dataclasses.replace(pair, withheld=is_unmet(family, pair)) for pair in family.pairs])
        for family in families
    ]
