"""Print results, settings and plug-ins as tables on standard output.

Names come from data, so all text passes through ``plain``, which replaces control characters.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.table import Table
from rich.text import Text

from vnetsim.plugins import Kind
from vnetsim.setting_texts import SettingText, as_toml, description, setting_texts
from vnetsim.standard_streams import plain

if TYPE_CHECKING:
    from vnetsim.api.results import TableText

_TEXT_WIDTH = 100


def _text(words: str, style: str = "") -> Text:
    """Return words as text for rich, with control characters replaced; markup in them is not interpreted."""
    return Text(plain(words), style)


def print_headline(headline: Sequence[tuple[str, str]], notices: Sequence[str], last: str, *, title: str) -> None:
    """Print a table of (label, value with unit), notes on them, and a last line."""
    console = Console()
    table = Table(title=_text(title), show_header=False, title_justify="left", title_style="bold")
    for label, value in headline:
        table.add_row(_text(label), _text(value))
    console.print(table)
    for line in notices:
        console.print(_text(f"note: {line}"))
    print(plain(last))


def print_results(
    tables: Sequence[TableText], notes: Sequence[str], page: Path, *, title: str, kind: str = "comparison"
) -> None:
    """Print tables, notes, and a last line ``kind: page``, where ``kind`` says what the page's path is."""
    console = Console()
    console.print(_text(title, style="bold"))
    for name, head, rows, note in tables:
        console.print()
        console.print(_text(name))
        for line in _align([[plain(cell) for cell in row] for row in (head, *rows)]):
            console.print(_text(line), soft_wrap=True)
        if note:
            console.print(_text(note))
    console.print()
    for line in notes:
        console.print(_text(line))
    print(plain(f"{kind}: {page}"))


def _align(rows: Sequence[Sequence[str]], width: int = 80) -> list[str]:
    """Return lines with aligned columns; a first cell that is alone or does not fit ``width`` has its own line."""
    others = [max(map(cell_len, column)) for column in list(zip(*rows, strict=True))[1:]]
    whole = {row[0] for row in rows if not any(row[1:])}  # first cells of headings, whose other cells are empty
    room = max(width - sum(others) - 2 * len(others), 10)
    first = max((cell_len(row[0]) for row in rows if row[0] not in whole and cell_len(row[0]) <= room), default=4)
    lines = []
    for name, *cells in rows:
        if name in whole or cell_len(name) > first:
            lines.append(name)
        if name not in whole:
            label = name if cell_len(name) <= first else ""
            padded = [set_cell_size(text, size) for text, size in zip((label, *cells), (first, *others), strict=True)]
            lines.append("  ".join(padded).rstrip())
    return lines


def print_settings(tables: Sequence[tuple[str, str, Sequence[SettingText]]]) -> None:
    """Print tables of settings: heading and description (both may be empty), and settings."""
    console = Console()
    width = min(console.width, _TEXT_WIDTH)
    for index, (heading, about_it, texts) in enumerate(tables):
        if index:
            console.print()
        if heading:
            console.print(_text(heading, style="bold"))
        for paragraph in filter(None, about_it.split("\n\n")):
            _print_wrapped(console, paragraph, width)
            if texts:
                console.print()
        for text in texts:
            console.print(Text.assemble((plain(text.key), "bold"), plain(f" = {text.default}" if text.default else "")))
            for words in (text.meaning, ", ".join(filter(None, (text.values, text.bounds))), text.acts):
                _print_wrapped(console, words, width, indent=4)


def print_plugins(kind: Kind, word: str, found: Mapping[str, type[Any]]) -> None:
    """Print ``word``, how to choose a plug-in of the kind, then each in ``found`` with its first paragraph."""
    console = Console()
    width = min(console.width, _TEXT_WIDTH)
    console.print(_text(word, style="bold"))
    named = f"{kind.key} = NAME, or path/to/file.py:CLASS; its settings: table {kind.table}"
    _print_wrapped(console, named, width, indent=2)
    room = max(map(len, found), default=0) + 4
    for name, plugin in found.items():
        said = " ".join(description(plugin).split("\n\n")[0].split()) or plugin.source
        said = ": ".join(filter(None, (getattr(plugin, "task", ""), said)))
        head, space = f"  {name}".ljust(room), " " * room
        for line in textwrap.wrap(said, width, initial_indent=head, subsequent_indent=space, break_on_hyphens=False):
            console.print(_text(line), soft_wrap=True)
    console.print()


def print_plugin(kind: Kind, plugin: type[Any]) -> None:
    """Print a plug-in's docstring, equations, source, class, settings, and the defaults that it brings."""
    console = Console()
    width = min(console.width, _TEXT_WIDTH)
    console.print(_text(f"{plugin.name}: {kind.name}", style="bold"))
    for paragraph in filter(None, description(plugin).split("\n\n")):
        if any(line.startswith("    ") for line in paragraph.splitlines()):
            console.print(_text(paragraph), soft_wrap=True)  # equations and tables
        else:
            _print_wrapped(console, paragraph, width)
        console.print()
    for equation in getattr(plugin, "equations", ()):
        console.print(_text(f"    {equation}"), soft_wrap=True)
    for part in ("task", "payload"):
        if words := getattr(plugin, part, ""):
            _print_wrapped(console, f"{part}: {words}", width)
    _print_wrapped(console, f"source: {getattr(plugin, 'source', '') or getattr(plugin, 'paper', '')}", width)
    console.print(_text(f"class: {_locate_class(plugin)}"), soft_wrap=True)
    defaults = getattr(plugin, "defaults", {})
    console.print()
    settings = kind.settings_of(plugin)
    texts = list(setting_texts(settings, kind.table, defaults))
    print_settings([(f"[{kind.table}]", "" if settings is plugin else description(settings).split("\n\n")[0], texts)])
    if not texts:
        console.print(_text("no settings of its own"))
    others = {key: value for key, value in defaults.items() if not key.startswith(f"{kind.table}.")}
    brought = {"defaults that it brings for other settings": others}
    brought |= {f"defaults of --scale {name}": values for name, values in getattr(plugin, "scales", {}).items()}
    for title, values in brought.items():
        if values:
            console.print(_text(f"\n{title}", style="bold"))
        for key, value in values.items():
            console.print(_text(f"{key} = {as_toml(value)}"), soft_wrap=True)


def _locate_class(plugin: type[Any]) -> str:
    """Return FILE:CLASS for a class of a plug-in file, MODULE:CLASS for one of an installed package."""
    module = sys.modules[plugin.__module__]
    loaded_from_file = module.__spec__ is None
    return f"{module.__file__}:{plugin.__name__}" if loaded_from_file else f"{plugin.__module__}:{plugin.__qualname__}"


def _print_wrapped(console: Console, words: str, width: int, indent: int = 0) -> None:
    """Print words in lines of at most ``width`` columns, ``indent`` of them blank; longer words are not broken."""
    space = " " * indent
    for line in textwrap.wrap(
        words, width, initial_indent=space, subsequent_indent=space, break_long_words=False, break_on_hyphens=False
    ):
        console.print(_text(line), soft_wrap=True)
