"""Figures on matplotlib axes, ``run.plot``: of the caller's or of pyplot's."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.patches import Circle

import vnetsim


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def test_accuracies_are_drawn_in_per_cent(learning_run):
    run = vnetsim.load(learning_run)
    ax = run.plot.accuracy()
    lines = {line.get_label(): line for line in ax.lines}
    assert lines.keys() == {"kNN accuracy", "linear-probe accuracy"}
    knn = run.metrics.filter(name="knn").sort("round")
    np.testing.assert_array_equal(lines["kNN accuracy"].get_xdata(), knn["round"])
    np.testing.assert_allclose(lines["kNN accuracy"].get_ydata(), 100 * knn["value"])
    assert ax.get_ylabel() == "accuracy (%)"
    assert plt.fignum_exists(ax.figure.number), "a notebook shows it"


def test_figures_are_drawn_on_axes_of_ones_own(learning_run):
    run = vnetsim.load(learning_run)
    figure, (left, right) = plt.subplots(1, 2)
    assert run.plot.dwell(left) is left
    assert run.plot.map(ax=right) is right
    assert plt.get_fignums() == [figure.number]
    assert any(isinstance(one, Circle) and one.radius == 250 for one in right.patches)
    dwell_s = run.windows["dwell_s"].to_numpy()
    heights, edges, _ = left.patches[0].get_data()  # all windows, those cut off below them
    assert heights.sum() == (dwell_s <= edges[-1]).sum()
    with pytest.raises(vnetsim.InputError, match=r"ax: expected matplotlib axes.*, got tuple"):
        run.plot.dwell((left, right))


def test_what_there_is_not_is_said(make_run, tmp_path):
    run = vnetsim.load(make_run(tmp_path / "run", kind="mobility", vehicles=0))
    with pytest.raises(vnetsim.InputError, match="no vehicle was in coverage"):
        run.plot.dwell()
    with pytest.raises(vnetsim.InputError, match="has no accuracy to draw"):
        run.plot.accuracy()
    assert not plt.get_fignums()
    assert run.plot.map().lines, "the lanes are known"
