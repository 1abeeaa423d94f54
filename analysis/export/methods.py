"""A paragraph on methods for a paper, in Pandoc's Markdown (``[@key]`` is a citation), and references as BibTeX."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from analysis.comparison.data import ComparisonData
from analysis.export.latex import escape_latex
from analysis.formatting import Table, clean, count, duration, named
from analysis.loading import RunData
from analysis.report.record import record, value_words
from vnetsim.storage.structure import flat

_DESCRIBED = ("round", "cost", "silos", "data", "compute", "blur")
_DESCRIBED_FOR_SEVERAL = ("topology", "backhaul", "association", "handover")
"""Tables of settings in the paragraph; the second ones only if there are several RSUs."""
_OMITTED = ("its command", "paper", "input ", "rates between")
_MOST_TRAFFICS = 3
_OF_ONE_RUN = frozenset({"scenario", "seed", "traffic.rsu"})

ALWAYS_CITED = ("vnetsim", "sumo")
"""Keys of entries to cite for every use of the simulator."""

Runs = Mapping[str, RunData]
"""Runs by label: one run has an empty label, a comparison has one cell per arm (and condition, if several)."""


def settings_tables(runs: Runs) -> list[Table]:
    """Return a table of settings equal in all runs, and if runs differ one of the others (not seed, scenario)."""
    settings = {label: flat(tomllib.loads(run.experiment_text)) for label, run in runs.items()}
    keys = dict.fromkeys(key for one in settings.values() for key in one)
    rows = {key: [value_words(one.get(key, "")) or "none" for one in settings.values()] for key in keys}
    shared = [(key, values[0]) for key, values in rows.items() if len(set(values)) == 1]
    others = [(key, *values) for key, values in rows.items() if len(set(values)) > 1 and key not in _OF_ONE_RUN]
    tables = [Table(title="Settings", head=("setting", "value"), rows=shared, note="SI units.")]
    differ = Table(title="Settings in which runs differ", head=("setting", *map(clean, settings)), rows=others)
    return [*tables, differ] if others else tables


def write_methods(runs: Runs, traffics: Sequence[RunData], compared: ComparisonData | None) -> str:
    """Return the paragraph on methods; ``traffics`` are the recordings that the runs replay, or the run itself."""
    first = next(iter(runs.values()))
    lines = [f"Simulated with vnetsim {first.manifest.vnetsim} [@vnetsim]."]
    for run in traffics[:_MOST_TRAFFICS]:
        cited = " [@sumo]" if run.manifest.traffic.kind == "sumo" else ""
        facts = _list_facts(run, "Traffic")
        if compared:  # its runs may end before the traffic does
            facts = facts.replace("simulated time", "recorded from", 1)
        lines.append(f"Scenario {run.scenario}{cited}: {facts}.")
    if len(traffics) > _MOST_TRAFFICS:
        lines.append(f"{count(len(traffics) - _MOST_TRAFFICS)} more traffics were recorded in the same way.")
    if not first.takes_part:
        return " ".join(lines) + "\n"
    for label, run in runs.items():
        if run.manifest.learner is not None:
            entries = bibtex_entries([(run.manifest.learner.name, run.manifest.learner.paper)], run.manifest.vnetsim)
            cited = "".join(f" [@{key}]" for key in entries if key not in ALWAYS_CITED)
            lines.append(f"{clean(label) or 'Learner'}{cited}: {_list_facts(run, 'Learner')}.")
    lines += [f"{title}: {words}." for title in ("Radio", "Computers") if (words := _list_facts(first, title))]
    several = _DESCRIBED_FOR_SEVERAL if len(first.rsus) > 1 else ()
    shared = {row[0]: row[1] for row in settings_tables(runs)[0].rows}
    for table in (*_DESCRIBED, *several, *(("exchange",) if first.exchange_plan else ())):
        setting_words = ", ".join(
            f"{key.partition('.')[2]} = {value}" for key, value in shared.items() if key.startswith(f"{table}.")
        )
        lines += [f"{table.capitalize()}: {setting_words}."] if setting_words else []
    lines += [f"Rounds: at most {shared['rounds']}."] if "rounds" in shared else []
    lines.append(_comparison_words(compared) if compared else f"Seed: {first.manifest.seed}.")
    return " ".join(lines) + "\n"


def _list_facts(run: RunData, title: str) -> str:
    """Return in words ``record``'s facts under a title, as "Traffic", without command, paper, inputs; may be empty."""
    rows = [row for facts in record(run) if facts.title == title for row in facts.rows]
    return "; ".join(f"{name} {value}" for name, value, _ in rows if not name.startswith(_OMITTED))


def _comparison_words(data: ComparisonData) -> str:
    """Return sentences on simulated time, seeds, arms and the test of a comparison."""
    test = "a sign-flip test" if data.record.interval == "sign-flip" else "Student's t"
    last = data.record.last_evaluations
    value = "the last value" if last == 1 else f"the mean of the last {last} evaluations"
    spans = sorted({cell.simulated_s for cell in data.cells})
    lasted = " to ".join(dict.fromkeys(duration(span) for span in (spans[0], spans[-1])))
    return (
        f"Each run simulated {lasted}. Seeds: {', '.join(map(str, data.seeds))}. At each seed all arms "
        f"({named(data.arms)}) replayed the same recorded traffic; compared is {value} of each run, paired by seed, by "
        f"{test}, with p-values (Holm) and intervals (Bonferroni) corrected over the differences in a metric."
    )


def bibtex_entries(papers: Iterable[tuple[str, str]], version: str) -> dict[str, str]:
    """Return BibTeX entries by key: of vnetsim (with its ``version``), SUMO, and the papers of learners.

    ``papers`` are pairs of a learner's name and its ``paper``, a citation in words. Entries are found by the arXiv
    number or title in ``paper``; if there is none, the learner gets a new entry with ``paper`` as its note.
    """
    text = Path(__file__).with_name("references.bib").read_text(encoding="utf-8").replace("@VERSION@", version)
    entries = {match[1]: match[0] for match in re.finditer(r"^@\w+\{(\w+),\n.*?^\}", text, re.DOTALL | re.MULTILINE)}
    wanted = dict.fromkeys(ALWAYS_CITED)
    own: dict[str, str] = {}
    for learner, paper in papers:
        named = [key for key, entry in entries.items() if key not in ALWAYS_CITED and _mentions(paper, entry)]
        wanted.update(dict.fromkeys(named))
        if paper and not named:
            key = re.sub(r"[^\w-]+", "-", learner, flags=re.ASCII)
            own[key] = f"@misc{{{key},\n  note = {{{escape_latex(paper)}}}\n}}"
    return {key: entries[key] for key in wanted} | own


def _mentions(paper: str, entry: str) -> bool:
    """Return whether a learner's ``paper`` contains the arXiv number or the title of a BibTeX entry."""
    fields = dict(re.findall(r"^  (eprint|title) = \{(.*)\},?$", entry, re.MULTILINE))
    paper_letters, title_letters = (re.sub(r"[^a-z0-9]", "", text.lower()) for text in (paper, fields.get("title", "")))
    return ("eprint" in fields and fields["eprint"] in paper) or title_letters in paper_letters
