"""Laws of the fluctuation of the training loss."""

import numpy as np
import polars as pl
import pytest

from analysis.statistics.fluctuation import LEAST_ROUNDS, fluctuation


def rounds(losses: object, aggregator: str = "single") -> pl.DataFrame:
    table = pl.DataFrame({"loss": pl.Series(losses, dtype=pl.Float64, strict=False)})
    return table.with_row_index("round").with_columns(aggregator=pl.lit(aggregator))


NOISE = np.random.default_rng(0).normal(scale=0.3, size=20_000)
LINE = np.linspace(5.0, 2.0, len(NOISE))


@pytest.mark.parametrize("trend", [0.0, LINE, 3 * np.exp(-np.arange(len(NOISE)) / 20)])
def test_white_noise_gives_its_deviation_whatever_smooth_trend_is_below_it(trend):
    assert fluctuation(rounds(NOISE + trend)) == pytest.approx(0.3, rel=0.02)


def test_a_straight_line_gives_nothing():
    assert fluctuation(rounds(LINE)) == pytest.approx(0.0, abs=1e-12)


def test_one_outlier_by_hand():
    """Second differences of one loss that is 6 too high: 6, -12, 6, of eight."""
    losses = [0.0] * LEAST_ROUNDS
    losses[4] = 6.0
    assert fluctuation(rounds(losses)) == pytest.approx(((36 + 144 + 36) / 8 / 6) ** 0.5)


def test_aggregators_have_levels_of_their_own_and_rounds_without_a_loss_are_left_out():
    first, second = NOISE[:LEAST_ROUNDS], 7 + NOISE[LEAST_ROUNDS : 2 * LEAST_ROUNDS]
    alone = [fluctuation(rounds(one)) for one in (first, second)]
    both = pl.concat([rounds(first, "a"), rounds(np.insert(second, 3, np.nan), "b")]).sort("round")
    assert fluctuation(both) == pytest.approx(np.sqrt(np.mean(np.square(alone))))


def test_too_few_rounds_say_nothing():
    few = NOISE[: LEAST_ROUNDS - 1]
    assert fluctuation(rounds(few)) is None
    assert fluctuation(rounds([*few, None])) is None
    assert fluctuation(pl.concat([rounds(few, "a"), rounds(few, "b")])) is None
    assert fluctuation(rounds([])) is None
