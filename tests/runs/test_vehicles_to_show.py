"""Whose frames a run keeps to show."""

import polars as pl

from vnetsim.runs.writer import FILMED, vehicles_to_show


def participations(invited: int, others: int) -> pl.DataFrame:
    rows = [(f"i{k}", "committed" if k % 2 else "left_upload", float(k)) for k in range(invited)]
    rows += [(f"o{k}", "not_selected", float(k)) for k in range(others)] + [("i0", "not_selected", 0.5)]
    return pl.DataFrame(rows, schema=["vehicle_id", "outcome", "start_s"], orient="row")


def test_vehicles_to_show_are_invited_ones_evenly_spread_and_then_others():
    shown = vehicles_to_show(participations(24 * 3 - 2, 500))
    assert shown == [f"i{k}" for k in range(0, 70, 3)]
    assert FILMED == len(shown) == 24
    shown = vehicles_to_show(participations(20, 301))
    assert shown == [*(f"i{k}" for k in range(20)), "o0", "o100", "o200", "o300"]
    assert vehicles_to_show(participations(1, 2)) == ["i0", "o0", "o1"]
    assert vehicles_to_show(participations(0, 0).filter(pl.lit(value=False))) == []


def test_of_repeated_traffic_those_of_the_first_pass_are_shown():
    first = participations(40, 60)
    later = first.with_columns(pl.col("vehicle_id") + "#2", pl.col("start_s") + 1e3)
    assert vehicles_to_show(pl.concat([first, later]), repeat=True) == vehicles_to_show(first)
