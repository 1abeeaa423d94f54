"""RSUs on the map: every name that finds room, none upon another."""

import itertools
import random

import pytest

from analysis.loading import load
from analysis.plots.place import map_panel, names
from analysis.style import styled
from vnetsim.coverage.rsu import Rsu

EXTENT = (0.0, 4000.0, 0.0, 3000.0)


def rsu(name: str, x_m: float, y_m: float) -> Rsu:
    return Rsu(id=name, x_m=x_m, y_m=y_m, range_m=100.0)


@pytest.mark.parametrize("count", [1, 13, 60, 400])
def test_names_are_apart_and_within(count: int) -> None:
    drawn = random.Random(count)
    rsus = [rsu(f"J{i}", drawn.uniform(0, 4000), drawn.uniform(0, 3000)) for i in range(count)]
    found = names(rsus, EXTENT, 0.08, 8.0)
    assert len(found) >= {1: 1, 13: 13, 60: 50, 400: 20}[count]
    for one, other in itertools.combinations(found, 2):
        assert (
            one.box[2] <= other.box[0]
            or other.box[2] <= one.box[0]
            or one.box[3] <= other.box[1]
            or other.box[3] <= one.box[1]
        ), (one, other)
    assert all(0 <= one.box[0] < one.box[2] <= 320 and 0 <= one.box[1] < one.box[3] <= 240 for one in found)
    points = {one.id: (one.x_m * 0.08, one.y_m * 0.08) for one in rsus}
    for one in found:
        covered = [
            name for name, (x, y) in points.items() if one.box[0] < x < one.box[2] and one.box[1] < y < one.box[3]
        ]
        assert covered == []


def test_many_rsus_are_named_on_the_map(tmp_path, make_run):
    rsus = tuple((f"node {i}", 900.0 * (i % 5), 900.0 * (i // 5), 200.0) for i in range(15))
    with styled():
        panel = map_panel(load(make_run(tmp_path / "run", vehicles=60, rsus=rsus)))
    assert all(f">node {i}<" in panel.svg for i in range(15))
    assert "find no room" not in panel.caption
    assert panel.caption.startswith("15 RSUs, coverage tinted.")
    assert "stroke-dasharray" not in panel.svg, "the rims of many discs hide the roads"
    crowd = tuple((f"a long name of node {i}", 500.0 + i, 500.0, 250.0) for i in range(15))
    with styled():
        panel = map_panel(load(make_run(tmp_path / "crowd", vehicles=60, rsus=crowd)))
    assert "RSUs find no room here; see the table below." in panel.caption


def map_of(run):
    with styled():
        return map_panel(load(run))
