"""What to cite, as BibTeX: the entries of ``references.bib`` that a learner's ``paper`` names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from vnetsim import __version__
from vnetsim.learning import Learner

ALWAYS = ("vnetsim", "sumo")
"""Entries that every use of the simulator cites."""


def references(learners: Sequence[type[Learner]]) -> list[str]:
    """Return BibTeX entries for vnetsim, SUMO and the papers of learners.

    An entry belongs to a learner whose ``paper`` holds its arXiv number or its title. A learner that names none of them
    has an entry of its own with ``paper`` as it is.
    """
    text = Path(__file__).with_name("references.bib").read_text(encoding="utf-8").replace("@VERSION@", __version__)
    entries = {match[1]: match[0] for match in re.finditer(r"^@\w+\{(\w+),\n.*?^\}", text, re.DOTALL | re.MULTILINE)}
    wanted = dict.fromkeys(ALWAYS)
    own: dict[str, str] = {}
    for learner in learners:
        named = [key for key, entry in entries.items() if key not in ALWAYS and _names(learner.paper, entry)]
        wanted.update(dict.fromkeys(named))
        if learner.paper and not named:
            own[learner.name] = f"@misc{{{learner.name},\n  note = {{{learner.paper}}}\n}}"
    return [*(entries[key] for key in wanted), *own.values()]


def _names(paper: str, entry: str) -> bool:
    eprint, title = _field(entry, "eprint"), _field(entry, "title")
    return bool(eprint and eprint in paper) or _letters(title) in _letters(paper)


def _field(entry: str, name: str) -> str:
    found = re.search(rf"^  {name} = \{{(.*)\}},?$", entry, re.MULTILINE)
    return found[1] if found else ""


def _letters(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())
