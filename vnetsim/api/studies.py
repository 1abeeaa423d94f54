"""Results of comparisons for Python: tables as polars frames, the page, the runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import polars as pl

from vnetsim.api.results import Folder, Page, Run
from vnetsim.errors import RunError
from vnetsim.own_packages import claim
from vnetsim.storage.records import ComparisonRecord
from vnetsim.storage.run_directory import RunDirectory
from vnetsim.storage.tables import COMPARISON_TABLES

if TYPE_CHECKING:
    from analysis.comparison.page import ComparisonResult


@dataclass(frozen=True)
class Study(Folder):
    """A comparison: arms (such as learners with settings) under conditions, at seeds.

    ``path`` is its folder, which may be moved or sent. Its tables are polars frames; reading one raises InputError if
    no cell has finished.
    """

    @cached_property
    def record(self) -> Mapping[str, Any]:
        """The record ``comparison.json``: cells, traffic, and errors of failed cells."""
        return RunDirectory(self.path).comparison()

    @cached_property
    def _record(self) -> ComparisonRecord:
        """The record as an object with checked types; InputError if it is damaged."""
        return RunDirectory(self.path).comparison_record()

    @property
    def failed(self) -> Mapping[str, str]:
        """Errors of failed cells, one line each, by the names of their folders; empty if none failed."""
        return self._record.failed

    @property
    def units(self) -> Mapping[str, Mapping[str, str]]:
        """Unit of every column by table; if a table has a column ``unit``, that is the unit of the row's value."""
        tables = {name.removeprefix("comparison_"): columns for name, columns in COMPARISON_TABLES.items()}
        tables["values"] = tables.pop("comparison")
        return {name: {column.name: column.unit for column in columns} for name, columns in tables.items()}

    @cached_property
    def _tables(self) -> Mapping[str, pl.DataFrame]:
        """All tables by name, computed once from the finished cells; InputError if there are none."""
        claim("analysis")
        from analysis.comparison.page import comparison_tables  # noqa: PLC0415

        return comparison_tables(self.path)

    @property
    def values(self) -> pl.DataFrame:
        """The compared values, a row per finished cell and metric: columns of the table ``comparison``."""
        return self._tables["comparison"]

    @property
    def differences(self) -> pl.DataFrame:
        """One row per pair of arms and metric: mean difference, interval, corrected p-value, verdict, seeds needed."""
        return self._tables["comparison_differences"]

    @property
    def targets(self) -> pl.DataFrame:
        """Rounds, time, bytes, device time until each cell reached the worst arm's final value; null for never."""
        return self._tables["comparison_targets"]

    @property
    def measures(self) -> pl.DataFrame:
        """Cost of uploads, wasted work, and spread of commits over vehicles: one row per cell, measure and bin."""
        return self._tables["comparison_measures"]

    @property
    def measure_differences(self) -> pl.DataFrame:
        """Like ``differences``, for commits per hour, data per commit and the wasted share of training time."""
        return self._tables["comparison_measure_differences"]

    @property
    def runs(self) -> Mapping[tuple[str, str, int], Run]:
        """The cells that have started, also unfinished ones, by arm, condition ("" if only one) and seed."""
        below = self.path / "cells"
        started = (cell for cell in self._record.cells if (below / cell.folder / "manifest.json").is_file())
        return {(cell.arm, cell.condition, cell.seed): Run(below / cell.folder) for cell in started}

    @property
    def _title(self) -> str:
        """Heading in a notebook: the study's title, else its arms."""
        arms = ", ".join(dict.fromkeys(cell.arm for cell in self._record.cells))
        return self._record.title or f"comparison of {arms}"

    def summary(self) -> Page:
        """Return the results as tables, and how many cells finished and failed, without writing the page."""
        finished = sum(run.status == "finished" for run in self.runs.values())
        headline = [("Cells", f"{finished} of {len(self._record.cells)}")]
        headline += [("Failed", str(len(self.failed)))] if self.failed else []
        path = self.path / "comparison.html"
        if not finished:
            return Page(path, headline=headline, notes=["No cell has finished.", *list(self.failed.values())[:1]])
        claim("analysis")
        from analysis.comparison.page import comparison_result  # noqa: PLC0415

        return _page_of(comparison_result(self.path), headline)

    def report(self) -> Page:
        """Write ``comparison.html`` and its plots again, and return the page; RunError if it cannot be written."""
        claim("analysis")
        from analysis.comparison.page import build_comparison  # noqa: PLC0415 - matplotlib only for a page

        return _page_of(build_comparison(self.path))


def _page_of(result: ComparisonResult, headline: Sequence[tuple[str, str]] = ()) -> Page:
    """Return the page of a comparison for notebooks; ``headline`` has labels and values to show at its top."""
    tables = [(table.title, table.head, table.rows, table.note) for table in result.tables]
    return Page(result.path, headline=headline, tables=tables, notes=result.notes, warnings=result.warnings)


class CellsFailedError(RunError):
    """Cells of a comparison failed; the attribute ``study`` has the others."""

    study: Study
