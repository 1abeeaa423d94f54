"""Who takes part, what commits cost, what was wasted and whether there was a choice, counted by hand."""

import numpy as np
import polars as pl
import pytest

from analysis.statistics.participation import (
    LEAST_ROUNDS,
    contested_share,
    fluctuation,
    gini,
    run_measures,
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
).with_columns(rsu_id=pl.lit("r"), aggregator=pl.lit("single"))
WINDOWS = pl.DataFrame(
    {
        "vehicle_id": ["a", "b", "c", "d"],
        "rsu_id": ["r"] * 4,
        "enter_s": [0.0, 1.0, 2.0, 3.0],
        "exit_s": [10.0, 13.0, 10.0, 10.0],
    }
)


def test_windows_with_their_updates():
    """a commits twice from one window; e's window has not ended and counts until its participation did."""
    table = windows_with_updates(WINDOWS, PARTICIPATIONS)
    assert table.columns == ["speed_kmh", "approach", "dwell_s", "updates"]
    assert table["speed_kmh"].to_list() == [36.0, 72.0, 108.0, 108.0, 108.0]
    assert table["approach"].to_list() == [0, 1, 2, 3, 3]
    assert table["dwell_s"].to_list() == [10.0, 12.0, 8.0, 7.0, 1.5]
    assert table["updates"].to_list() == [2, 1, 0, 0, 0]


def test_shares_counted_by_hand():
    """Two slow windows of 22 s hold all updates; three fast ones of 16.5 s hold none."""
    found = shares(windows_with_updates(WINDOWS, PARTICIPATIONS), np.array([0, 0, 1, 1, 1]), 2)
    assert found["windows"].tolist() == [0.4, 0.6]
    assert found["dwell_s"] == pytest.approx(np.array([22, 16.5]) / 38.5)
    assert found["updates"].tolist() == [1.0, 0.0]


def test_speed_bins_are_round_and_at_most_eight():
    assert speed_edges_kmh(np.array([61.0, 149.0])).tolist() == [60, 80, 100, 120, 140, 160]
    assert speed_edges_kmh(np.array([50.0])).tolist() == [50, 55]
    assert speed_edges_kmh(np.array([])).tolist() == [0, 5]
    assert speed_bins(np.array([60.0, 79.9, 80.0, 149.0]), np.array([60.0, 80.0, 160.0])).tolist() == [0, 0, 1, 1]


PARTS = pl.DataFrame(
    [
        # round, base, vehicle, silo, outcome, start, end, train, down, up, exchange
        (0, 0, "a", 0, "committed", 0.0, 10.0, 4.0, 100.0, 100.0, 0.0),
        (0, 0, "b", 1, "left_training", 0.0, 8.0, 3.0, 100.0, 0.0, 50.0),
        (0, 0, "c", 2, "not_selected", 1.0, 6.0, 0.0, 0.0, 0.0, 0.0),
        (0, 0, "d", 0, "committed", 8.0, 20.0, 5.0, 100.0, 100.0, 0.0),
        (1, 1, "a", 1, "stale", 20.0, 30.0, 6.0, 100.0, 50.0, 0.0),
        (1, 1, "d", 0, "committed", 20.0, 36.0, 6.0, 100.0, 100.0, 0.0),
    ],
    schema=["round", "base_round", "vehicle_id", "silo", "outcome", "start_s", "end_s", "train_s", "download_bytes",
            "upload_bytes", "exchange_bytes"],
    orient="row",
)  # fmt: skip
ROUNDS = pl.DataFrame({"round": [0, 1], "close_s": [20.0, 36.0], "aggregator": ["single"] * 2, "loss": [3.0, 2.0]})
COVERED = pl.DataFrame(
    {"vehicle_id": ["a", "b", "c", "d"], "enter_s": [0.0, 0.0, 1.0, 7.0], "exit_s": [36.0, 8.0, 6.0, 36.0]}
)


def test_a_run_counted_by_hand():
    """Three commits in 720 s; 24 s of training, 9 of them for nothing; 900 B, 300 for nothing; silo 0 has them all."""
    found = run_measures(PARTS, COVERED, ROUNDS, span_s=720.0, silos=4)
    assert found == {
        "commits": 3, "commits_per_h": pytest.approx(15.0), "bytes_per_commit": 300.0, "wasted_train_s": 9.0,
        "wasted_train_share": pytest.approx(9 / 24), "wasted_bytes": 300.0,
        "wasted_bytes_share": pytest.approx(1 / 3), "gini": 0.75, "contested_share": 0.0, "fluctuation": None,
    }  # fmt: skip
    short = run_measures(PARTS, COVERED, ROUNDS, span_s=599.0, silos=4)
    assert (short["commits"], short["commits_per_h"]) == (3, None), "an hour is not extrapolated from less than 10 min"


def test_without_a_commit_there_is_nothing_to_divide_by():
    none = run_measures(PARTS.filter(outcome="not_selected"), COVERED, ROUNDS, span_s=720.0, silos=4)
    assert {name for name, value in none.items() if value is not None} == {
        "commits", "commits_per_h", "wasted_train_s", "wasted_bytes",
    }  # fmt: skip
    assert none["commits_per_h"] == none["wasted_train_s"] == none["wasted_bytes"] == 0


@pytest.mark.parametrize(
    ("counts", "expected"), [([2, 2, 2], 0.0), ([0, 0, 6], 2 / 3), ([1, 3], 0.25), ([3, 1], 0.25), ([0, 0], None)]
)
def test_gini(counts, expected):
    """Of 1 and 3: the mean absolute difference of two drawn with replacement is 1, over twice the mean, 4."""
    found = gini(np.array(counts))
    assert found == (None if expected is None else pytest.approx(expected))


def contested(windows: pl.DataFrame) -> float | None:
    return contested_share(PARTS, windows, ROUNDS)


def with_vehicle(enter_s: float, exit_s: float) -> pl.DataFrame:
    return pl.concat([COVERED, pl.DataFrame({"vehicle_id": ["e"], "enter_s": [enter_s], "exit_s": [exit_s]})])


@pytest.mark.parametrize(
    ("enter_s", "exit_s", "expected"),
    [
        (0.0, 0.5, 2 / 5),  # there when a and b were invited
        (0.0, 8.0, 2 / 5),  # gone when d was
        (0.0, 8.5, 3 / 5),
        (9.0, 19.0, 0.0),  # nobody was invited then
        (9.0, 40.0, 2 / 5),  # a and d again
    ],
)
def test_an_invitation_is_contested_where_somebody_stays_behind(enter_s, exit_s, expected):
    assert contested(with_vehicle(enter_s, exit_s)) == pytest.approx(expected)


def test_who_was_in_the_round_already_does_not_wait():
    """a is done at 10 s and inside, but was in the open round: it waits for none of the places that come free in it."""
    later = PARTS.with_columns(start_s=pl.when(pl.col("vehicle_id") == "d").then(pl.lit(12.0)).otherwise("start_s"))
    at_12 = later.filter(round=0)
    assert contested_share(at_12, COVERED, ROUNDS) == 0
    assert contested_share(at_12, COVERED, ROUNDS.with_columns(close_s=pl.lit(11.0))) == pytest.approx(1 / 3)


def test_a_vehicle_in_two_discs_waits_once():
    windows = pl.concat([COVERED, pl.DataFrame({"vehicle_id": ["a"], "enter_s": [2.0], "exit_s": [50.0]})])
    assert contested(windows) == 0.0
    assert contested_share(PARTS.filter(outcome="not_selected"), windows, ROUNDS) is None


def rounds_of(losses: object, aggregator: str = "single") -> pl.DataFrame:
    table = pl.DataFrame({"loss": pl.Series(losses, dtype=pl.Float64, strict=False)})
    return table.with_row_index("round").with_columns(aggregator=pl.lit(aggregator))


NOISE = np.random.default_rng(0).normal(scale=0.3, size=20_000)
LINE = np.linspace(5.0, 2.0, len(NOISE))


@pytest.mark.parametrize("trend", [0.0, LINE, 3 * np.exp(-np.arange(len(NOISE)) / 20)])
def test_white_noise_gives_its_deviation_whatever_smooth_trend_is_below_it(trend):
    assert fluctuation(rounds_of(NOISE + trend)) == pytest.approx(0.3, rel=0.02)


def test_a_straight_line_gives_nothing():
    assert fluctuation(rounds_of(LINE)) == pytest.approx(0.0, abs=1e-12)


def test_one_outlier_by_hand():
    """Second differences of one loss that is 6 too high: 6, -12, 6, of eight."""
    losses = [0.0] * LEAST_ROUNDS
    losses[4] = 6.0
    assert fluctuation(rounds_of(losses)) == pytest.approx(((36 + 144 + 36) / 8 / 6) ** 0.5)


def test_aggregators_have_levels_of_their_own_and_rounds_without_a_loss_are_left_out():
    first, second = NOISE[:LEAST_ROUNDS], 7 + NOISE[LEAST_ROUNDS : 2 * LEAST_ROUNDS]
    alone = [fluctuation(rounds_of(one)) for one in (first, second)]
    both = pl.concat([rounds_of(first, "a"), rounds_of(np.insert(second, 3, np.nan), "b")]).sort("round")
    assert fluctuation(both) == pytest.approx(np.sqrt(np.mean(np.square(alone))))


def test_too_few_rounds_say_nothing():
    few = NOISE[: LEAST_ROUNDS - 1]
    assert fluctuation(rounds_of(few)) is None
    assert fluctuation(rounds_of([*few, None])) is None
    assert fluctuation(pl.concat([rounds_of(few, "a"), rounds_of(few, "b")])) is None
    assert fluctuation(rounds_of([])) is None
