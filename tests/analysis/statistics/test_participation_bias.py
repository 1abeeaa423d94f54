"""Overlaps and shares counted by hand, and the laws they must obey."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.statistics.participation import (
    dice,
    misplaced,
    overlap_between_rounds,
    overlap_between_runs,
    participants_by_round,
    shares,
    speed_bins,
    speed_edges_kmh,
    windows_with_updates,
)

PARTICIPATIONS = pl.DataFrame(
    [
        # vehicle, window from, round, outcome, weight, speed, approach, end
        ("a", 0.0, 0, "committed", 0.5, 10.0, 0, 5.0),
        ("b", 1.0, 0, "committed", 0.5, 20.0, 1, 6.0),
        ("a", 0.0, 1, "committed", 1.0, 10.0, 0, 9.0),
        ("c", 2.0, 1, "committed", 0.0, 30.0, 2, 9.5),
        ("d", 3.0, 1, "left_upload", None, 30.0, 3, 9.7),
        ("b", 1.0, 2, "rejected", None, 20.0, 1, 11.0),
        ("e", 11.0, 2, "not_selected", None, 30.0, 3, 12.5),
    ],
    schema=["vehicle_id", "enter_s", "round", "outcome", "weight", "speed_mps", "approach", "end_s"],
    orient="row",
).with_columns(rsu_id=pl.lit("r"))
WINDOWS = pl.DataFrame(
    {
        "vehicle_id": ["a", "b", "c", "d"],
        "rsu_id": ["r"] * 4,
        "enter_s": [0.0, 1.0, 2.0, 3.0],
        "exit_s": [10.0, 13.0, 10.0, 10.0],
    }
)


def test_participants_are_those_whose_update_weighs_something() -> None:
    assert participants_by_round(PARTICIPATIONS, 3) == (frozenset("ab"), frozenset("a"), frozenset())
    assert participants_by_round(PARTICIPATIONS, 1) == (frozenset("ab"),)


def test_overlaps_counted_by_hand() -> None:
    """2 * 1 / (2 + 1); against {a, c}: 2 * 1 / 4."""
    rounds = participants_by_round(PARTICIPATIONS, 3)
    assert overlap_between_rounds(rounds) == pytest.approx((2 / 3 + 0) / 2)
    assert overlap_between_runs(rounds, [{"a", "c"}, {"c"}, set(), {"z"}]) == pytest.approx((2 / 4 + 0) / 2)
    assert dice(set(), set()) is None
    assert overlap_between_rounds([{"a"}]) is None
    assert overlap_between_rounds([set(), set(), {"a"}]) == 0


def test_windows_with_their_updates() -> None:
    """a commits twice from one window; e's window has not ended and counts until its participation did."""
    table = windows_with_updates(WINDOWS, PARTICIPATIONS)
    assert table.columns == ["speed_kmh", "approach", "dwell_s", "updates"]
    assert table["speed_kmh"].to_list() == [36.0, 72.0, 108.0, 108.0, 108.0]
    assert table["approach"].to_list() == [0, 1, 2, 3, 3]
    assert table["dwell_s"].to_list() == [10.0, 12.0, 8.0, 7.0, 1.5]
    assert table["updates"].to_list() == [2, 1, 0, 0, 0]


def test_shares_counted_by_hand() -> None:
    """Two slow windows of 22 s hold all updates; three fast ones of 16.5 s hold none."""
    found = shares(windows_with_updates(WINDOWS, PARTICIPATIONS), np.array([0, 0, 1, 1, 1]), 2)
    assert found.windows.tolist() == [0.4, 0.6]
    assert found.dwell == pytest.approx(np.array([22, 16.5]) / 38.5)
    assert found.updates.tolist() == [1.0, 0.0]
    assert misplaced(found.updates, found.windows) == pytest.approx(0.6)
    assert misplaced(np.zeros(2), found.windows) is None


def test_speed_bins_are_round_and_at_most_eight() -> None:
    assert speed_edges_kmh(np.array([61.0, 149.0])).tolist() == [60, 80, 100, 120, 140, 160]
    assert speed_edges_kmh(np.array([50.0])).tolist() == [50, 55]
    assert speed_edges_kmh(np.array([])).tolist() == [0, 5]
    assert speed_bins(np.array([60.0, 79.9, 80.0, 149.0]), np.array([60.0, 80.0, 160.0])).tolist() == [0, 0, 1, 1]


SETS = st.sets(st.sampled_from("abcdef"))


@given(SETS, SETS)
def test_laws_of_the_overlap(first: set[str], second: set[str]) -> None:
    """Symmetric, within [0, 1], 1 for equal sets only, 0 for disjoint ones only; 2 J / (1 + J) of Jaccard's J."""
    found = dice(first, second)
    assert found == dice(second, first)
    if found is None:
        assert not first | second
        return
    assert 0 <= found <= 1
    assert (found == 1) == (first == second)
    assert (found == 0) == first.isdisjoint(second)
    jaccard = len(first & second) / len(first | second)
    assert found == pytest.approx(2 * jaccard / (1 + jaccard))


@given(st.lists(SETS, max_size=6))
def test_a_run_overlaps_itself_wholly(rounds: list[set[str]]) -> None:
    assert overlap_between_runs(rounds, rounds) == (1 if any(rounds) else None)
    assert overlap_between_rounds(rounds) == overlap_between_rounds(rounds[::-1])


@given(
    st.lists(st.tuples(st.integers(0, 3), st.floats(0.1, 100), st.integers(0, 3)), min_size=1, max_size=20),
    st.randoms(use_true_random=False),
)
def test_laws_of_the_shares(rows: list[tuple[int, float, int]], random: object) -> None:
    """Each sums to 1 or is 0; order is nothing; equal shares misplace nothing, and nothing more than all."""
    found = [_shares(rows)]
    random.shuffle(rows)  # type: ignore[attr-defined]
    found.append(_shares(rows))
    for name in ("windows", "dwell", "updates"):
        first, second = (getattr(one, name) for one in found)
        assert first == pytest.approx(second)
        assert first.sum() == pytest.approx(1) or (name == "updates" and not first.any())
    one = found[0]
    assert misplaced(one.windows, one.windows) == 0
    there, back = misplaced(one.updates, one.dwell), misplaced(one.dwell, one.updates)
    assert there == back
    assert there is None or 0 <= there <= 1 + 1e-12


def _shares(rows: list[tuple[int, float, int]]):  # type: ignore[no-untyped-def]
    index, dwell, updates = zip(*rows, strict=True)
    return shares(pl.DataFrame({"dwell_s": dwell, "updates": updates}), np.array(index), 4)


@given(st.lists(st.floats(0, 400), min_size=1, max_size=20))
def test_every_speed_is_in_its_bin(speeds: list[float]) -> None:
    values = np.array(speeds)
    edges = speed_edges_kmh(values)
    assert len(edges) <= 9
    index = speed_bins(values, edges)
    assert (edges[index] <= values).all()
    assert (values < edges[index + 1]).all()
