"""Write the report of a run: ``report.html``, one self-contained file, and its figures as SVG files."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from itertools import groupby
from pathlib import Path

import jinja2
from markupsafe import Markup

from analysis.formatting import Table, clean, shortened, timestamp
from analysis.loading import RunData, load
from analysis.plots.blur import level_panel, sample_strips
from analysis.plots.exchanges import EXCHANGE_PANELS
from analysis.plots.learning import series_panels, silo_panel
from analysis.plots.participation import outcome_panel, spent_panel, timeline_panel, weight_panel
from analysis.plots.place import map_panel
from analysis.plots.seen import framed_paths, seen_panel, speed_table
from analysis.plots.several_rsus import apart_panel, commits_panel, handover_panel, met_panel, succession_panel
from analysis.plots.traffic import dwell_panel, occupancy_panel, speed_panel
from analysis.report.breakdown import by_rsu, by_type
from analysis.report.headline import finding, headline, leading
from analysis.report.notices import list_assumptions, notices
from analysis.report.playback import playback
from analysis.report.possible import failed_panel, survival_panel, tables
from analysis.report.record import record
from analysis.style import Panel, styled
from vnetsim.storage.folder import Folder


@dataclass(frozen=True, kw_only=True)
class ReportResult:
    """Path of the report, headline numbers (pairs of label and value with unit), and notices, one line each."""

    path: Path
    headline: list[tuple[str, str]]
    notices: list[str]


@dataclass(frozen=True, kw_only=True)
class Section:
    """A titled part of a page: figures, tables, and a text below the tables; ``id`` is its anchor."""

    id: str
    title: str
    panels: Sequence[Panel] = ()
    tables: Sequence[Table] = ()
    below: str = ""

    @property
    def items(self) -> list[tuple[Panel, str]]:
        """Panels with a figure and CSS class: "wide", "half", or "alone NAME" for the first of an odd row."""
        placed = []
        for wide, group in groupby((panel for panel in self.panels if panel.svg), key=lambda panel: panel.wide):
            row = list(group)
            odd = len(row) % 2
            for place, panel in enumerate(row):
                placed.append((panel, "wide" if wide else f"alone {panel.name}" if place < odd else "half"))
        return placed

    @property
    def switched(self) -> bool:
        """Whether a panel also has its curves over other axes (time, bytes), between which readers can switch."""
        return any(panel.against for panel in self.panels)

    @property
    def missing(self) -> list[Panel]:
        """The panels without a figure; their captions say why."""
        return [panel for panel in self.panels if not panel.svg]


def sections(run: RunData) -> list[Section]:
    """Draw all figures that a run of this kind has; return the sections of its page, in order."""
    with styled():
        traffic = [draw(run) for draw in (occupancy_panel, speed_panel, dwell_panel)]
        found = [
            Section(id="map", title="Place", panels=[map_panel(run)], tables=by_rsu(run)),
            Section(id="traffic", title="Traffic in coverage", panels=traffic, tables=by_type(run)),
            Section(id="blur", title="Blur", panels=[level_panel(run)]),
        ]
        if len(run.rsus) > 1:
            several = [met_panel(run), succession_panel(run)]
            if run.takes_part:
                several += [handover_panel(run), commits_panel(run)]
            if run.learning and run.aggregators > 1:
                several.append(apart_panel(run))
            found.insert(1, Section(id="rsus", title="Several RSUs", panels=several))
        if not run.takes_part:
            return found
        if not run.learning:
            could = [survival_panel(run), failed_panel(run)]
            found.insert(0, Section(id="possible", title="Who could take part", panels=could, tables=tables(run)))
        takes_part = [draw(run) for draw in (timeline_panel, outcome_panel, weight_panel, spent_panel)]
        found.append(Section(id="participations", title="Who takes part", panels=takes_part))
        if not run.exchanges.is_empty():
            panels = [draw(run) for draw in EXCHANGE_PANELS]
            found.append(Section(id="exchanges", title="Exchange between vehicles", panels=panels))
        if not run.learning:
            return found
        found.append(Section(id="learning", title="Learning", panels=series_panels(run)))
        if run.samples is not None and run.samples.places:
            table, words = speed_table(run)
            panels = [silo_panel(run), seen_panel(run)]
            found.append(Section(id="data", title="Data", panels=panels, tables=[table], below=words))
        else:
            found.append(Section(id="data", title="Data", panels=[silo_panel(run)]))
    return found


TERMS = {
    "d_z": "mean over standard deviation of the differences",
    "resolves": "the smallest true difference that these seeds resolve with 80 % power, if differences scatter as here",
    "corrected p": "corrected for all that is compared with it (Holm)",
    "Gini": "0 if all silos have as many commits, near 1 if one has all",
    "Contested": "share of the invitations that left somebody waiting who could have been invited instead",
    "Fluctuation": "standard deviation of the training loss from round to round, its trend removed",
    "Wasted": "spent by participations that did not commit",
    "device-seconds": "training time on board, summed over vehicles",
    "long enough": "with a window longer than a participation takes in the median",
}
"""Meanings of terms in table heads, by the head's first words; shown on hover."""

_TEMPLATES = Path(__file__).parents[1] / "templates"


def script(*names: str) -> tuple[Markup, str]:
    """Return the scripts ``templates/NAME.js`` as one, and its SHA-256 (base64) for the page's security policy."""
    text = "\n".join((_TEMPLATES / f"{name}.js").read_text(encoding="utf-8") for name in names)
    return Markup(text), base64.b64encode(sha256(text.encode()).digest()).decode()  # noqa: S704 - our own


@cache
def environment() -> jinja2.Environment:
    """Return the Jinja environment of all pages, always the same object; it escapes names from users."""
    result = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    result.globals["script"] = script
    result.filters["shortened"] = shortened
    # c2-curves-commits has the explanation of curves-commits
    result.filters["kind"] = lambda name: re.sub(r"^c\d+-", "", name)
    result.filters["term"] = lambda head: next(
        (meaning for term, meaning in TERMS.items() if head.startswith(term)), ""
    )
    # the root element alone, for use inside HTML
    result.filters["inline_svg"] = lambda svg: Markup(svg[svg.index("<svg") :])  # noqa: S704 - matplotlib escaped it
    return result


_CURVES = re.compile(r"(series-\d+|learning(-[a-z0-9]+)*)(-time|-bytes)?\.svg")
"""File names of a run's curves, which depend on the learner; ``series-1`` and so on are older names."""
_KINDS = {"run": "Learning run", "timing": "Rounds without training", "mobility": "Mobility run"}


def tile(label: str, value: str) -> tuple[str, str, str]:
    """Return label, value, and the part of the value in brackets, or "": "A", "1 (of 2)" gives ("A", "1", "of 2")."""
    main, bracket, detail = value.partition(" (")
    return label, main, detail.removesuffix(")") if bracket else ""


def _title(run: RunData) -> str:
    """Return the page's title: scenario, and the learner or, without training, what the run shows."""
    scenario = run.scenario or "run"
    if not run.takes_part:
        return f"{scenario}: traffic and blur"
    if not run.learning:
        return f"{scenario}: who could take part"
    return f"{scenario}: {clean(run.manifest.learner.name if run.manifest.learner else run.experiment.learner, 40)}"


def write_figures(folder: Folder, parts: Sequence[Section], stale: re.Pattern[str]) -> None:
    """Write ``figures/*.svg`` of all panels; remove files of panels without figure, and undrawn ones like ``stale``."""
    drawings = {f"{name}.svg": svg for one in parts for panel in one.panels for name, svg in panel.drawings.items()}
    for name, svg in drawings.items():
        if svg:
            folder.write_output(f"figures/{name}", svg.encode())
        else:
            folder.remove(f"figures/{name}")
    for path in (folder.path / "figures").glob("*.svg"):
        if stale.fullmatch(path.name) and path.name not in drawings:
            folder.remove(f"figures/{path.name}")


def build_report(run: Path) -> ReportResult:
    """Write ``report.html`` and ``figures/*.svg`` into the run directory ``run``, each atomically.

    The same directory gives the same bytes; figures no longer drawn are removed. InputError if ``run`` is no run
    directory or has a damaged file, RunError if it cannot be written.
    """
    data = load(run)
    with ThreadPoolExecutor(1) as beside:  # most of its time is in NumPy and zlib, while matplotlib is in Python
        played = beside.submit(playback, data)
        parts = sections(data)
    numbers, warnings, assumed = headline(data), notices(data), list(list_assumptions(data))
    large = leading(data, numbers)
    page = (
        environment()
        .get_template("report.html.j2")
        .render(
            title=_title(data),
            created=timestamp(data.manifest.created),
            kind=_KINDS[data.manifest.kind],
            manifest=data.manifest,
            leading=[tile(label, value) for label, value in numbers if label in large],
            # the wall time is under "What was run"
            tiles=[tile(label, value) for label, value in numbers if label not in {*large, "Wall time"}],
            finding=finding(data),
            clock=assumed,
            warnings=[line for line in warnings if line not in assumed],
            notes=[clean(note, 400) for note in data.manifest.traffic.notes],
            played=played.result(),
            sections=parts,
            strips=sample_strips(data),
            paths=framed_paths(data),
            angles=data.has_angles,
            record=record(data),
            experiment="\n".join(clean(line, 10_000) for line in data.experiment_text.splitlines()),
        )
    )
    folder = Folder(run)
    write_figures(folder, parts, _CURVES)
    folder.write_output("report.html", page.encode("utf-8", "replace"))
    return ReportResult(path=run / "report.html", headline=numbers, notices=warnings)
