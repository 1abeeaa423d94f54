"""Warnings on a comparison: missing cells, short traffic, too few seeds, differing settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from analysis.comparison.data import CellData, ComparisonData, ConditionData, Metric
from analysis.comparison.verdicts import Family, varies
from analysis.formatting import MOST_NAMED, THIN, clean, count, decapitalised, named, plural, shortened
from analysis.statistics.sign_flips import LEAST_FOR_GROUPS, in_two_groups

_FIGURES = re.compile(rf"\d[\d.,{THIN}]*")


def equal_words(metrics: Sequence[Metric], noun: str) -> str:
    """Return the sentence that all arms are equal in some metrics; ``noun`` is the word for an arm."""
    return f"Equal for all {noun}s at every seed: {named([metric.words for metric in metrics])}."


def warnings_of(data: ComparisonData, families: Sequence[Family] = ()) -> list[str]:
    """Return the warnings, each once with its conditions; without ``families``, none on few seeds and on two groups."""
    failed = data.record.failed.items()
    lines = [f"The cell {clean(name, 90)} failed and is missing here: {clean(why, 400)}" for name, why in failed]
    if more := len(lines) - MOST_NAMED:
        lines[MOST_NAMED:] = [f"{count(more)} more cells failed."] * (more > 0)
    lines += data.left_out
    if earlier := data.record.last_evaluations_before:
        lines.append(
            f"last_evaluations is {data.record.last_evaluations} here; an earlier call said "
            f"{named([str(number) for number in earlier])}. "
            "Chosen after a look at results it proves less than declared beforehand."
        )
    lines += _warn_unchanged_traffic(data)
    lines += _by_condition(data, lambda one: _warn_condition(one, families, data.arm_word))
    across = [one for one in families if one.compared == "conditions"]
    return [*lines, *_warn_few_seeds(across, "condition"), *_warn_two_groups(families)]


def notices_of(data: ComparisonData) -> list[str]:
    """Return the notices of the runs' own pages; lines that differ only in numbers appear once per condition."""
    return _by_condition(data, _run_notices)


def equal_of(data: ComparisonData) -> list[str]:
    """Return lines on metrics equal for all arms; in a condition with a main metric, only on those with a direction."""

    def say(condition: ConditionData) -> Iterator[str]:
        """Yield the line on one condition, if any."""
        if results := [metric for metric in condition.alike if metric.better or condition.main is None]:
            yield equal_words(results, data.arm_word)

    return _by_condition(data, say)


def untested_of(data: ComparisonData) -> list[str]:
    """Return a line on the metrics that no seed changes, which are not tested; empty if there are none."""
    found: dict[str, bool] = {}
    for one in data.conditions:
        for metric in one.metrics:
            found[metric.words] = found.get(metric.words, False) or varies(metric, one.finals(metric))
    same = [words for words, changes in found.items() if not changes]
    return [f"The same at every seed, so that nothing is tested: {named(same)}."] if same else []


def _by_condition(data: ComparisonData, say: Callable[[ConditionData], Iterable[str]]) -> list[str]:
    """Return the lines that ``say`` gives for conditions, each once; a line not common to all names its conditions."""
    found: dict[str, list[str]] = {}
    for condition in data.conditions:
        for line in say(condition):
            found.setdefault(line, []).append(condition.name)
    return [
        line if len(names) == len(data.conditions) else f"Under {named(names, '; ')}: {line[:1].lower()}{line[1:]}"
        for line, names in found.items()
    ]


def _warn_unchanged_traffic(data: ComparisonData) -> Iterator[str]:
    """Yield a warning if traffic settings vary, but not the recorded traffic, as ``range_m`` if RSUs have their own."""
    used = {entry.traffic for entry in data.record.cells}
    alike: dict[str, list[Mapping[str, object]]] = {}
    for entry in data.record.traffic:
        if entry.folder in used:
            alike.setdefault(entry.sha256, []).append(entry.settings.get("traffic") or {})
    keys = {key: None for group in alike.values() for one in group for key in one if one[key] != group[0].get(key)}
    cure = ' An RSU that names its range keeps it; traffic.rsu = "JUNCTION:RANGE" gives it another.'
    if what := named([f"traffic.{key}" for key in keys]):
        yield f"The recorded traffic is the same, bit for bit, whatever {what} is.{cure * ('range_m' in keys)}"


def _warn_condition(data: ConditionData, families: Sequence[Family], noun: str) -> Iterator[str]:
    """Yield the warnings on one condition: seeds left out, short traffic, few seeds, different settings."""
    if seeds := named([str(seed) for seed in data.mixed_seeds]):
        yield f"Left out, because not all {noun}s replayed the same traffic there: seed {seeds}."
    if not data.cells:
        yield "No cell has finished."
    ours = [one for one in families if one.compared == "arms" and one.within == data.name]
    yield from _warn_short(data, noun)
    yield from _warn_few_seeds(ours, noun, data.against)
    yield from _warn_other_settings(data, noun)


def _run_notices(data: ConditionData) -> Iterator[str]:
    """Yield the runs' notices under a condition; of those that differ only in numbers, the first, with a count."""
    found: dict[str, list[tuple[CellData, str]]] = {}
    for cell in data.cells:
        for line in cell.notices:
            found.setdefault(_FIGURES.sub("#", line), []).append((cell, line))
    for said in found.values():
        cell, line = said[0]
        if len({text for _, text in said}) == 1 and len(said) == len(data.cells):
            yield line
        else:
            example = f"{shortened(cell.entry.arm)}, seed {cell.entry.seed}"
            yield f"In {count(len(said))} of {plural(len(data.cells), 'cell')}, as in {example}: {line}"


def _warn_short(data: ConditionData, noun: str) -> Iterator[str]:
    """Warn of cells whose recorded traffic ended before all rounds were done."""
    short = [cell for cell in data.cells if cell.ended_by == "traffic" and cell.rounds < cell.wanted_rounds]
    if not short:
        return
    counts = [cell.rounds for cell in short]
    span = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    yield (
        f"The recorded traffic ended before all rounds were done in {len(short)} of {plural(len(data.cells), 'cell')} "
        f"(after {span} of {short[0].wanted_rounds} rounds; {noun}s: "
        f"{named(list(dict.fromkeys(cell.entry.arm for cell in short)))}). What is compared of them dates from "
        "that moment. Where that is not meant, record longer traffic or ask for fewer rounds."
    )


def _warn_few_seeds(families: Sequence[Family], noun: str, against: str = "") -> Iterator[str]:
    """Yield a warning if all pairs have too few seeds to be resolved; ``against`` is the reference arm, if any."""
    found = [family.pairs for family in families if family.pairs]
    if not found or any(pair.found.count >= pair.least for pairs in found for pair in pairs):
        return
    pairs = max(found, key=lambda pairs: max(pair.found.count for pair in pairs))
    seeds, least = max(pair.found.count for pair in pairs), pairs[0].least
    among = f"the {pairs[0].tests} pairs {f'with {shortened(against)}' if against else f'of {noun}s'}"
    of = among if pairs[0].tests > 1 else f"two {noun}s"
    yield f"{plural(seeds, 'seed')} can resolve no difference: test and interval of {of} take at least {least}."


def _warn_two_groups(families: Sequence[Family]) -> Iterator[str]:
    """Yield a warning that names the pairs whose intervals are too narrow because their differences form two groups."""
    found = [
        f"{pair.words} in {decapitalised(metric.label)}{f' ({shortened(within)})' * bool(within)}"
        for _, within, metric, pairs in families
        for pair in pairs
        if len(pair.differences) >= LEAST_FOR_GROUPS and in_two_groups(pair.differences)
    ]
    if found:
        yield (
            f"The differences lie in two groups, as where a result jumps at some seeds only: {named(found, '; ')}. An "
            "interval called one of 95 % then covers the true mean less often: at 6, 8 and 10 seeds in 74, 83 and "
            "89 % of studies where one seed in five jumps."
        )


def _warn_other_settings(data: ConditionData, noun: str) -> Iterator[str]:
    """Yield a warning if settings outside ``learning`` differ between cells; ``noun`` is the word for an arm."""
    keys = sorted({key for cell in data.cells for key in cell.settings if not key.startswith("learning.")})
    different = [key for key in keys if len({repr(cell.settings.get(key)) for cell in data.cells}) > 1]
    if different:
        yield f"Not the same for all {noun}s, besides their own settings: {named(different)}."


def what_differs(data: ComparisonData, across: Family) -> str:
    """Return in words which settings, traffic and RSUs differ between an arm's conditions; "" without common seeds."""
    entries = ((cell.entry, cell) for cell in data.cells)
    cells = {(entry.condition, entry.seed): cell for entry, cell in entries if entry.arm == across.within}
    found: dict[str, list[str]] = {}
    for pair in across.pairs:
        both = [(cells.get((pair.first, seed)), cells.get((pair.second, seed))) for seed in data.seeds]
        common = [(first, second) for first, second in both if first is not None and second is not None]
        if common:
            found.setdefault(_difference_words(common, timing_only=data.record.timing_only), []).append(pair.words)
    if len(found) == 1:
        return f"What differs between the conditions: {next(iter(found))}."
    return " ".join(f"What differs in {named(pairs)}: {what}." for what, pairs in found.items())


def _difference_words(common: Sequence[tuple[CellData, CellData]], *, timing_only: bool) -> str:
    """Return settings, traffic and RSUs that differ within pairs of cells, in words; "no setting" if none does."""
    keys: dict[str, None] = {}
    for first, second in common:
        ours, theirs = first.settings, second.settings
        keys |= dict.fromkeys(key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key))
    traffic = any(first.traffic.sha256 != second.traffic.sha256 for first, second in common)
    words = [named(list(keys))] if keys else []
    if traffic:
        learns = ", so that a seed has initial weights and data in common, but not who passes"
        words.append(f"the recorded traffic{learns * (not timing_only)}")
    if places := [one for one in ([cell.traffic.rsus for cell in both] for both in common) if one[0] != one[1]]:
        words.append(f"the RSU (at {places[0][0]} and at {places[0][1]})")
    return "; ".join(words) or "no setting"
