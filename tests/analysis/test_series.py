import dataclasses
from xml.etree import ElementTree as ET

import polars as pl
import pytest

from analysis.loading import load
from analysis.plots.learning import series_panels
from analysis.report.headline import headline
from analysis.style import styled
from vnetsim.learner_facts import Series

LABELS = [f"accuracy on classes {k:02d}" for k in range(12)]


@pytest.fixture
def measured(learning_run):
    """Return the panels of a run that measured made-up series: ``values[name]`` after 0, 1, ... rounds."""

    def draw(values, unit="%", **declared):
        data = load(learning_run)
        rows = [
            (r, 0.0, name, value, "single", None, None) for name, row in values.items() for r, value in enumerate(row)
        ]
        series = [Series(name=name, label=name, unit=unit, caption="Same.", **declared) for name in values]
        with styled():
            return series_panels(
                dataclasses.replace(
                    data,
                    manifest=dataclasses.replace(data.manifest, series=series),
                    metrics=pl.DataFrame(rows, schema=data.metrics.schema, orient="row"),
                    rounds=data.rounds.clear(),
                )
            )

    return draw


def words_of(panel):
    return [element.text for element in ET.fromstring(panel.svg).iter() if element.tag.endswith("}text")]


def test_a_dozen_series_share_one_wide_figure(measured):
    (panel,) = measured({label: [0.1, 0.2, 0.3] for label in LABELS})
    assert panel.wide
    assert set(LABELS) <= set(words_of(panel))
    assert panel.title == "Accuracy on classes 00; accuracy on classes 01 and 10 more"
    assert panel.caption.count("Same.") == 1
    assert "From before training to after 2 rounds: accuracy on classes 00 10.0\u202f% to 30.0\u202f%;" in panel.caption


def test_two_errors_of_one_model_have_two_names_at_the_top(learning_run):
    data = load(learning_run)
    series = [
        Series(name=unit, label=label, unit=unit, caption="", group="Error")
        for unit, label in (("RMSE", "Average model"), ("MAE", "Average model"), ("rad", "Largest"))
    ]
    rows = [(r, 0.0, one.name, 0.5 - r / 10, "single", None, None) for one in series for r in range(3)]
    metrics = pl.DataFrame(rows, schema=data.metrics.schema, orient="row")
    found = headline(
        dataclasses.replace(data, manifest=dataclasses.replace(data.manifest, series=series), metrics=metrics)
    )
    shown = {label: value.replace("\u202f", " ") for label, value in found}
    assert len(shown) == len(found), "labels differ"
    assert shown["RMSE, average model"] == shown["MAE, average model"] == "0.300 (first 0.500)"
    assert shown["Largest"] == "0.300 rad (first 0.500 rad)"
