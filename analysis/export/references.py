"""References as BibTeX, from ``references.bib`` beside this file."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from analysis.export.latex import escape_latex

ALWAYS_CITED = ("vnetsim", "sumo")
"""Keys of entries to cite for every use of the simulator."""


def references(papers: Iterable[tuple[str, str]], version: str) -> dict[str, str]:
    """Return BibTeX entries for a version of vnetsim, SUMO and the papers of learners, by key.

    ``papers`` are pairs of a learner's name and its ``paper``. An entry belongs to a learner if ``paper`` contains its
    arXiv number or its title. A learner without such an entry gets a new one with ``paper`` as its note.
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
    eprint, title = _field(entry, "eprint"), _field(entry, "title")
    return bool(eprint and eprint in paper) or _letters(title) in _letters(paper)


def _field(entry: str, name: str) -> str:
    """Return the value of a field of a BibTeX entry; empty if it has none."""
    found = re.search(rf"^  {name} = \{{(.*)\}},?$", entry, re.MULTILINE)
    return found[1] if found else ""


def _letters(text: str) -> str:
    """Return only the letters and digits of a text, in lower case."""
    return re.sub(r"[^a-z0-9]", "", text.lower())
