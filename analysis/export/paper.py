"""The parts of a paper: figures, tables, methods, references and inputs of a run or a comparison, in a new folder."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

import polars as pl
import tomli_w

from analysis.comparison.loading import flat, load_comparison
from analysis.comparison.page import Compared
from analysis.export.latex import booktabs, escaped, with_citations
from analysis.export.methods import Recorded, cited, methods, settings_tables
from analysis.formatting import Table, clean
from analysis.loading import load
from analysis.report.headline import headline
from analysis.report.page import Section, sections
from analysis.style import printed
from vnetsim.errors import InputError
from vnetsim.storage.checksums import RECORD
from vnetsim.storage.folder import Folder
from vnetsim.storage.records import COMPARISON
from vnetsim.storage.run_directory import RunDirectory

Files = dict[str, bytes]
"""Contents by path below the folder that is made."""

_MEDIA = {
    ".pdf": "application/pdf", ".svg": "image/svg+xml", ".tex": "application/x-tex", ".csv": "text/csv",
    ".md": "text/markdown", ".json": "application/json", ".xml": "application/xml", ".bib": "application/x-bibtex",
    ".toml": "application/toml", ".parquet": "application/vnd.apache.parquet",
}  # fmt: skip


def runs_of(folder: Path) -> list[Recorded]:
    """Return what a run directory records, or those of a comparison's cells that have finished.

    Raises:
        InputError: it is neither, none of its cells has finished, or its files are damaged.
    """
    if not RunDirectory(folder).holds(COMPARISON):
        return [_recorded("", folder)]
    record, compared = RunDirectory(folder).comparison_record(), load_comparison(folder)
    arms = {Path(cell.folder).name: cell.arm for cell in record.cells}
    return [_recorded(arms[cell.name], folder / "cells" / cell.name) for cell in compared.cells]


def export_paper(folder: Path, to: Path) -> Path:
    """Write what a paper needs of a run or a comparison into the folder ``to``, and return ``to``.

    Raises:
        InputError: neither a run nor a comparison, damaged, or ``to`` holds something.
        RunError: ``to`` cannot be written.
    """
    refuse_what_is_there(to)
    source, runs = RunDirectory(folder), runs_of(folder)
    compared = Compared(load_comparison(folder)) if source.holds(COMPARISON) else None
    files, record, traffics = Files(), None, runs
    with printed() as pdfs:
        if compared is None:
            data = load(folder)
            parts = sections(data)
            parts[0:0] = [_table_section("headline", Table(title="Results", head=("", ""), rows=headline(data)))]
            frames = {"metrics": data.metrics, "rounds": data.rounds, "participations": data.participations}
        else:
            together, across, conditions = compared.all_sections()
            parts = [*filter(None, together), *across, *(one for part in conditions for one in part)]
            frames, record = compared.tables(), compared.data.record
            names = [f"traffic/{Path(one.folder).name}" for one in record.traffic]
            traffics = [_recorded("", folder / name) for name in names]
    parts.append(_table_section("settings", *settings_tables(runs)))
    files |= {f"tables/{name}.csv": frame.write_csv().encode() for name, frame in frames.items() if _flat_only(frame)}
    files |= _shown(parts, pdfs)
    text = methods(runs, traffics, record)
    bibliography = "\n\n".join(cited(runs).values()) + "\n"
    files |= {"methods.md": text.encode(), "methods.tex": with_citations(text).encode()}
    files["references.bib"] = bibliography.encode()
    copied, told = _inputs(folder, traffics)
    files |= dict(copied.values())
    if record is None:
        moved = _moved(source.settings()[0], {path: name for path, (name, _) in copied.items()})
        files |= {"experiment.toml": tomli_w.dumps(moved).encode(), **_files(folder, ".", "manifest.json")}
    else:
        files |= _files(folder, ".", COMPARISON)
        for one in compared.data.cells if compared else ():
            files |= _files(folder, f"cells/{one.name}", "experiment.toml", "manifest.json")
        for name in names:  # a run directory each, which the cells' experiments replay
            files |= _files(folder, name, "experiment.toml", "manifest.json", "windows.parquet", "map.parquet", RECORD)
    files["reproducibility.md"] = _reproducibility(runs, record.command if record else runs[0].manifest.command, told)
    files["ro-crate-metadata.json"] = _crate(runs, files)
    written = Folder(to)
    for name, content in files.items():
        written.write_output(name, content)
    return to


def refuse_what_is_there(to: Path) -> None:
    """Refuse a folder that holds something.

    Raises:
        InputError: it does, or it is a file.
    """
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise InputError(f"{to}: there is something already; name a new folder.")


def _recorded(arm: str, folder: Path) -> Recorded:
    run = RunDirectory(folder)
    return Recorded(arm=arm, manifest=run.manifest_record(), settings=flat(run.settings()[0]))


def _table_section(name: str, *tables: Table) -> Section:
    return Section(id=name, title=name, tables=tables)


def _flat_only(frame: pl.DataFrame) -> bool:
    return not any(isinstance(kind, pl.List) for kind in frame.schema.values())


def _shown(parts: Sequence[Section], pdfs: Mapping[str, bytes]) -> Files:
    """Return figures, tables, and a document of two columns that shows them all."""
    files, lines = Files(), []
    for section in parts:
        for panel in section.panels:
            if panel.svg:
                files |= {
                    f"figures/{panel.name}.svg": panel.svg.encode(),
                    f"figures/{panel.name}.pdf": pdfs[panel.name],
                }
                star = "*" if panel.wide else ""
                caption = escaped(f"{panel.title}. {panel.caption}")
                lines.append(
                    rf"\begin{{figure{star}}}\centering\includegraphics[max width=\linewidth]{{figures/{panel.name}}}"
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
        r"\documentclass[twocolumn,letterpaper]{article}", r"\usepackage[textwidth=7.16in,columnsep=0.16in]{geometry}",
        r"\usepackage[T1]{fontenc}", r"\usepackage{booktabs,graphicx,textcomp}", r"\usepackage[export]{adjustbox}",
        r"\extrafloats{500}",
        r"\begin{document}", r"\section{Methods}", r"\input{methods}",
        r"\section{Results}", *lines,
        r"\clearpage", r"\bibliographystyle{plain}", r"\bibliography{references}", r"\end{document}", "",
    ]  # fmt: skip
    return {**files, "document.tex": "\n".join(document).encode()}


def _inputs(folder: Path, traffics: Sequence[Recorded]) -> tuple[dict[str, tuple[str, bytes]], list[str]]:
    """Return the inputs that are still what they were, by path, with their new names; and a line on each.

    A folder may come from anybody and name any file here: only what has the recorded hash is copied.
    """
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
    return {path: (names[path], content) for path, content in found.items()}, lines


def _files(folder: Path, below: str, *names: str) -> Files:
    """Return files of a folder as they are, those that are there."""
    run = RunDirectory(folder / below)
    found = {name: (run.path / name).read_bytes() if name == RECORD else run.read_bytes(name)
             for name in names if name == RECORD or run.holds(name)}  # fmt: skip
    return {Path(below, name).as_posix(): content for name, content in found.items()}


def _moved(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _moved(one, names) for key, one in value.items()}
    if isinstance(value, list):
        return [_moved(one, names) for one in value]
    return names.get(value, value) if isinstance(value, str) else value


def _reproducibility(runs: Sequence[Recorded], command: Sequence[str], inputs: Sequence[str]) -> bytes:
    manifest = runs[0].manifest
    seeds = ", ".join(dict.fromkeys(str(one.manifest.seed) for one in runs))
    device, threads = (clean(manifest.device.get(key, "none")) for key in ("name", "threads"))
    host = ", ".join(f"{key} {value}" for key, value in manifest.host.items())
    lines = [
        "# How to get these results again", "", f"    {clean(' '.join(command), 4000)}", "",
        f"- vnetsim {manifest.vnetsim}",
        *(f"- {clean(name)} {clean(version)}" for name, version in manifest.packages.items()),
        f"- computed on: {clean(host, 400)}",
        f"- device {device}, threads {threads}",
        f"- runs: {len(runs)}, seeds {seeds}",
        "", "On a CPU, the same seed, versions and number of threads give the same bits.",
        "", "## Inputs", "", *(inputs or ["None: no file was read."]), "",
    ]  # fmt: skip
    if len(runs) == 1 and not runs[0].arm:
        lines += ["`vnetsim run experiment.toml` in this folder runs with the inputs that were copied.", ""]
    return "\n".join(lines).encode("utf-8", "replace")


def _crate(runs: Sequence[Recorded], files: Files) -> bytes:
    """Return RO-Crate 1.1 metadata: what each file is, and what made them."""
    manifest = runs[0].manifest
    parts = [
        {"@id": quote(name), "@type": "File", "name": name, "contentSize": str(len(content)),
         "encodingFormat": _MEDIA.get(Path(name).suffix, "application/octet-stream")}
        for name, content in sorted(files.items())
    ]  # fmt: skip
    graph: list[dict[str, Any]] = [
        {"@id": "ro-crate-metadata.json", "@type": "CreativeWork", "about": {"@id": "./"},
         "conformsTo": {"@id": "https://w3id.org/ro/crate/1.1"}},
        {"@id": "./", "@type": "Dataset", "name": f"Results of {Path(str(runs[0].settings.get('scenario', ''))).name}",
         "description": "Figures, tables, methods and inputs of simulations of vehicles that learn, by vnetsim.",
         "datePublished": manifest.finished or manifest.created or "", "license": "Stated by whoever publishes it.",
         "hasPart": [{"@id": part["@id"]} for part in parts], "mentions": {"@id": "#made"}},
        {"@id": "#made", "@type": "CreateAction", "name": "simulation", "instrument": {"@id": "#vnetsim"},
         "startTime": manifest.created or "", "endTime": manifest.finished or "", "result": {"@id": "./"}},
        {"@id": "#vnetsim", "@type": "SoftwareApplication", "name": "vnetsim", "softwareVersion": manifest.vnetsim},
        *parts,
    ]  # fmt: skip
    document = {"@context": "https://w3id.org/ro/crate/1.1/context", "@graph": graph}
    return json.dumps(document, indent=1, ensure_ascii=False).encode("utf-8", "replace")
