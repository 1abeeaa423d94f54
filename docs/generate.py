"""Pages of the documentation that are generated from code or rows.

Each function returns a page in Markdown. Nothing here needs MkDocs, so that the tests run it.
"""

from __future__ import annotations

import csv
import dataclasses
import inspect
import json
import re
import runpy
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import vnetsim
from vnetsim.cli.commands import app
from vnetsim.cli.lookup import kinds, word
from vnetsim.experiment import DEFAULT_NAMES, PLUGIN_TABLES, Experiment
from vnetsim.learning import Learner
from vnetsim.learning.kinds import LEARNERS
from vnetsim.plugins import Kind
from vnetsim.radio.models import Tr37885
from vnetsim.runs.assembly import assemble
from vnetsim.setting_texts import MISSING, MOST_WANTED, SettingText, as_toml, description, setting_texts, tables_of
from vnetsim.storage import tables
from vnetsim.storage.structure import flat

ROOT = Path(__file__).resolve().parents[1]


def cli_page() -> str:
    """Return the reference of every command and option."""
    text = str(app.generate_docs(output_format="markdown", recursive=True, heading_level=1, usage_name="vnetsim"))
    text = re.sub(r"^#+ Table of Contents\n.*?(?=^\*\*)", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r" \*\[default: (\(\)|False)\]\*", "", text)
    text = re.sub(r"^(vnetsim .*?) -m \w+", r"\1", text, flags=re.MULTILINE)  # how this process was started
    text = re.sub(r"^# vnetsim$", "# Command line", text, flags=re.MULTILINE)
    text = re.sub(r"^### ", "## ", text, flags=re.MULTILINE)
    return text + (
        "\n## Exit status\n\n"
        "0 done, 1 failed run, 2 wrong input, 75 unfinished, 130 interrupted. An error is one line that says "
        "what, where and what to do; `--debug` shows the traceback as well.\n"
    )


def settings_page() -> str:
    """Return the reference of every setting of an experiment."""
    kinds = tables_of(Experiment)
    texts = {text.key: text for text in setting_texts(Experiment)}
    lines = [
        "# Settings",
        "",
        (
            "`--set table.key=value` sets any of these; the same keys stand in an experiment file, whose paths are "
            "seen from the file's folder, and each run directory holds its resolved `experiment.toml`. Settings come "
            "in this order, the later win: the defaults below, those that the learner brings, the experiment file, the "
            "command line. Every number has bounds, and a refusal says why. What a setting needs to have an effect "
            'stands behind "acts with"; one that has none is refused where you give it, in a study where it has none '
            "in any cell. Values that no source publishes (camera, on-board computers, round policy) are assumptions, "
            "marked as such."
        ),
        "",
        (
            "`vnetsim settings [KEY]` prints the same on the terminal. The settings of a learner, the table "
            "`learning`, are on the [page of the learners](learners.md); those of other plug-ins, the tables "
            f"{', '.join(f'`{table}`' for table in PLUGIN_TABLES)}, on the [page of the plug-ins](plugins.md)."
        ),
        "",
        "Most wanted: " + ", ".join(f"[`{key}`](#{key})" for key in MOST_WANTED if key in texts) + ".",
        "",
        "## The experiment",
        "",
        *_list(text for text in texts.values() if "." not in text.key),
    ]
    for table, kind in kinds.items():
        own = [text for text in texts.values() if text.key.startswith(f"{table}.")]
        lines += [f"## {table}", "", _prose(description(kind)), "", *_list(own)]
    return "\n".join(lines) + "\n"


def learners_page() -> str:
    """Return the reference of every installed learner: equations, source, settings."""
    found = {name: LEARNERS.find(name) for name in LEARNERS.names()}
    lines = [
        "# Learners",
        "",
        "| name | task | what a participation moves |",
        "|---|---|---|",
        *(f"| [`{name}`](#{name}) | {kind.task} | {getattr(kind, 'payload', '')} |" for name, kind in found.items()),
        "",
        (
            "`vnetsim learners NAME` prints what follows on the terminal. Which to take, and how they combine models: "
            "[From traffic to a model](../explanation/overview.md#learners)."
        ),
        "",
    ]
    for name, kind in found.items():
        lines += _learner(name, kind)
    return "\n".join(lines) + "\n"


def _learner(name: str, kind: type[Learner]) -> list[str]:
    lines = [f"## {name}", "", f"*{kind.task}.* {_prose(description(kind))}", "", f"Source: {kind.paper}.", ""]
    if equations := getattr(kind, "equations", ()):
        lines += [*_equations(equations), ""]
    if defaults := getattr(kind, "defaults", {}):
        brought = ", ".join(f"`{key} = {as_toml(value)}`" for key, value in defaults.items())
        lines += [f"General settings with a default of its own: {brought}.", ""]
    for scale, values in getattr(kind, "scales", {}).items():
        listed = ", ".join(f"`{key} = {as_toml(value)}`" for key, value in values.items())
        lines += [f"`--scale {scale}` trains with {listed}.", ""]
    texts = list(setting_texts(kind.Settings, "learning"))
    lines += [f"### Settings of {name}", "", _prose(description(kind.Settings)), "", *_list(texts, prefix=f"{name}.")]
    return lines


def plugins_page() -> str:
    """Return the reference of every installed plug-in of all kinds but learners: equations, source, settings."""
    lines = [
        "# Plug-ins",
        "",
        (
            "What can be swapped, what names it in an experiment, and the table that holds its settings. "
            "`vnetsim plugins [KIND [NAME]]` prints what follows on the terminal. One of your own is a class in a "
            "file: [Plug-ins of your own](../../scenarios/plugins/README.md). `vnetsim check FILE:CLASS` runs a "
            "plug-in in a small simulation or training and checks its protocol: types, bounds, unchanged arguments, "
            "the same result for the same seed, state that resumes. "
            "[`vnetsim.testing.check_plugin`](api.md#vnetsim.testing.check_plugin) does this in a test."
        ),
        "",
        "| kind | named under | its settings | those there are |",
        "|---|---|---|---|",
        *(
            f"| {word(kind)} | `{kind.key}` | `{kind.table}` | {', '.join(_to_plugin(kind, n) for n in kind.names())} |"
            for kind in kinds()
        ),
        "",
    ]
    for kind in kinds():
        if kind is not LEARNERS:  # they have a page of their own
            lines += [f"## {word(kind)}", ""]
            for name in kind.names():
                lines += _plugin(kind, name)
    return "\n".join(lines) + "\n"


def _to_plugin(kind: Kind, name: str) -> str:
    """Return a link to what is said of a plug-in."""
    return f"[`{name}`](learners.md#{name})" if kind is LEARNERS else f"[`{name}`](#{word(kind)}.{name})"


def _plugin(kind: Kind, name: str) -> list[str]:
    found = kind.find(name)
    lines = [f"### {name} {{ #{word(kind)}.{name} }}", ""]
    for paragraph in description(found).split("\n\n"):
        if paragraph.startswith("    "):
            lines += [*_equations(inspect.cleandoc(paragraph).splitlines()), ""]
        else:
            lines += [_prose(re.sub(r"::$", ":", paragraph)), ""]
    lines += [*_equations(getattr(found, "equations", ())), ""]
    lines += [f"Source: {_prose(found.source)}.", ""]
    defaults = getattr(found, "defaults", {})
    if defaults:
        brought = ", ".join(f"`{key} = {as_toml(value)}`" for key, value in defaults.items())
        lines += [f"Settings with a default of its own: {brought}.", ""]
    texts = list(setting_texts(kind.settings_of(found), kind.table, defaults))
    return [*lines, *_list(texts, prefix=f"{word(kind)}.{name}.")] if texts else [*lines, "No settings of its own.", ""]


def _equations(lines: Sequence[str]) -> list[str]:
    return ["``` { .text .equations }", *lines, "```"] if lines else []


def tables_page() -> str:
    """Return the reference of every table: columns, types, units, meanings."""
    lines = [
        "# Tables",
        "",
        (
            "Tables are Parquet; unit and meaning of a column also stand in its field metadata. While a run is under "
            "way, a table that grows lies in pieces in the folder of its name; of a finished run each is one file."
        ),
        "",
        "## Of a run",
        "",
    ]
    for name, columns in tables.TABLES.items():
        lines += _table(name, columns)
    lines += ["## Of a comparison", "", "Each is there as `.parquet` and as `.csv`.", ""]
    for name, columns in tables.COMPARISON_TABLES.items():
        lines += _table(name, columns)
    return "\n".join(lines) + "\n"


def benchmark_page() -> str:
    """Return the tables of the shipped benchmark rows; takes some seconds, for their intervals."""
    text = vnetsim.bench_table(ROOT / "scenarios" / "bench" / "rows")
    head, rest = text.split("\n", 1)
    summary = "What they show: [Benchmark](../explanation/benchmark.md). `vnetsim bench table` prints these rows."
    return "\n".join([head, "", summary, "", *_differences(text), rest])


def results_page() -> str:
    """Return the results of the studies, one row a study and size."""
    rows = runpy.run_path(str(ROOT / "docs" / "results.py"))["results_table"](ROOT / "scenarios" / "studies")
    words = (
        "In words: [What was seen](../explanation/results.md). *Resolves*: the smallest true difference that these "
        "seeds find with 80 % power. Points are percentage points of accuracy; RMSE is of the steering angle. The "
        "study's file lists its *old defaults*."
    )
    return f"# Results of the studies\n\n{words}\n\n{rows}"


def defaults_page() -> str:
    """Return the defaults of the default run with certainty and source, from ``docs/explanation/sources.csv``."""
    values = default_values()
    lines = [
        "# Defaults and their sources",
        "",
        (
            "Values of `vnetsim run scenarios/intersection.sumocfg`; `none`: computed. Settings that are off, follow "
            "another one, or only define a name or unit are not listed. What other values change: "
            "[Defaults](../explanation/defaults.md). Meanings: [Settings](settings.md)."
        ),
        "",
        "| certainty | meaning |",
        "|---|---|",
        *(f"| {word} | {meaning} |" for word, meaning in CERTAINTIES.items()),
        "",
        "| setting | default | certainty | source |",
        "|---|---|---|---|",
    ]
    with (ROOT / "docs" / "explanation" / "sources.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            key = row["setting"]
            lines.append(f"| `{key}` | {values[key]} | {row['certainty']} | {row['source']} |")
    return "\n".join(lines) + "\n"


CERTAINTIES = {
    "standard": "transcriptions of a standard that agree with other simulators' code",
    "one transcription": "of a standard, not compared",
    "derived": "from standard values",
    "memory": "not looked up again",
    "paper": "the method's paper or code",
    "measured": "chosen by runs of vnetsim",
    "assumption": "no source: check it before you publish",
}


def default_values() -> dict[str, str]:
    """Return every setting of the default run, and its value as the page shows it."""
    experiment = assemble(vnetsim.Experiment(ROOT / "scenarios" / "intersection.sumocfg")).experiment
    values = dict(_leaves(experiment)) | {f"radio.{key}": value for key, value in _leaves(Tr37885())}
    return {key: _shown(value) for key, value in values.items()}


def _leaves(settings: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if dataclasses.is_dataclass(value):
            yield from _leaves(value, f"{prefix}{field.name}.")
        elif field.name == "learning" and not prefix:
            yield from flat(value, "learning.").items()
        elif field.name in DEFAULT_NAMES and not prefix:
            yield f"{field.name}.name", DEFAULT_NAMES[field.name]
        elif field.name not in {"scenario", "source", "encoder", "own"}:
            yield prefix + field.name, value


def _shown(value: Any) -> str:
    if value in (None, "", (), {}):
        return "none"
    if isinstance(value, tuple):
        (value,) = value
    if isinstance(value, bool):
        return f"`{json.dumps(value)}`"
    return f"`{value}`" if isinstance(value, str) else f"{value:.3g}".replace("e+0", "e")


def _differences(text: str) -> list[str]:
    """Return a table for each task, an arm a row and a track a column, from the tables of tracks."""
    tables: dict[str, dict[str, dict[str, str]]] = {}
    for section in text.split("\n## ")[1:]:
        for part in section.split("\n### ")[1:]:
            track, arms = section.split(" ", 1)[0], tables.setdefault(part.split("\n", 1)[0], {})
            rows = re.findall(r"^\| ([^|]+) \| [\d.]+(?:; (\S+) \(\S+ to \S+\))?(\\\*)? \|", part, re.MULTILINE)
            for arm, difference, star in rows:
                arms.setdefault(arm, {})[track] = f"**{difference}**" if star else difference or "same"
            for arm, figure in re.findall(r"^Baseline: (\S+), ([\d.]+ ± [\d.]+)", part, re.MULTILINE):
                arms.setdefault(f"baseline {arm}", {})[track] = figure
    lines = ["Difference from the baseline in the first metric; bold: p <= .05; same: equal at every seed.", ""]
    for task, arms in tables.items():
        tracks = sorted({track for row in arms.values() for track in row})
        lines += [f"**{task}**", "", f"| arm | {' | '.join(tracks)} |", f"|{'---|' * (1 + len(tracks))}"]
        lines += [f"| {arm} | {' | '.join(row.get(one, '-') for one in tracks)} |" for arm, row in sorted(arms.items())]
        lines += [""]
    return lines


def _table(name: str, columns: Sequence[tables.Column]) -> list[str]:
    rows = [f"| `{c.name}` | {_type(c)} | {c.unit} | {_cell(c.meaning)} |" for c in columns]
    return [f"### {name}", "", "| column | type | unit | meaning |", "|---|---|---|---|", *rows, ""]


def _type(column: tables.Column) -> str:
    words = {"String": "text", "Int64": "integer", "Float64": "real", "List(Float64)": "list of reals"}
    return words[str(column.dtype)]


def _list(texts: Any, prefix: str = "") -> list[str]:
    """Return settings as a definition list; ``prefix`` makes the anchors of several lists on a page differ."""
    lines: list[str] = []
    for text in texts:
        lines += [*_setting(text, prefix), ""]
    return lines


def _setting(text: SettingText, prefix: str) -> list[str]:
    default = f" = `{text.default}`" if text.default not in ("", MISSING) else ""
    values = ", ".join(filter(None, (text.values.replace(" | ", ", "), text.bounds)))
    if text.default == MISSING:
        values += "; must be given"
    if text.acts:
        values += f". A{text.acts[1:]}"
    return [
        f'<span id="{prefix}{text.key}"></span>`{text.key}`{default}',
        f':   {_prose(text.meaning)}<br><span class="setting-values">{_prose(values)}</span>',
    ]


def _prose(text: str) -> str:
    """Return text of a docstring as Markdown: what would be markup outside of code is escaped."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([*<|\[\]_])", r"\\\1", part) for part in parts)


def _cell(text: str) -> str:
    return _prose(text)
