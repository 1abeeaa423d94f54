"""Export of a run or a comparison for a paper: figures, tables, methods, references and inputs."""

from __future__ import annotations

import csv
import io
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import polars as pl
import tomli_w

from analysis.comparison.data import ComparisonData
from analysis.comparison.loading import load_comparison
from analysis.comparison.sections import Compared
from analysis.export.latex import booktabs, escape_latex, markdown_to_latex
from analysis.export.methods import Runs, bibtex_entries, settings_tables, write_methods
from analysis.formatting import Table, clean
from analysis.loading import RunData, load
from analysis.report.headline import headline
from analysis.report.page import Section, sections
from analysis.report.record import record
from analysis.style import HALF_IN, PRINT_IN, print_style
from vnetsim.errors import InputError
from vnetsim.storage.checksums import RECORD
from vnetsim.storage.folder import Folder
from vnetsim.storage.records import COMPARISON
from vnetsim.storage.run_directory import RunDirectory

_VIEW = re.compile(r"""<gui-settings-file\s+value\s*=\s*["']([^"']+)["']""")
"""The view file: it changes no result, but SUMO does not start without it."""

_FLOATS = (
    r"\renewcommand{\topfraction}{.95}\renewcommand{\dbltopfraction}{.95}\renewcommand{\textfraction}{.02}",
    r"\renewcommand{\floatpagefraction}{.85}\renewcommand{\dblfloatpagefraction}{.85}",
    r"\setcounter{topnumber}{9}\setcounter{dbltopnumber}{9}\setcounter{totalnumber}{9}",
    r"\makeatletter\setlength{\@fptop}{0pt}\setlength{\@fpsep}{14pt}\setlength{\@fpbot}{0pt plus 1fil}",
    r"\setlength{\@dblfptop}{0pt}\setlength{\@dblfpsep}{14pt}\setlength{\@dblfpbot}{0pt plus 1fil}\makeatother",
)
"""Float settings with which figures fill pages from the top."""

Files = dict[str, bytes]
"""Contents of files, by path below the new folder."""


def load_runs(folder: Path) -> Runs:
    """Return a run (label ""), or a finished cell per arm and condition, by label; InputError if none is finished."""
    return (
        _one_cell_each(folder, load_comparison(folder))
        if RunDirectory(folder).holds(COMPARISON)
        else {"": load(folder)}
    )


def _one_cell_each(folder: Path, compared: ComparisonData) -> Runs:
    """Load the first finished cell of each arm and condition, by "ARM" or, for several conditions, "ARM, CONDITION"."""
    several = len(compared.conditions) > 1
    names = [(one.entry.arm, one.entry.condition, one.name) for one in reversed(compared.cells)]
    cells = {f"{arm}, {condition}" if several else arm: name for arm, condition, name in names}
    return {label: load(folder / "cells" / cells[label]) for label in reversed(cells)}


def export_paper(folder: Path, to: Path) -> Path:
    """Write the parts of a paper on a run or a comparison into the new or empty folder ``to``, and return ``to``.

    InputError: ``folder`` is no run or comparison or damaged, or ``to`` is not empty. RunError: ``to`` is not writable.
    """
    require_empty(to)
    files = _comparison_files(folder) if RunDirectory(folder).holds(COMPARISON) else _run_files(folder)
    written = Folder(to)
    for name, content in files.items():
        written.write_output(name, content)
    return to


def _run_files(folder: Path) -> Files:
    """Return the files of a run's paper; its figures are drawn for print."""
    run = load(folder)
    with print_style() as pdfs:
        parts = sections(run)
    results = Section(
        id="headline", title="", tables=[Table(title="Results", head=("result", "value"), rows=headline(run))]
    )
    units = {one.name: one.unit for one in run.manifest.series}
    unit = pl.col("name").replace_strict(units, default="", return_dtype=pl.String).alias("unit")
    frames = {"metrics": run.metrics.with_columns(unit), "rounds": run.rounds, "participations": run.participations}
    inputs, input_lines = _collect_inputs(folder, [run])
    names = {path: name for path, (name, _) in inputs.items()}
    names |= {Path(path).name: names[path] for path in run.manifest.plugin_files.values() if path in names}
    moved = _replace_paths(tomllib.loads(run.experiment_text), names)
    input_lines.append("\n`vnetsim run experiment.toml` in this folder runs with the inputs that were copied.")
    files = dict(inputs.values()) | _read_files(folder, ".", "manifest.json")
    files["experiment.toml"] = tomli_w.dumps(moved).encode()
    return _all_files({"": run}, [run], None, run.manifest.command, [results, *parts], pdfs, frames, files, input_lines)


def _comparison_files(folder: Path) -> Files:
    """Return the files of a comparison's paper; its figures are drawn for print."""
    data = load_comparison(folder)
    found = Compared(data)
    with print_style() as pdfs:
        together, across, conditions = found.all_sections()
    parts = [*filter(None, together), *across, *(one for part in conditions for one in part)]
    names = [f"traffic/{Path(one.folder).name}" for one in data.record.traffic]
    traffics = [load(folder / name) for name in names]
    inputs, input_lines = _collect_inputs(folder, traffics)
    files = dict(inputs.values()) | _read_files(folder, ".", COMPARISON)
    for cell in data.cells:
        files |= _read_files(folder, f"cells/{cell.name}", "experiment.toml", "manifest.json")
    for name in names:  # each is a run directory that the cells' experiments replay
        files |= _read_files(folder, name, "experiment.toml", "manifest.json", "windows.parquet", "map.parquet", RECORD)
    runs = _one_cell_each(folder, data)
    return _all_files(runs, traffics, data, data.record.command, parts, pdfs, found.tables(), files, input_lines)


def _all_files(
    runs: Runs,
    traffics: Sequence[RunData],
    compared: ComparisonData | None,
    command: Sequence[str],
    parts: Sequence[Section],
    pdfs: Mapping[str, bytes],
    frames: Mapping[str, pl.DataFrame],
    inputs: Files,
    input_lines: Sequence[str],
) -> Files:
    """Return all files of a paper. ``compared`` is None for a run; ``frames`` become CSV; lines are Markdown."""
    settings = Section(id="settings", title="", tables=settings_tables(runs))
    text, first = write_methods(runs, traffics, compared), next(iter(runs.values()))
    papers = [(one.name, one.paper) for run in runs.values() if (one := run.manifest.learner)]
    files = {f"tables/{name}.csv": frame.write_csv().encode() for name, frame in frames.items()}
    files |= _result_files([*parts, settings], pdfs) | inputs
    files |= {"methods.md": text.encode("utf-8", "replace"), "methods.tex": markdown_to_latex(text).encode()}
    files["references.bib"] = ("\n\n".join(bibtex_entries(papers, first.manifest.vnetsim).values()) + "\n").encode()
    files["reproducibility.md"] = _reproducibility(first, command, input_lines)
    return files


def require_empty(to: Path) -> None:
    """Raise InputError if ``to`` is a file or a folder with content; a missing or empty folder is accepted."""
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise InputError(f"{to}: there is something already; name a new folder.")


def _result_files(parts: Sequence[Section], pdfs: Mapping[str, bytes]) -> Files:
    """Return figures (SVG; PDF of ``pdfs``), tables (LaTeX, CSV), and a two-column LaTeX document with all of them."""
    files, lines = Files(), []
    for section in parts:
        for panel in section.panels:
            if panel.svg:
                for name, svg in panel.drawings.items():
                    files |= {f"figures/{name}.svg": svg.encode(), f"figures/{name}.pdf": pdfs[name]}
                (width_pt,) = re.findall(r'<svg[^>]* width="([\d.]+)pt"', panel.svg)
                star = "*" if float(width_pt) > 72 * PRINT_IN[HALF_IN] + 1 else ""
                caption = escape_latex(f"{panel.title}. {panel.caption}")
                lines.append(
                    rf"\begin{{figure{star}}}\centering\includegraphics{{figures/{panel.name}}}"
                    rf"\caption{{{caption}}}\label{{fig:{panel.name}}}\end{{figure{star}}}"
                )
        for number, table in enumerate(section.tables, 1):
            name = section.id if number == 1 else f"{section.id}-{number}"
            files[f"tables/{name}.tex"] = booktabs(table, name).encode()
            text = io.StringIO()
            csv.writer(text).writerows([table.head, *table.rows])
            files.setdefault(f"tables/{name}.csv", text.getvalue().encode())
            lines.append(rf"\input{{tables/{name}}}")
    document = [
        r"\documentclass[twocolumn,letterpaper]{article}",
        r"\usepackage[textwidth=7.16in,textheight=9.4in,columnsep=0.16in]{geometry}",
        r"\usepackage[T1]{fontenc}", r"\usepackage{lmodern,microtype,array,booktabs,graphicx,textcomp}",
        r"\extrafloats{500}", r"\setlength{\emergencystretch}{2em}", *_FLOATS,
        r"\begin{document}", r"\section{Methods}", r"\input{methods}",
        r"\section{Results}", *lines,
        r"\clearpage", r"\bibliographystyle{plain}", r"\bibliography{references}", r"\end{document}", "",
    ]  # fmt: skip
    return {**files, "document.tex": "\n".join(document).encode()}


def _collect_inputs(folder: Path, traffics: Sequence[RunData]) -> tuple[dict[str, tuple[str, bytes]], list[str]]:
    """Return (new name, content) by path of inputs that are as recorded, and a line of Markdown on each input."""
    # an untrusted folder may name any file of this machine: copy only files with the recorded hash
    found: dict[str, bytes] = {}
    lines = []
    for path, digest in sorted({item for one in traffics for item in one.manifest.inputs.items()}):
        try:
            content = (folder / path).read_bytes() if (folder / path).is_file() else None
        except OSError:
            content = None
        state = "not there any more"
        if content is not None:
            same = sha256(content).hexdigest() == digest
            state = "copied" if same else "changed since, and not copied"
            found |= {path: content} if same else {}
        lines.append(f"- `{clean(path, 400)}`, SHA-256 `{clean(digest, 64)}`: {state}")
    whole = {path: os.path.abspath(folder / path) for path in found}  # noqa: PTH100 - links must stay
    base = os.path.commonpath([os.path.dirname(path) for path in whole.values()]) if found else ""  # noqa: PTH120
    names = {path: Path("inputs", os.path.relpath(whole[path], base)).as_posix() for path in found}
    copied = {path: (names[path], content) for path, content in found.items()}
    for name, content in list(copied.values()):
        for view in _VIEW.findall(content.decode("utf-8", "replace")) if name.endswith(".sumocfg") else ():
            place = os.path.normpath(Path(name).parent / view)
            if place.startswith("inputs/") and place not in names.values():
                copied[place] = place, b"<viewsettings/>\n"
                lines.append(f"- `{clean(view, 400)}`, how sumo-gui shows the scenario, was no input; it is empty here")
    return copied, lines


def _read_files(folder: Path, below: str, *names: str) -> Files:
    """Return contents of named files in ``folder / below``, by path below ``folder``, without missing ones."""
    run = RunDirectory(folder / below)
    return {Path(below, name).as_posix(): (run.path / name).read_bytes() if name == RECORD else run.read_bytes(name)
            for name in names if name == RECORD or run.holds(name)}  # fmt: skip


def _replace_paths(value: Any, names: Mapping[str, str]) -> Any:
    """Return settings with each path in ``names`` replaced by its new name, at any depth, also in ``FILE:CLASS``."""
    if isinstance(value, Mapping):
        return {key: _replace_paths(one, names) for key, one in value.items()}
    if isinstance(value, list):
        return [_replace_paths(one, names) for one in value]
    if isinstance(value, str):
        file, colon, cls = value.rpartition(":")
        return f"{names[file]}:{cls}" if colon and file in names else names.get(value, value)
    return value


def _reproducibility(run: RunData, command: Sequence[str], inputs: Sequence[str]) -> bytes:
    """Return Markdown on how to get the results again; ``inputs`` has one line of Markdown per input."""
    machine = [row for facts in record(run) if facts.title == "Machine and packages" for row in facts.rows]
    lines = [
        "# How to get these results again", "", f"    {clean(' '.join(command), 4000)}", "",
        f"- vnetsim {run.manifest.vnetsim}", *(f"- {name}: {value}" for name, value, _ in machine), "",
        "On a CPU, the same seed, versions and number of threads give the same bits.", "",
        "## Inputs", "", *(inputs or ["None: no file was read."]), "",
    ]  # fmt: skip
    return "\n".join(lines).encode("utf-8", "replace")
