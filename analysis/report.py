"""The report of a run: ``report.html``, one self-contained file, and its figures as SVG files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from analysis.formatting import clean, timestamp
from analysis.headline import headline
from analysis.loading import RunData, load
from analysis.plots.blur import blur_speed_panel, level_panel
from analysis.plots.exchanges import exchange_panels
from analysis.plots.learning import series_panels, silo_panel
from analysis.plots.occupancy import occupancy_panel
from analysis.plots.participation import outcome_panel, spent_panel, timeline_panel, weight_panel
from analysis.plots.place import map_panel
from analysis.plots.traffic import chord_panel, dwell_panel, speed_panel
from analysis.record import record
from analysis.samples import sample_strips
from analysis.style import Panel, inline, styled
from vnetsim.run_directory import write_atomically


@dataclass(frozen=True, kw_only=True)
class ReportResult:
    """Where the report lies, and its headline numbers as labels and values with units."""

    path: Path
    headline: list[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class Placed:
    """A panel and its place in the page: ``layout`` is a list of classes of the style sheet."""

    panel: Panel
    layout: str


@dataclass(frozen=True, kw_only=True)
class Section:
    """A titled group of panels."""

    title: str
    panels: tuple[Panel, ...]

    @property
    def items(self) -> list[Placed]:
        """The panels that have a figure, narrow ones in pairs from the end and one left over beside its caption."""
        placed: list[Placed] = []
        for wide, group in groupby((panel for panel in self.panels if panel.svg), key=lambda panel: panel.wide):
            row = list(group)
            if wide:
                placed += [Placed(panel=panel, layout="wide") for panel in row]
                continue
            placed += [Placed(panel=panel, layout=f"alone {panel.name}") for panel in row[: len(row) % 2]]
            placed += [Placed(panel=panel, layout="half") for panel in row[len(row) % 2 :]]
        return placed

    @property
    def missing(self) -> list[Panel]:
        """The panels replaced by a sentence."""
        return [panel for panel in self.panels if not panel.svg]


def sections(run: RunData) -> dict[str, Section]:
    """Draw every figure that this kind of run has, by section."""
    with styled():
        result = {
            "map": Section(title="Place", panels=(map_panel(run),)),
            "traffic": Section(
                title="Traffic in coverage",
                panels=(occupancy_panel(run), speed_panel(run), dwell_panel(run), chord_panel(run)),
            ),
            "blur": Section(title="Blur", panels=(level_panel(run), blur_speed_panel(run))),
        }
        if run.learning:
            result["participations"] = Section(
                title="Who takes part",
                panels=(timeline_panel(run), outcome_panel(run), weight_panel(run), spent_panel(run)),
            )
            if not run.exchanges.is_empty():
                result["exchanges"] = Section(title="Exchange between vehicles", panels=tuple(exchange_panels(run)))
            result["learning"] = Section(title="Learning", panels=tuple(series_panels(run)))
            result["data"] = Section(title="Data", panels=(silo_panel(run),))
    return result


def _warnings(run: RunData) -> list[str]:
    status = run.manifest["status"]
    lines = []
    if status == "running":
        lines.append("The run has not finished: this report shows what had been written when it was made.")
    elif status == "interrupted":
        lines.append("The run was interrupted: this report shows the rounds finished until then.")
    elif status == "failed":
        lines.append("The run failed: this report shows what had been written until then.")
    seen = set(run.windows["rsu_id"].unique())
    # windows are written when they end: only a finished run knows that nobody came
    silent = [rsu for rsu in run.rsus if rsu.id not in seen and status == "finished"]
    lines += [
        f"RSU {clean(rsu.id, 40)} had no traffic: no vehicle came within {rsu.range_m:g} m of "
        f"({rsu.x_m:.6g}, {rsu.y_m:.6g}). Check its position, its range and the simulated time."
        for rsu in silent[:10]
    ]
    if len(silent) > 10:
        lines.append(f"{len(silent) - 10} more RSUs had no traffic.")
    if run.exchange_plan and run.exchanges.is_empty() and status == "finished":
        lines.append(
            "No exchange between vehicles took place, though this learner has one: no two vehicles of a round were in "
            "contact. Check exchange.range_m, exchange.relay and round.quorum."
        )
    return lines


@cache
def environment() -> jinja2.Environment:
    """Return the templates of pages; what users named is escaped."""
    result = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    result.filters["inline_svg"] = lambda svg: Markup(inline(svg))  # noqa: S704 - matplotlib escaped its text
    return result


def tile(label: str, value: str) -> tuple[str, str, str]:
    """Split what stands in brackets from a headline value, to be shown smaller."""
    main, bracket, detail = value.partition(" (")
    return label, main, detail.removesuffix(")") if bracket else ""


def _title(run: RunData) -> str:
    scenario = clean(Path(str(run.experiment.get("scenario", "run")).replace("\\", "/")).name or "run", 60)
    if not run.learning:
        return f"{scenario}: traffic and blur"
    return f"{scenario}: {clean(run.learner.get('name') or run.experiment.get('learner', 'learner'), 40)}"


def write_figures(folder: Path, parts: Mapping[str, Section]) -> None:
    """Write ``figures/*.svg`` and remove those that are no longer drawn."""
    for section in parts.values():
        for panel in section.panels:
            path = folder / "figures" / f"{panel.name}.svg"
            if panel.svg:
                write_atomically(path, panel.svg.encode())
            else:
                path.unlink(missing_ok=True)


def build_report(run: Path) -> ReportResult:
    """Write ``report.html`` and ``figures/*.svg`` into the run directory ``run``, each atomically.

    The same directory gives the same bytes.

    Raises:
        InputError: not a run directory, or one of its files is damaged.
        RunError: the directory cannot be written.
    """
    data = load(run)
    parts = sections(data)
    numbers = headline(data)
    context: dict[str, Any] = {
        "title": _title(data),
        "created": timestamp(data.manifest.get("created")),
        "kind": "Learning run" if data.learning else "Mobility run",
        "manifest": data.manifest,
        "tiles": [tile(label, value) for label, value in numbers],
        "warnings": _warnings(data),
        "notes": [clean(note, 400) for note in data.manifest["traffic"].get("notes") or ()],
        "sections": parts,
        "strips": sample_strips(data),
        "record": record(data),
        "experiment": data.experiment_text,
    }
    page = environment().get_template("report.html.j2").render(context)
    write_figures(run, parts)
    path = run / "report.html"
    write_atomically(path, page.encode("utf-8", "replace"))
    return ReportResult(path=path, headline=numbers)
