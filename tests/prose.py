"""Lint prose: no banned phrase in code or Markdown, and at most one docstring line for what is private.

``make lint`` runs it; it prints ``path:line: fault`` and exits with 1 if there is any.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("vnetsim", "learners", "analysis", "docs", "scenarios")

BANNED = {
    "anew": "again",
    "but for": "except",
    "came by": "passed",
    "comes by": "passes",
    "for it may": "because it may",
    "give way": "is replaced",
    "gives way": "is replaced",
    "in whose": "split the sentence",
    "is told of": "name who reports what",
    "of which": "split the sentence",
    "of whose": "split the sentence",
    "take note": "record",
    "takes note": "records",
    "told apart": "distinguished",
    "what it takes to": "what ... needs",
    "what stands": "name the thing",
    "whatever stands": "name the thing",
}
"""Phrases that readers had to read twice, and what to write."""

NOT_YET = (
    "CHANGELOG.md",
    "scenarios/bench/local_only.py",
)
"""Files and folders that are not checked; delete a line once its folder passes."""

_PHRASE = re.compile(
    r"\b(" + "|".join(phrase.replace(" ", r"[\s#>]+") for phrase in BANNED) + r")\b",
    re.IGNORECASE,
)
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def banned_phrases(text: str) -> Iterator[tuple[int, str]]:
    """Yield line numbers and faults."""
    for match in _PHRASE.finditer(text):
        phrase = re.sub(r"[\s#>]+", " ", match[1]).lower()
        yield text.count("\n", 0, match.start()) + 1, f'"{phrase}": {BANNED[phrase]}'


def long_private_docstrings(text: str) -> Iterator[tuple[int, str]]:
    """Yield line numbers and faults; private are also members of private classes and functions inside functions."""
    waiting: list[tuple[ast.AST, bool]] = [(ast.parse(text), False)]
    while waiting:
        parent, private = waiting.pop()
        for node in ast.iter_child_nodes(parent):
            inside = private
            if isinstance(node, _Definition):
                inside |= node.name.startswith("_") and not node.name.endswith("__")
                inside |= isinstance(parent, ast.FunctionDef)
                docstring = ast.get_docstring(node) or ""
                if inside and "\n" in docstring:
                    yield node.lineno, f"{node.name}: private, so one docstring line at most"
            waiting.append((node, inside))


def faults(path: Path) -> list[tuple[int, str]]:
    """Return the faults of a file by line."""
    text = path.read_text(encoding="utf-8")
    found = [*banned_phrases(text)]
    if path.suffix == ".py":
        found += long_private_docstrings(text)
    return sorted(found)


def main() -> int:
    """Print all faults and return the exit status."""
    paths = {*ROOT.glob("*.md"), *ROOT.glob("*.py")}
    for source in SOURCES:
        paths.update(path for path in (ROOT / source).rglob("*") if path.suffix in {".md", ".py"})
    count = 0
    for path in sorted(paths):
        name = path.relative_to(ROOT).as_posix()
        if any(f"{name}/".startswith(f"{skipped}/") for skipped in NOT_YET):
            continue
        for line, fault in faults(path):
            print(f"{name}:{line}: {fault}")
            count += 1
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
