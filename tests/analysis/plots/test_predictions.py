"""Predicted against actual rest of windows: what is compared with what, and windows that the end of the run cut off."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest

from analysis.plots.predictions import Predictions, predictions


def frame(rows: list[tuple[object, ...]], names: str) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=names.split(), orient="row", infer_schema_length=None)


def test_each_prediction_meets_its_own_window() -> None:
    windows = frame(
        [("a", "r", 0.0, 30.0, "crossing"), ("a", "r", 50.0, 60.0, "end"), ("b", "s", 0.0, 9.0, "arrival")],
        "vehicle_id rsu_id enter_s exit_s exit_cause",
    )
    parts = frame(
        [
            ("a", "r", 0.0, 10.0, "committed", 25.0, None),
            ("a", "r", 50.0, 52.0, "deadline", 6.0, 12.0),
            ("b", "s", 0.0, 0.0, "not_selected", None, None),
            ("b", "s", 0.0, 4.0, "left_upload", math.inf, None),
            ("c", "r", 0.0, 4.0, "committed", 1.0, None),  # its window is not there
        ],
        "vehicle_id rsu_id enter_s start_s outcome remaining_straight_s remaining_history_s",
    )
    found = {one.name: one for one in predictions(parts, windows)}
    straight = found["straight"]
    assert (straight.predicted_s.tolist(), straight.actual_s.tolist()) == ([25.0, 6.0], [20.0, 8.0])
    assert (straight.cut.tolist(), straight.standing) == ([False, True], 1)
    assert found["history"].cut.tolist() == [True]
    assert math.isnan(found["history"].median_error_s)
    columns = [pl.lit(None, pl.Float64()).alias(f"remaining_{name}_s") for name in ("straight", "history")]
    assert predictions(parts.with_columns(columns), windows) == []


@pytest.mark.parametrize("seed", range(3))
def test_the_median_error_is_not_led_astray_by_windows_cut_off(seed: int) -> None:
    draw = np.random.default_rng(seed)
    actual, predicted = draw.uniform(5, 60, 4000), draw.uniform(5, 60, 4000)
    whole = Predictions(
        name="straight", predicted_s=predicted, actual_s=actual, cut=np.zeros(4000, dtype=bool), standing=0
    )
    true = float(np.median(predicted - actual))
    assert whole.median_error_s == pytest.approx(true)
    end = predicted + draw.uniform(-50, 60, 4000)  # of the run, apart from how long their windows would have lasted
    seen = np.minimum(actual, end)
    cut = Predictions(name="straight", predicted_s=predicted, actual_s=seen, cut=end < actual, standing=0)
    assert 0.2 < cut.cut.mean() < 0.6
    naive = float(np.median((predicted - seen)[~cut.cut]))
    assert abs(cut.median_error_s - true) < 3
    assert abs(cut.median_error_s - true) < abs(naive - true)
