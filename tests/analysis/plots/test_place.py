"""RSUs on the map: a few with names and dashed rims, many without."""

from analysis.loading import load
from analysis.plots.place import map_panel
from analysis.style import styled


def test_many_rsus_are_tinted_and_few_are_named(tmp_path, make_run):
    for count in (12, 13):
        rsus = tuple((f"node {i}", 900.0 * (i % 5), 900.0 * (i // 5), 200.0) for i in range(count))
        with styled():
            panel = map_panel(load(make_run(tmp_path / f"run{count}", vehicles=60, rsus=rsus, lanes=count == 12)))
        assert panel.caption.endswith(
            "Grey lines are lanes." if count == 12 else "No road net is known for this traffic."
        )
        assert all((f">node {i}<" in panel.svg) == (count == 12) for i in range(count))
        assert panel.caption.startswith(f"{count} RSUs, coverage {'dashed' if count == 12 else 'tinted'}.")
        assert ("stroke-dasharray" in panel.svg) == (count == 12), "the rims of many discs hide the roads"
