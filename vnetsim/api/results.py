"""Results of runs for Python: tables as polars frames, the page, the trained model; nothing in a folder is run."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from vnetsim.api.plots import Plots
from vnetsim.errors import InputError
from vnetsim.learning.model_record import model_files
from vnetsim.own_packages import claim
from vnetsim.runs.tables import schedule
from vnetsim.storage.records import ManifestRecord
from vnetsim.storage.run_directory import RunDirectory
from vnetsim.storage.tables import TABLES, frame

if TYPE_CHECKING:
    from torch import nn

    from vnetsim.api.model import TrainedModel

PAGE_PX = 800  # height

TableText = tuple[str, Sequence[str], Sequence[Sequence[str]], str]
"""A table as text: title, column heads, rows, and a note below the table, which may be empty."""


@dataclass(frozen=True)
class Page:
    """A page; a notebook shows it if it is the last line of a cell.

    Attributes:
        path: the file, self-contained; after ``summary``, which writes no page, it may not exist.
        headline: the main results, as pairs of label and value with unit.
        tables: for a comparison, its results as text; empty otherwise.
        notes: notes on the results.
        warnings: for a comparison, faults that a reader must know.
    """

    path: Path
    headline: Sequence[tuple[str, str]] = ()
    tables: Sequence[TableText] = ()
    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()

    def _repr_html_(self) -> str:
        """Return the page in an iframe, so that notebook and page do not change each other's style."""
        content = html.escape(self.path.read_text(encoding="utf-8"), quote=True)
        return f'<iframe srcdoc="{content}" width="100%" height="{PAGE_PX}" style="border:0"></iframe>'


@dataclass(frozen=True)
class Folder:
    """A folder that vnetsim made."""

    path: Path

    def _repr_html_(self) -> str:
        """Return the results as HTML, which a notebook shows."""
        page = self.summary()
        parts = [f"<b>{html.escape(self._title)}</b> <code>{html.escape(str(self.path))}</code>"]
        for title, head, rows, note in [("", (), page.headline, ""), *page.tables]:
            parts.append(f"<p><b>{html.escape(title)}</b></p>" if title else "")
            lines = [_row(row, "td") for row in rows]
            parts.append(f"<table>{_row(head, 'th') if head else ''}{''.join(lines)}</table>" if rows else "")
            parts.append(f"<p>{html.escape(note)}</p>" if note else "")
        return "".join([*parts, *(f"<p>{html.escape(line)}</p>" for line in (*page.warnings, *page.notes))])

    @property
    def _title(self) -> str:
        """What the folder has, in a few words, as heading in a notebook."""
        raise NotImplementedError

    def summary(self) -> Page:
        """Return the page's results without writing it; its ``path`` is the file that ``report`` writes."""
        raise NotImplementedError


@dataclass(frozen=True)
class Traffic(Folder):
    """Recorded traffic: coverage windows with speeds and blur levels. ``vnetsim.run(traffic.path)`` replays it.

    ``path`` is its folder, which may be moved or sent. The tables are polars frames; ``to_pandas()`` turns one into a
    pandas frame if pandas and pyarrow are installed.

    Examples:
        >>> import vnetsim
        >>> traffic = vnetsim.mobility("gaussian", traffic__end_s=30, out="traffic")
        >>> traffic.units["windows"]["entry_speed_mps"]
        'm/s'
        >>> traffic.windows["entry_speed_mps"].mean() > 60 / 3.6
        True
    """

    @property
    def _title(self) -> str:
        """Heading in a notebook: traffic of SCENARIO."""
        return f"traffic of {Path(self.settings['scenario']).name}"

    @cached_property
    def manifest(self) -> Mapping[str, Any]:
        """The manifest: versions, seed, SUMO's command, hashes of the inputs, status."""
        return RunDirectory(self.path).manifest()

    @cached_property
    def _record(self) -> ManifestRecord:
        """The manifest as an object with checked types; InputError if it is damaged."""
        return RunDirectory(self.path).manifest_record()

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """All settings of the experiment as nested tables, in SI units."""
        return RunDirectory(self.path).settings()

    @property
    def status(self) -> str:
        """``finished``, ``interrupted``, ``failed``, or ``running`` (also after a kill)."""
        return self._record.status

    @property
    def notes(self) -> list[str]:
        """Notes on the traffic, for example which junction was chosen for the RSU."""
        return self._record.traffic.notes

    @property
    def units(self) -> Mapping[str, Mapping[str, str]]:
        """Unit of every column by table and column; empty for a column without a unit."""
        units = {name: {column.name: column.unit for column in columns} for name, columns in TABLES.items()}
        return {**units, "windows": {**units["windows"], "dwell_s": "s"}}

    @cached_property
    def windows(self) -> pl.DataFrame:
        """One row per coverage window (a vehicle in an RSU's disc, from entry to exit): path, speeds and blur level.

        ``dwell_s`` is ``exit_s`` minus ``enter_s``.
        """
        return self._table("windows").with_columns(dwell_s=pl.col("exit_s") - pl.col("enter_s"))

    @cached_property
    def lanes(self) -> pl.DataFrame:
        """The lanes in the frame of the map, one row per polyline."""
        return self._table("map")

    @property
    def plot(self) -> Plots:
        """Figures on matplotlib axes: ``plot.accuracy()``, ``plot.dwell()`` and ``plot.map()``."""
        return Plots(self.path)

    def _table(self, name: str) -> pl.DataFrame:
        """Return a table of the folder; an empty one if the run has not written it."""
        files = RunDirectory(self.path)
        return files.read(name) if files.has(name) else frame(TABLES[name])

    def summary(self) -> Page:
        """Return headline and notes of the page without writing it; its ``path`` is the file that ``report`` writes."""
        claim("analysis")
        from analysis.loading import load  # noqa: PLC0415
        from analysis.report.headline import headline  # noqa: PLC0415
        from analysis.report.notices import notices  # noqa: PLC0415

        data = load(self.path)
        return Page(self.path / "report.html", headline=headline(data), notes=notices(data))

    def report(self) -> Page:
        """Write ``report.html`` and its plots again, and return the page; RunError if the folder cannot be written."""
        claim("analysis")
        from analysis.report.page import build_report  # noqa: PLC0415 - matplotlib only for a page

        made = build_report(self.path)
        return Page(made.path, headline=made.headline, notes=made.notices)

    def beside(self, other: Traffic) -> Page:
        """Write ``beside.html`` into this folder, a page that plays this run beside another one, and return the page.

        InputError if one of the runs had no vehicle in coverage; RunError if the folder cannot be written.
        """
        claim("analysis")
        from analysis.report.side_by_side import build_side_by_side  # noqa: PLC0415 - matplotlib only for a page

        return Page(build_side_by_side(self.path, other.path), headline=[], notes=[])


@dataclass(frozen=True)
class Run(Traffic):
    """A run: its traffic, participations and metrics, with ``path`` and polars tables as of ``Traffic``."""

    @property
    def _title(self) -> str:
        """Heading in a notebook: LEARNER on SCENARIO."""
        return f"{self.settings['learner'].rpartition(':')[2]} on {Path(self.settings['scenario']).name}"

    @cached_property
    def participations(self) -> pl.DataFrame:
        """One row per participation: outcome, durations, bytes, and weight in the aggregate."""
        return self._table("participations")

    @cached_property
    def exchanges(self) -> pl.DataFrame:
        """One row per exchange between two vehicles; empty for learners without exchange."""
        return self._table("exchanges")

    @cached_property
    def handovers(self) -> pl.DataFrame:
        """One row per handover of a participating vehicle to another RSU; may be empty."""
        return self._table("handovers")

    @cached_property
    def merges(self) -> pl.DataFrame:
        """One row per model in an average over aggregators; empty with a single aggregator."""
        return self._table("merges")

    @cached_property
    def backhaul(self) -> pl.DataFrame:
        """One row per RSU: bytes, messages and busy time of its backhaul in both directions."""
        return self._table("backhaul")

    @cached_property
    def hostile(self) -> pl.DataFrame:
        """One row per hostile vehicle that was in coverage, with its conduct; empty if none was hostile."""
        return self._table("hostile")

    @cached_property
    def rounds(self) -> pl.DataFrame:
        """One row per round: when it opened and closed, how many were invited, how many committed."""
        return self._table("rounds")

    @cached_property
    def metrics(self) -> pl.DataFrame:
        """One row per measurement: ``round``, ``time_s``, ``name``, ``value``, and the ``unit`` of the value.

        The unit ``%`` means a fraction in [0, 1]. Round 0 is the untrained model.
        """
        units = {series.name: series.unit for series in self._record.series}
        unit = pl.col("name").replace_strict(units, default="", return_dtype=pl.String).alias("unit")
        return self._table("metrics").with_columns(unit)

    @cached_property
    def silos(self) -> pl.DataFrame:
        """One row per silo and class, with the number of images."""
        return self._table("silos")

    @cached_property
    def schedule(self) -> pl.DataFrame:
        """One row per committed update, in order of rounds: vehicle, round, starting model, weight and times.

        That is enough to train without a simulator. The columns are those of ``schedule.csv``. The weight is that
        of the learner's aggregation; with ``timing_only``, the silo's share of the round's images.
        """
        images = self.silos.group_by("silo").agg(pl.col("images").sum())
        return schedule(self.participations, self.rounds, dict(images.iter_rows()))

    @property
    def learner(self) -> Mapping[str, Any]:
        """The manifest's entry of the learner: name, task, source, settings, cost of a participation."""
        return self.manifest.get("learner", {})  # type: ignore[no-any-return]

    def model(self, network: type | str | nn.Module | None = None, *, rsu: str | None = None) -> TrainedModel:
        """Return the trained network, ready to use: a ``torch.nn.Module`` that takes images in [0, 1].

        The file ``model.safetensors`` is a ``state_dict``, which a network of the same architecture can load without
        vnetsim: ``network.load_state_dict(safetensors.torch.load_file("first/model.safetensors"))``. Its metadata
        contain the ``mean`` and ``std`` that normalised images, as JSON in the entry ``vnetsim``.

        Args:
            network: None for encoders and tasks that come with vnetsim: no code in the run directory is ever run. For
                your own encoder, its class or ``"path/to/file.py:CLASS"``; for your own task, a network as its
                ``model`` returns it.
            rsu: id of the RSU, if RSUs keep their own models to the end (``topology.kind`` is ``per-rsu`` or
                ``peers``).

        Raises:
            InputError: the run has not finished or has no such model, or the network is missing or has another
                architecture.

        Examples:
            >>> import torch, vnetsim
            >>> run = vnetsim.run("gaussian", learner="fedavg-classification", rounds=1, out="first", settings={
            ...     "silos.count": 10, "data.train_images": 400, "data.test_images": 50, "learning.steps": 1})
            >>> model = run.model()
            >>> model.encoder, model.image_shape, len(model.classes), model.round
            ('small', (3, 32, 32), 10, 1)
            >>> model(torch.rand(5, 3, 32, 32)).shape
            torch.Size([5, 10])
        """
        from vnetsim.api.model import load_model  # noqa: PLC0415 - brings torch

        if rsu is None:
            return load_model(RunDirectory(self.path), network)
        files = model_files([one["id"] for one in self.manifest["rsus"]])
        if rsu not in files:
            raise InputError(f"{self.path}: has no RSU '{rsu}'; there are {', '.join(files)}.")
        return load_model(RunDirectory(self.path), network, files[rsu])


def _row(cells: Sequence[str], tag: str) -> str:
    """Return a row of a table as HTML with cells ``td`` or ``th``; text is aligned left against a notebook's style."""
    texts = (f'<{tag} style="text-align:left">{html.escape(str(cell))}</{tag}>' for cell in cells)
    return f"<tr>{''.join(texts)}</tr>"
