"""What runs leave, for Python: tables as polars frames, the page, the trained model. Nothing of a folder is run."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from vnetsim.errors import InputError
from vnetsim.learning.model_record import model_files
from vnetsim.own_packages import claim
from vnetsim.runs.timing import schedule
from vnetsim.storage.records import ManifestRecord
from vnetsim.storage.run_directory import RunDirectory
from vnetsim.storage.tables import TABLES, Column

if TYPE_CHECKING:
    from torch import nn

    from vnetsim.api.model import TrainedModel

PAGE_PX = 800


TableText = tuple[str, Sequence[str], Sequence[Sequence[str]], str]
"""A table as text: title, column heads, rows, and a line below, which may be empty."""


@dataclass(frozen=True)
class Page:
    """A page that was written; as the last line of a notebook's cell it is shown.

    Attributes:
        path: the file, self-contained.
        headline: of a run, its headline numbers: label, and value with unit.
        tables: of a comparison, its results as text.
        notes: what a reader must know of them.
        warnings: of a comparison, what is wrong with it.
    """

    path: Path
    headline: Sequence[tuple[str, str]] = ()
    tables: Sequence[TableText] = ()
    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()

    def _repr_html_(self) -> str:
        """Return the page in a frame of its own, so that notebook and page leave each other's style alone."""
        content = html.escape(self.path.read_text(encoding="utf-8"), quote=True)
        return f'<iframe srcdoc="{content}" width="100%" height="{PAGE_PX}" style="border:0"></iframe>'


@dataclass(frozen=True)
class Folder:
    """A folder that vnetsim made.

    Attributes:
        path: the folder, to zip and to send.
    """

    path: Path

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(label)}</td><td>{html.escape(value)}</td></tr>"
            for label, value in self.summary().headline
        )
        return f"<code>{html.escape(str(self.path))}</code><table>{rows}</table>"

    @property
    def _files(self) -> RunDirectory:
        return RunDirectory(self.path)

    def summary(self) -> Page:
        """Return what stands at the top of the page, which is not written."""
        raise NotImplementedError


@dataclass(frozen=True)
class Traffic(Folder):
    """Recorded traffic: who was in coverage, when, how fast, how blurred. Replayed by ``vnetsim.run(traffic.path)``.

    The tables are polars frames; ``to_pandas()`` turns one into a pandas frame where pandas and pyarrow are installed.

    Attributes:
        path: the run directory.

    Examples:
        >>> import vnetsim
        >>> traffic = vnetsim.mobility("gaussian", traffic__end_s=30, out="traffic")
        >>> traffic.units["windows"]["entry_speed_mps"]
        'm/s'
        >>> traffic.windows["entry_speed_mps"].mean() > 60 / 3.6
        True
    """

    @cached_property
    def manifest(self) -> Mapping[str, Any]:
        """What made it: versions, seed, SUMO's command, hashes of the inputs, status."""
        return self._files.manifest()

    @cached_property
    def _record(self) -> ManifestRecord:
        return self._files.manifest_record()

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """The resolved experiment as nested tables, SI units."""
        return self._files.settings()

    @property
    def status(self) -> str:
        """``finished``, ``interrupted``, ``failed``, or ``running`` (also after a kill)."""
        return self._record.status

    @property
    def notes(self) -> list[str]:
        """What the simulator had to say of the traffic, for example which junction was taken for an RSU."""
        return self._record.traffic.notes

    @property
    def units(self) -> Mapping[str, Mapping[str, str]]:
        """Unit of every column by table; empty for numbers and texts without one."""
        units = {name: units_of(columns) for name, columns in TABLES.items()}
        return {**units, "windows": {**units["windows"], "dwell_s": "s"}}

    @cached_property
    def windows(self) -> pl.DataFrame:
        """One row a coverage window: a vehicle in an RSU's disc, entry to exit; its path, speeds and blur level.

        ``dwell_s`` is how long it lasted, from ``enter_s`` to ``exit_s``.
        """
        return self._table("windows").with_columns(dwell_s=pl.col("exit_s") - pl.col("enter_s"))

    @cached_property
    def lanes(self) -> pl.DataFrame:
        """The lanes near the RSUs, one row a polyline."""
        return self._table("map")

    def _table(self, name: str) -> pl.DataFrame:
        """Return a table; empty where the run has not written it (yet)."""
        if self._files.has(name):
            return self._files.read(name)
        return pl.DataFrame(schema={column.name: column.dtype for column in TABLES[name]})

    def summary(self) -> Page:
        """Return what stands at the top of the page, which is not written."""
        claim("analysis")
        from analysis.loading import load  # noqa: PLC0415
        from analysis.report.headline import headline  # noqa: PLC0415
        from analysis.report.notices import notices  # noqa: PLC0415

        data = load(self.path)
        return Page(self.path / "report.html", headline=headline(data), notes=notices(data))

    def report(self) -> Page:
        """Write ``report.html`` and its figures, anew, and return the page, which a notebook shows.

        Raises:
            RunError: the folder cannot be written.
        """
        claim("analysis")
        from analysis.report.page import build_report  # noqa: PLC0415 - matplotlib only for a page

        made = build_report(self.path)
        return Page(made.path, headline=made.headline, notes=made.notices)

    def beside(self, other: Traffic) -> Page:
        """Write ``beside.html`` into this run's folder, on which another run is played beside it, in step.

        Raises:
            InputError: nobody was in coverage in one of them.
            RunError: the folder cannot be written.
        """
        claim("analysis")
        from analysis.report.side_by_side import build_side_by_side  # noqa: PLC0415 - matplotlib only for a page

        return Page(build_side_by_side(self.path, other.path), headline=[], notes=[])


@dataclass(frozen=True)
class Run(Traffic):
    """A run: the traffic, who took part, what was learned.

    The tables are polars frames; ``to_pandas()`` turns one into a pandas frame where pandas and pyarrow are installed.

    Attributes:
        path: the run directory.
    """

    @cached_property
    def participations(self) -> pl.DataFrame:
        """One row a participation: its outcome, seconds, bytes, and its weight in the aggregate."""
        return self._table("participations")

    @cached_property
    def exchanges(self) -> pl.DataFrame:
        """One row an exchange between two vehicles; empty for learners without any."""
        return self._table("exchanges")

    @cached_property
    def handovers(self) -> pl.DataFrame:
        """One row each time another RSU served a vehicle that took part; empty where that never happened."""
        return self._table("handovers")

    @cached_property
    def merges(self) -> pl.DataFrame:
        """One row for each model that went into an average of several aggregators' models; empty where there is one."""
        return self._table("merges")

    @cached_property
    def backhaul(self) -> pl.DataFrame:
        """What crossed the wire of each RSU."""
        return self._table("backhaul")

    @cached_property
    def rounds(self) -> pl.DataFrame:
        """One row a round: when it opened and closed, who was invited, how many committed."""
        return self._table("rounds")

    @cached_property
    def metrics(self) -> pl.DataFrame:
        """One row a measurement: ``round``, ``time_s``, ``name``, ``value``, and the ``unit`` of the value.

        The unit ``%`` stands for a fraction in [0, 1]. Round 0 is the untrained model.
        """
        units = {series.name: series.unit for series in self._record.series}
        unit = pl.col("name").replace_strict(units, default="", return_dtype=pl.String).alias("unit")
        return self._table("metrics").with_columns(unit)

    @cached_property
    def silos(self) -> pl.DataFrame:
        """Images per silo and class."""
        return self._table("silos")

    @cached_property
    def schedule(self) -> pl.DataFrame:
        """Who trains for which round, from which model, with which weight and when: all a learner need know of traffic.

        One row an update, as in ``schedule.csv`` of a run with ``timing_only``, where the weight is the share of the
        round's images; else it is the one that the learner gave.
        """
        images = self.silos.group_by("silo").agg(pl.col("images").sum())
        return schedule(self.participations, self.rounds, dict(images.iter_rows()))

    @property
    def learner(self) -> Mapping[str, Any]:
        """What the record says of the learner: name, task, source, settings, cost of a participation."""
        return self.manifest.get("learner", {})  # type: ignore[no-any-return]

    def model(self, network: type | str | nn.Module | None = None, *, rsu: str | None = None) -> TrainedModel:
        """Return the trained network, ready to use: a ``torch.nn.Module`` that takes images in [0, 1].

        The file ``model.safetensors`` is a ``state_dict``, so that a network of the same architecture loads it without
        vnetsim as well: ``network.load_state_dict(safetensors.torch.load_file("first/model.safetensors"))``. Its
        metadata, an entry ``vnetsim`` of JSON, say with which ``mean`` and ``std`` images were normalised.

        Args:
            network: for an encoder of one's own, its class or ``"path/to/file.py:CLASS"``; for a task of one's own, a
                network as its ``model`` returns it, which is then given the trained tensors. None for what comes with
                vnetsim: nothing of the run directory is ever run.
            rsu: whose model, where RSUs keep their own to the end (``topology.kind`` is ``per-rsu`` or ``peers``), in
                files below ``models/``.

        Raises:
            InputError: the run has not finished, there is no model of that RSU, its network does not come with
                vnetsim, or has another architecture.

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
            return load_model(self._files, network)
        files = model_files([one["id"] for one in self.manifest["rsus"]])
        if rsu not in files:
            raise InputError(f"{self.path}: has no RSU '{rsu}'; there are {', '.join(files)}.")
        return load_model(self._files, network, files[rsu])


def units_of(columns: tuple[Column, ...]) -> dict[str, str]:
    """Return the unit of each column."""
    return {column.name: column.unit for column in columns}
