"""What was run, as a paragraph for a paper; ``[@key]`` cites, as Pandoc's Markdown has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.export.references import ALWAYS_CITED, references
from analysis.formatting import Table, clean, count, named, plural, si
from vnetsim.storage.records import ComparisonRecord, ComputerEntry, ManifestRecord

_TOLD = ("round", "cost", "silos", "data", "compute", "blur")
_TOLD_OF_SEVERAL = ("topology", "backhaul", "association", "handover")
"""Tables of settings that decide who takes part and what is learned, the second ones with several RSUs."""
_MOST_RSUS = 5


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """What a run directory records: ``arm`` is empty for a run, ``settings`` are by dotted key."""

    arm: str
    manifest: ManifestRecord
    settings: Mapping[str, Any]


def in_common(runs: Sequence[Recorded]) -> dict[str, Any]:
    """Return the settings that all runs share, by dotted key."""
    first = runs[0].settings
    return {key: value for key, value in first.items() if all(key in one.settings and one.settings[key] == value
                                                              for one in runs)}  # fmt: skip


def settings_tables(runs: Sequence[Recorded]) -> list[Table]:
    """Return the settings that all runs share, and by arm those in which they differ."""
    same = in_common(runs)
    shared = [(key, _words(value)) for key, value in same.items()]
    arms = list(dict.fromkeys(one.arm for one in runs))
    keys = sorted({key for one in runs for key in one.settings} - set(same) - {"scenario", "seed", "traffic.rsu"})
    values = {(one.arm, key): _words(one.settings.get(key, "")) for one in reversed(runs) for key in keys}
    tables = [Table(title="Settings", head=("setting", "value"), rows=shared, note="SI units.")]
    if keys:
        rows = [(key, *(values[arm, key] for arm in arms)) for key in keys]
        tables.append(Table(title="Settings in which arms differ", head=("setting", *map(clean, arms)), rows=rows))
    return tables


def methods(runs: Sequence[Recorded], traffics: Sequence[Recorded], record: ComparisonRecord | None) -> str:
    """Return the paragraph; ``traffics`` are what the runs replayed, or the only run itself."""
    manifest, same = runs[0].manifest, in_common(runs)
    lines = [
        f"Traffic and learning were simulated together with vnetsim {manifest.vnetsim} [@vnetsim]."
        if manifest.kind == "run"
        else f"Traffic and participation were simulated with vnetsim {manifest.vnetsim} [@vnetsim]; nobody trained.",
        *_traffic(traffics),
        *_learners(runs),
    ]
    if manifest.kind != "mobility":
        lines += [f"Rounds: at most {same['rounds']}."] * ("rounds" in same)
        several = any(len(one.manifest.rsus) > 1 for one in runs)
        exchange = any(one.manifest.learner and one.manifest.learner.cost.exchange for one in runs)
        for table in (*_TOLD, *(_TOLD_OF_SEVERAL if several else ()), *(("exchange",) if exchange else ())):
            told = {key.partition(".")[2]: value for key, value in same.items() if key.startswith(f"{table}.")}
            lines += [f"{table.capitalize()}: {_listed(told)}."] if told else []
        if radio := manifest.plugins.get("radio"):
            lines.append(f"Radio: {clean(radio.name)} ({_listed(radio.settings)}).")
        if manifest.computers:
            lines.append(f"Computers on board: {'; '.join(map(_computer, manifest.computers))}.")
        lines += _compared(runs, record)
    return " ".join(lines) + "\n"


def _traffic(traffics: Sequence[Recorded]) -> list[str]:
    made = [one.manifest for one in traffics]
    names = dict.fromkeys(Path(str(one.settings.get("scenario", ""))).name for one in traffics)
    seeds = dict.fromkeys(str(one.traffic.seed) for one in made if one.traffic.seed is not None)
    versions = dict.fromkeys(clean(one.traffic.version) for one in made if one.traffic.version)
    steps = dict.fromkeys(f"{one.traffic.step_s:g} s" for one in made if one.traffic.step_s)
    spans = dict.fromkeys(f"{one.traffic.begin_s:g} s to {one.time_s:g} s" for one in made if one.time_s is not None)
    cited = " [@sumo]" if any(one.traffic.kind == "sumo" for one in made) else ""
    words = [
        f"scenario {named(list(names))}",
        f"source {named(list(dict.fromkeys(one.traffic.kind for one in made)))}",
        f"{named(list(versions))}{cited}" if versions else "",
        f"step {named(list(steps))}" if steps else "",
        f"traffic {'seed' if len(seeds) == 1 else 'seeds'} {', '.join(seeds)}" if seeds else "",
        f"simulated time {named(list(spans))}" if spans else "",
        f"vehicles {clean(made[0].traffic.vehicles)}" if made[0].traffic.vehicles else "",
    ]
    lines = [f"Traffic: {'; '.join(filter(None, words))}."]
    for rsus in dict.fromkeys(tuple(one.rsus) for one in made):
        places = [f"{clean(one.id)} at ({one.x_m:.1f}, {one.y_m:.1f}) m, range {one.range_m:g} m"
                  for one in rsus[:_MOST_RSUS]]  # fmt: skip
        more = [f"{count(len(rsus) - _MOST_RSUS)} more"] if len(rsus) > _MOST_RSUS else []
        lines.append(f"{plural(len(rsus), 'RSU')}: {'; '.join([*places, *more])}.")
    return lines


def _learners(runs: Sequence[Recorded]) -> list[str]:
    lines = {}
    for one in runs:
        if (learner := one.manifest.learner) is None:
            continue
        cited = [f"[@{key}]" for key in references([learner]) if key not in ALWAYS_CITED]
        cost = learner.cost
        who = f"Arm {clean(one.arm)}: learner" if one.arm else "Learner"
        moved = f"{si(cost.download_bytes, 'B')} down, {si(cost.upload_bytes, 'B')} up"
        lines[one.arm] = (
            f"{who} {' '.join([clean(learner.name), *cited])}, encoder {clean(learner.encoder)} with "
            f"{count(learner.parameters)} parameters; {_listed(learner.settings)}; a participation is charged "
            f"{moved} and {si(cost.work_flop, 'FLOP')}."
        )
    return list(lines.values())


def _compared(runs: Sequence[Recorded], record: ComparisonRecord | None) -> list[str]:
    seeds = [str(seed) for seed in dict.fromkeys(one.manifest.seed for one in runs)]
    if record is None:
        return [f"Seed: {seeds[0]}."]
    test = "a sign-flip test" if record.interval == "sign-flip" else "Student's t"
    last = record.last_evaluations
    value = "the last value" if last == 1 else f"the mean of the last {last} evaluations"
    words = (
        f"Seeds: {', '.join(seeds)}. At each seed all arms replayed the same recorded traffic; compared is {value} of "
        f"each run, paired by seed, by {test}, with p-values and intervals corrected over the pairs of a metric "
        "(Bonferroni)."
    )
    return [words]


def _computer(one: ComputerEntry) -> str:
    return f"{clean(one.preset)} for {one.share:.0%} of the vehicles, median {si(one.median_flops, 'FLOP/s')}"


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{clean(key)} = {_words(value)}" for key, value in values.items())


def _words(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_words, value)) or "none"
    if isinstance(value, Mapping):
        return _listed(value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return clean(value, 200) or "none"


def cited(runs: Sequence[Recorded]) -> dict[str, str]:
    """Return what the paragraph cites, as BibTeX by key."""
    return references([one.manifest.learner for one in runs if one.manifest.learner], runs[0].manifest.vnetsim)
