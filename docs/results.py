"""Tables of the studies' results: ``python docs/results.py`` writes them into the pages that show them.

``scenarios/studies/results.csv`` has a row for each study and size; its figures are those of the study's page, which a
test checks. A study without a ``result`` has ``scenarios/studies/rows/STUDY-SIZE.csv`` and a table on its own page.

A page shows a table between the lines ``<!-- results.py: NAME -->`` and ``<!-- end -->``; NAME is a key of ``TABLES``.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "scenarios/studies/README.md", "scenarios/studies/headline.md")
BLOCK = re.compile(r"(?<=<!-- results\.py: )(\w+)( -->\n).*?(?=<!-- end -->)", re.DOTALL)
HEADLINE = "headline"
_METHOD = "another method: FedEFM (GTSRB), FedCo (CIFAR-10)"
_FEWER_STEPS = "about half the local steps"
FINDING = {
    "data by Dirichlet 0.1": "few classes in each car",
    "FedEFM": _METHOD,
    "FedCo": _METHOD,
    "invite the fastest to finish": "invite whoever will finish first",
    "sharp camera - as shipped": "a camera without blur",
    "control: half the steps": _FEWER_STEPS,
    "control: two steps of five": _FEWER_STEPS,
}
"""Changes of the study ``headline`` that the README shows, in plain words."""

Row = Mapping[str, str]


def read(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file by column; an empty field is an empty text."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _interval(row: Row) -> str:
    low, high = (_figure(row[end], row["unit"]) if row[end] else "unbounded" for end in ("low", "high"))
    return f"{_figure(row['difference'], row['unit'])} ({low} to {high})"


def _reversed(row: Row) -> Row:
    """Return a row whose difference has the other sign."""
    ends = {"difference": row["difference"], "low": row["high"], "high": row["low"]}
    return {**row, **{name: str(-float(text)) if text else "" for name, text in ends.items()}}


def _figure(text: str, unit: str) -> str:
    """Return a number as the pages write it: a fraction in points, errors without the leading zero."""
    value = float(text)
    if unit == "%":
        return f"{100 * value:.1f}".replace("-0.0", "0.0")
    if unit in ("RMSE", "MAE"):
        return re.sub(r"^(-?)0\.", r"\1.", f"{value:.3f}").replace("-.000", ".000")
    return f"{value:.2g}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    first, *others = [f"| {' | '.join(line)} |\n" for line in (head, *rows)]
    return f"{first}|{'---|' * len(head)}\n{''.join(others)}"


def results_table(studies: Path) -> str:
    """Return the results, for the generated page of results; of a study with recorded images, only theirs.

    Raises:
        ValueError: a study has neither a result nor a row file, or both.
    """
    found = read(studies / "results.csv")
    recorded = {row["study"] for row in found if not _is_drawn(row)}
    rows, last = [], ""
    for row in found:
        name = row["study"]
        file = studies / "rows" / f"{name}-{row['size']}.csv"
        if bool(row["result"]) == file.is_file():
            raise ValueError(f"results.csv: {name}, {row['size']}: needs either a result or {file.name}")
        if file.is_file():
            measured = read(file)
            seeds = "\u2013".join(sorted({one["seeds"] for one in measured}, key=int))
            row |= {"result": "table of its page", "seeds": seeds}
        if _is_drawn(row) and name in recorded:
            continue
        link = f"[`{name}`](../../scenarios/studies/{name}.md)" if name != last else ""
        last = name
        rows.append((link, _scale(row), row["result"], row["resolves"] or "\u2013", row["note"]))
    head = ("study", "network, images, seeds", "difference (95 % interval)", "resolves", "measured with")
    return table(head, rows)


def _is_drawn(row: Row) -> bool:
    return row["images"].startswith("drawn ") or row["images"] == "gratings"


def _scale(row: Row) -> str:
    return f"{row['network']}, {row['images']}, {row['seeds']}"


def studies_table(studies: Path) -> str:
    """Return what each study asks, for the page of the studies."""
    rows = {row["study"]: row["asks"] for row in reversed(read(studies / "results.csv")) if row["asks"]}
    return "".join(f"- [`{name}.toml`]({name}.md): {asks}\n" for name, asks in reversed(rows.items()))


def headline_table(studies: Path, words: Mapping[str, str] | None = None) -> str:
    """Return the results of the study ``headline``: a line for each change, a column for each size.

    With ``words`` only the changes among them, in their order, called by them, and no number of seeds.
    """
    sizes = [row for row in read(studies / "results.csv") if row["study"] == HEADLINE and not row["result"]]
    lines: dict[str, dict[str, str]] = {name: {} for name in (words or {}).values()}
    seeds: dict[str, str] = {}
    for row in sizes:
        for found in read(studies / "rows" / f"{HEADLINE}-{row['size']}.csv"):
            change, value = found["first"], _interval(found)
            if found["compared"] == "conditions":  # what is changed comes second there
                change, value = f"{found['second']} - {change}", _interval(_reversed(found))
            seeds[row["size"]] = found["seeds"]
            if words is None or change in words:
                line = lines.setdefault(words[change] if words else change, {})
                line[row["size"]] = f"**{value}**" if found["verdict"] else value
    head = (f"{row['images']}, {row['arms']}" + ("" if words else f", {seeds[row['size']]} seeds") for row in sizes)
    return table(
        ("change", *head),
        [(change, *(values.get(row["size"], "\u2013") for row in sizes)) for change, values in lines.items()],
    )


TABLES: dict[str, Callable[[Path], str]] = {
    "studies": studies_table,
    HEADLINE: headline_table,
    "finding": lambda studies: headline_table(studies, FINDING),
}


def with_tables(text: str, studies: Path = ROOT / "scenarios" / "studies") -> str:
    """Return a page with its tables generated again; everything else stays."""
    return BLOCK.sub(lambda match: f"{match[1]}{match[2]}{TABLES[match[1]](studies)}", text)


if __name__ == "__main__":
    for name in PAGES:
        page = ROOT / name
        page.write_text(with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")
