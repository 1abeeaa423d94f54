"""Vehicles in coverage over time."""

import pytest
from matplotlib.axes import Axes

from analysis.loading import load
from analysis.plots.traffic import occupancy_panel
from analysis.style import styled


def test_one_curve_counts_vehicles_and_several_share_a_scale(tmp_path, make_run, monkeypatch):
    drawn, step = [], Axes.step

    def noted(ax, times, values, **how):
        drawn.append(values - values.min())
        return step(ax, times, values, **how)

    monkeypatch.setattr(Axes, "step", noted)
    one = (("centre", 500.0, 500.0, 250.0),)
    for rsus in (one, (*one, ("north", 500.0, 1500.0, 250.0))):
        drawn.clear()
        with styled():
            panel = occupancy_panel(load(make_run(tmp_path / str(len(rsus)), vehicles=40, rsus=rsus)))
        assert len(drawn) == len(rsus)
        highest = max(values.max() for values in drawn)
        if len(rsus) == 1:
            assert panel.caption.startswith(f"RSU centre: at most {highest:.0f}, ")
        else:
            assert highest == pytest.approx(0.86), "and not the rows' whole height"
