"""LaTeX of text and tables that users named: nothing in them is a command."""

from __future__ import annotations

import re

from analysis.formatting import Table, clean

_COMMANDS = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\textquotedbl{}", "\u202f": r"\,", "\u00a0": "~", "\u2212": "$-$",
    "\u2013": "--", "\u2026": r"\ldots{}", "\u00b1": r"$\pm$", "\u00d7": r"$\times$", "\u00b5": r"$\mu$",
}  # fmt: skip
_SUPERSCRIPT = re.compile("[\u2070\u00b9\u00b2\u00b3\u2074-\u2079\u207b]+")
_DIGITS = str.maketrans("\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079\u207b", "0123456789-")
_CITED = re.compile(r"\[@([\w-]+)\]")


def escaped(text: object) -> str:
    """Return text that LaTeX sets as it is; letters beyond Latin ones want XeLaTeX or LuaLaTeX."""
    letters = str(text).replace("\n", " ")
    shown = "".join(_COMMANDS.get(letter) or clean(letter).replace("\ufffd", "?") for letter in letters)
    return _SUPERSCRIPT.sub(lambda found: f"$^{{{found[0].translate(_DIGITS)}}}$", shown)


def with_citations(text: str) -> str:
    """Return text of Markdown, in which ``[@key]`` cites, as LaTeX."""
    parts = _CITED.split(text.strip())  # text and keys by turns
    return "".join(rf"\cite{{{part}}}" if place % 2 else escaped(part) for place, part in enumerate(parts)) + "\n"


def booktabs(table: Table, label: str) -> str:
    """Return a table with rules of the package booktabs, its title and note as the caption."""
    wide = sum(max(len(row[column]) for row in (table.head, *table.rows)) for column in range(len(table.head))) > 60
    star = "*" if wide else ""
    numeric = [all(not row[column][:1].isalpha() for row in table.rows) for column in range(len(table.head))]
    rows = [" & ".join(map(escaped, row)) + r" \\" for row in (table.head, *table.rows)]
    caption = ". ".join(escaped(text) for text in (table.title, table.note) if text)
    return "\n".join([
        rf"\begin{{table{star}}}", r"\centering", r"\footnotesize", rf"\caption{{{caption}}}",
        rf"\label{{tab:{label}}}", rf"\begin{{tabular}}{{{''.join('r' if one else 'l' for one in numeric)}}}",
        r"\toprule", rows[0], r"\midrule", *rows[1:], r"\bottomrule", r"\end{tabular}", rf"\end{{table{star}}}", "",
    ])  # fmt: skip
