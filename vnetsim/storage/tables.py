"""The tables of runs and comparisons: columns, types, units. The Parquet field metadata has units and meanings."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args, get_type_hints

import polars as pl
from arro3.core import Schema, Table

from vnetsim.storage import rows


@dataclass(frozen=True)
class Column:
    """One column: name, Parquet type, unit (may be empty) and meaning in words."""

    name: str
    dtype: pl.DataType
    unit: str
    meaning: str


Rows = pl.DataFrame | list[tuple[object, ...]]
"""A table: a data frame, or tuples in the order of the columns."""

TEXT, REALS = pl.String(), pl.List(pl.Float64())
_TYPES = {str: TEXT, int: pl.Int64(), float: pl.Float64(), list[float]: REALS}


def _read_columns(row: type) -> tuple[Column, ...]:
    """Return a table's columns in order, as its class in ``vnetsim.storage.rows`` declares them; a Literal is text."""
    found = []
    for name, hint in get_type_hints(row, include_extras=True).items():
        plain, unit, meaning = get_args(hint)
        kind, *_ = get_args(plain) if plain not in _TYPES else (plain,)  # float of float | None, a word of a Literal
        found.append(Column(name.removesuffix("_"), _TYPES.get(kind, TEXT), unit, meaning))
    return tuple(found)


CUT_ENTRY, CUT_EXIT = ("begin", "gap"), ("end", "gap")
"""Causes of entry and exit of windows that are cut off: the true dwell time is unknown."""
WINDOWS = _read_columns(rows.WindowRecord)
COMPARISON = _read_columns(rows.ValueRecord)
COMPARISON_TARGETS = _read_columns(rows.TargetRecord)
COMPARISON_DIFFERENCES = _read_columns(rows.DifferenceRecord)
COMPARISON_MEASURES = _read_columns(rows.MeasureRecord)

COMPARISON_TABLES = {
    "comparison": COMPARISON,
    "comparison_differences": COMPARISON_DIFFERENCES,
    "comparison_targets": COMPARISON_TARGETS,
    "comparison_measures": COMPARISON_MEASURES,
    "comparison_measure_differences": COMPARISON_DIFFERENCES,
}

TABLES = {
    "windows": WINDOWS,
    "participations": _read_columns(rows.ParticipationRecord),
    "exchanges": _read_columns(rows.ExchangeRecord),
    "handovers": _read_columns(rows.HandoverRecord),
    "rounds": _read_columns(rows.RoundRecord),
    "merges": _read_columns(rows.MergeRecord),
    "backhaul": _read_columns(rows.BackhaulRecord),
    "hostile": _read_columns(rows.HostileRecord),
    "metrics": _read_columns(rows.MetricRecord),
    "silos": _read_columns(rows.SiloRecord),
    "map": _read_columns(rows.LaneRecord),
}


def frame(columns: Sequence[Column], values: Sequence[tuple[object, ...]] = ()) -> pl.DataFrame:
    """Return rows, tuples in the order of ``columns``, as a data frame with their names and types."""
    return pl.DataFrame(values, schema={column.name: column.dtype for column in columns}, orient="row")


def to_parquet(name: str, table: Rows) -> bytes:
    """Return a table with the columns of ``TABLES[name]`` as the bytes of a Parquet file; see ``parquet``."""
    return parquet(TABLES[name], table)


def arrow_schema(columns: Sequence[Column]) -> Schema:
    """Return columns as an Arrow schema with units and meanings in the fields' metadata."""
    fields = Table.from_arrow(frame(columns)).schema
    return Schema(
        [f.with_metadata({"unit": c.unit, "description": c.meaning}) for f, c in zip(fields, columns, strict=True)]
    )


def parquet(columns: Sequence[Column], table: Rows) -> bytes:
    """Return rows as the bytes of a Parquet file: ``columns`` only, cast to their types, with units as metadata."""
    if isinstance(table, pl.DataFrame):
        found = table.select([pl.col(c.name).cast(c.dtype) for c in columns])
    else:
        found = frame(columns, table)
    buffer = io.BytesIO()
    found.write_parquet(buffer, arrow_schema=arrow_schema(columns))
    return buffer.getvalue()
