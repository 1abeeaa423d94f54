"""Radio model with the rates of a table, such as one made from a packet-level simulation or from measurements."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import polars as pl

from vnetsim.coverage.rsu import Rsu
from vnetsim.coverage.windows import Floats
from vnetsim.errors import InputError
from vnetsim.radio import RATE, PositionM
from vnetsim.radio.models import RunMemory
from vnetsim.storage.run_directory import damage_as_input_error

_MOST_MBPS = RATE.high / 1e6
_SIGHT = {"true": True, "1": True, "false": False, "0": False}
_Curves = Mapping[bool, tuple[Floats, Floats]]  # by line of sight: distances (m) and rates (bit/s)


@dataclass(kw_only=True)
class _Memory(RunMemory):
    """The memory of a run, with the table's rows."""

    curves: _Curves


@dataclass(frozen=True, kw_only=True)
class RateTable:
    """Rates by distance from a CSV file, in all directions and between vehicles alike.

    The file has the columns ``distance_m``, between the two antennas on the ground, and ``rate_mbps``, the rate of a
    transfer that has the channel for itself (Mbit/s), with increasing distances. Between two rows the rate is
    interpolated linearly; before the first row it is that of the first row; beyond the last row nothing moves.

    With a third column, ``line_of_sight`` (``true`` or ``false``), there are two curves: ``false`` applies behind
    buildings, which are assumed wherever there is no street, as with ``tr37885`` and ``state = "streets"``. At RSUs
    with environment ``highway``, and where no lane is known, every link is in line of sight.

    Nothing is drawn at random.

    Args:
        file: the CSV file.
    """

    name: ClassVar[str] = "table"
    source: ClassVar[str] = "the table itself"
    update_s: ClassVar[float | None] = 1.0

    file: str

    @property
    def cap_bps(self) -> float:
        """The highest rate of the table (bit/s); reads the file."""
        return max(float(rates_bps.max()) for _, rates_bps in _read_curves(Path(self.file)).values())

    def begin(self, rsus: Sequence[Rsu], lanes: Sequence[Floats]) -> _Memory:
        """Read the file into the memory of a run; InputError if it is missing, no such table, or has a wrong row."""
        curves = _read_curves(Path(self.file))
        if len(curves) == 1:
            return _Memory(sight=None, rsus=rsus, curves=curves)
        if not any(len(lane) > 1 for lane in lanes):
            note = (
                "No lane of the road net is known, so all links had the rates in line of sight of radio.file. A "
                "recording has lanes with its net (--net FILE)."
            )
            return _Memory(sight=None, rsus=rsus, curves=curves, notes=[note])
        from vnetsim.radio.sight import Streets  # noqa: PLC0415 - loads shapely, which other models do not need

        return _Memory(sight=Streets(lanes, [(rsu.x_m, rsu.y_m) for rsu in rsus]), rsus=rsus, curves=curves)

    def draw(self, _generator: np.random.Generator, memory: _Memory, _heights_m: tuple[float, ...]) -> _Memory:
        """Return the memory: links have no random state."""
        return memory

    def downlink_bps(self, rsu: Rsu, vehicle_m: PositionM, state: _Memory) -> float:
        """Return the rate between RSU and vehicle, in either direction (bit/s); see ``sidelink_bps``."""
        return self.sidelink_bps(rsu, (rsu.x_m, rsu.y_m), vehicle_m, state)

    uplink_bps = downlink_bps

    def sidelink_bps(self, rsu: Rsu, sender_m: PositionM, receiver_m: PositionM, state: _Memory) -> float:
        """Return the rate between two places (bit/s); beyond the last row, and instead of 0, ``RATE.low`` (1e-9 bit/s).

        If the table has two curves, sets ``state.state`` to whether the link was in line of sight, in words.
        """
        sight = True
        if len(state.curves) > 1:
            sight = state.is_clear(sender_m, receiver_m, rsu.environment or "urban")
            state.state = "in line of sight" if sight else "behind buildings"
        distances_m, rates_bps = state.curves[sight]
        found = np.interp(math.dist(sender_m, receiver_m), distances_m, rates_bps, right=0.0)
        return max(float(found), RATE.low)  # a rate of 0 would be refused as a mistake; this one moves no bit in a year


def _read_curves(path: Path) -> _Curves:
    """Return distances (m) and rates (bit/s) by line of sight (True without that column); InputError if faulty."""
    what = "no table of rates, a CSV file with the columns distance_m and rate_mbps"
    # polars would read a path as a pattern or a web address
    with damage_as_input_error(path, what), path.open("rb") as file:
        rows = pl.read_csv(file, infer_schema=False)
    names = [name.strip().removesuffix("_duplicated_0") for name in rows.columns]  # polars renames the second of a name
    states = "line_of_sight" in names
    columns = ["distance_m", "rate_mbps", *["line_of_sight"] * states]
    if unclear := [name for name in columns if names.count(name) != 1]:
        times = "more than one" if unclear[0] in names else "no"
        raise InputError(f"{path}: {what}: there is {times} column {unclear[0]}.")
    rows = pl.DataFrame({name: rows[:, names.index(name)] for name in columns}).with_row_index("line", offset=2)
    rows = rows.filter(~pl.all_horizontal(pl.col(columns).is_null()))  # blank lines
    if rows.is_empty():
        raise InputError(f"{path}: a table of rates without rows.")
    text = pl.col("line_of_sight").str.strip_chars().str.to_lowercase() if states else pl.lit("true")
    rows = rows.select(
        "line",
        pl.col("distance_m", "rate_mbps").str.strip_chars().cast(pl.Float64, strict=False),
        sight=text.replace_strict(_SIGHT, default=None, return_dtype=pl.Boolean),
    )
    # null where a value is no number; NaN is above all numbers
    right = pl.all_horizontal(
        pl.col("distance_m").is_between(0, 1e300),
        pl.col("rate_mbps").is_between(0, _MOST_MBPS),
        pl.col("sight").is_not_null(),
        (pl.col("distance_m") > pl.col("distance_m").shift().over("sight")).fill_null(value=True),
    )
    wrong = rows.filter(~right.fill_null(value=False))["line"]
    if len(wrong):
        third = ", or line_of_sight is neither true nor false" if states else ""
        raise InputError(
            f"{path}: line {wrong[0]}: a number is missing, negative or not finite, the rate is above {_MOST_MBPS:g} "
            f"Mbit/s, or the distance is not larger than in the row before{third}."
        )
    found = {bool(key[0]): part for key, part in rows.partition_by("sight", as_dict=True).items()}
    if states and len(found) == 1:
        raise InputError(f"{path}: line_of_sight is the same in all rows; give rows of both, or leave the column out.")
    return {sight: (part["distance_m"].to_numpy(), part["rate_mbps"].to_numpy() * 1e6) for sight, part in found.items()}
