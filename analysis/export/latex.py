"""Escaped LaTeX of text and tables: nothing that users wrote becomes a command."""

from __future__ import annotations

import re
from collections.abc import Sequence

from analysis.formatting import Table

_COMMANDS = {
    "\\": r"\textbackslash{}", "{": r"\textbraceleft{}", "}": r"\textbraceright{}",
    "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\textquotedbl{}", "\u202f": r"\,", "\u00a0": "~", "\u2212": "$-$",
    "\u2013": r"\textendash{}", "\u2014": r"\textemdash{}", "\u2026": r"\ldots{}", "\u00b1": r"$\pm$",
    "\u00d7": r"$\times$", "\u00b5": r"$\mu$", "\u2229": r"$\cap$", "\u00ad": "", "\u2018": "`", "\u2019": "'",
}  # fmt: skip
_LATIN = frozenset(map(chr, (*range(32, 127), *range(0xA1, 0x180)))) - set(
    "\u0126\u0127\u0138\u013f\u0140\u0149\u0166\u0167\u017f"
)
"""Characters that pdfLaTeX can set in the encoding T1."""
_COLUMN, _PAGE, _LETTER_PT = 56, 116, 4.3
"""Letters of 8 pt that fit one column and two columns, and the width of a letter."""
_SHORT = 22
"""Shortest line (letters) to which texts are wrapped for a table to fit in one column."""
_MOST_LINES = 52
"""Most lines of a table on a page; a longer table is split."""
_SUPERSCRIPTS = "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079\u207b"
_COMMANDS |= {letter: f"$^{{{digit}}}$" for letter, digit in zip(_SUPERSCRIPTS, "0123456789-", strict=True)}
_HYPHENS = re.compile("-(?=-)")
"""Hyphens that LaTeX would join to a dash, as in ``--option``."""
_CITED = re.compile(r"\[@([\w-]+)\]")


def escape_latex(text: object) -> str:
    """Return LaTeX that prints a text; letters that are not Latin become their code point, [U+6F22]."""
    return _HYPHENS.sub("-{}", "".join(map(_escape_letter, str(text).replace("\n", " "))))


def _escape_letter(letter: str) -> str:
    """Return LaTeX that prints a character; its code point if the encoding T1 lacks it, ? if it is unprintable."""
    if letter in _COMMANDS:
        return _COMMANDS[letter]
    if letter in _LATIN:
        return letter
    return f"[U+{ord(letter):04X}]" if letter.isprintable() else "?"


def markdown_to_latex(text: str) -> str:
    """Return a paragraph of Markdown as LaTeX, with ``[@key]`` as a citation; other markup is printed as it is."""
    parts = _CITED.split(text.strip())  # text and keys alternate
    return "".join(rf"\cite{{{part}}}" if place % 2 else escape_latex(part) for place, part in enumerate(parts)) + "\n"


def booktabs(table: Table, label: str) -> str:
    """Return a table in LaTeX for the package booktabs, with title and note as caption, and the label ``tab:label``.

    A table wider than a column spans the page, with its longest columns wrapped. A table longer than a page is split.
    """
    rows = (table.head, *table.rows)
    letters = [max(len(row[column]) for row in rows) for column in range(len(table.head))]
    between = 2 * len(letters)
    most = _wrap_limit(letters, _COLUMN - between)
    wide = most < min(_SHORT, max(letters))
    if wide:
        most = _wrap_limit(letters, _PAGE - between)
    numeric = [all(not row[column][:1].isalpha() for row in table.rows) for column in range(len(letters))]
    wrapped = rf">{{\raggedright\arraybackslash}}p{{{most * _LETTER_PT:.0f}pt}}"
    columns = "".join(
        wrapped if one > most else "r" if right else "l" for one, right in zip(letters, numeric, strict=True)
    )
    parts: list[list[tuple[str, ...]]] = [[]]
    lines = 0
    for row in table.rows:
        high = max(-(-len(text) // most) for text in row)
        if lines + high > _MOST_LINES and parts[-1]:
            parts.append([])
            lines = 0
        parts[-1].append(row)
        lines += high
    caption = ". ".join(escape_latex(text) for text in (table.title, table.note) if text)
    star = "*" if wide else ""
    made = []
    for place, part in enumerate(parts):
        texts = [_format_row(row, most) for row in (table.head, *part)]
        made += [
            rf"\begin{{table{star}}}", r"\centering\footnotesize\setlength{\tabcolsep}{4pt}",
            rf"\caption{{{caption if not place else escape_latex(f'{table.title}, continued')}}}",
            *([] if place else [rf"\label{{tab:{label}}}"]), rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule", texts[0], r"\midrule", *texts[1:], r"\bottomrule", r"\end{tabular}",
            rf"\end{{table{star}}}", "",
        ]  # fmt: skip
    return "\n".join(made)


def _wrap_limit(letters: Sequence[int], room: int) -> int:
    """Return the width (letters) to which columns of ``letters`` letters each must be wrapped to fit into ``room``."""
    most = max(letters)
    while most > 1 and sum(min(one, most) for one in letters) > room:
        most -= 1
    return most


def _format_row(row: Sequence[str], most: int) -> str:
    """Return a table row in LaTeX; words of more than ``most`` letters may break over lines."""
    text = " & ".join(_format_cell(cell, most) for cell in row)
    # the command before would read a bracket as its argument, and a star as its starred form
    return ("{}" if text.startswith(("[", "*")) else "") + text + r" \\"


def _format_cell(text: str, most: int) -> str:
    """Return a cell in LaTeX; words of more than ``most`` letters may break over lines."""
    words = (
        r"\allowbreak{}".join(escape_latex(word[at : at + 8]) for at in range(0, len(word), 8))
        if len(word) > most
        else escape_latex(word)
        for word in text.split(" ")
    )
    return " ".join(words)
