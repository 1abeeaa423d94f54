import re
from xml.etree import ElementTree as ET

import pytest
from matplotlib import rc_context, rcParams
from matplotlib.figure import Figure

from analysis.style import styled, to_svg


def words_of(svg):
    return [element.text for element in ET.fromstring(svg).iter() if element.tag.endswith("}text")]


@pytest.mark.parametrize(
    "text",
    ["<script>alert(1)</script>", "$x^2$", "a $ b", "'DejaVu Sans' & <b>", '" onload="x', "]]>", "-->", "\u6f22\u5b57"],
)
def test_any_text_is_text(text):
    with styled():
        figure = Figure((2, 2))
        figure.text(0.5, 0.5, text)
        figure.text(0.5, 0.2, "second")
        svg = to_svg(figure, "any")
    assert words_of(svg) == [text, "second"]


def test_nothing_of_a_matplotlibrc_reaches_a_figure():
    def drawn():
        with styled():
            figure = Figure((2, 2))
            figure.add_subplot().plot([0, 1], [0, 1], label="$x^2$")
            return to_svg(figure, "any")

    plain = drawn()
    with rc_context(
        {"text.usetex": True, "font.family": "monospace", "axes.facecolor": "red", "lines.linestyle": "--"}
    ):
        assert drawn() == plain
        assert rcParams["text.usetex"]


def test_markers_take_their_colour_where_they_are_used():
    """A dark page changes colours; those of a marker's definition are beyond its style sheet."""
    with styled():
        figure = Figure((2, 2))
        figure.add_subplot().plot([0, 1], [0, 1], "o", color="black")
        svg = to_svg(figure, "marks")
    defined, used = re.findall(r'<path id="m[0-9a-f]+"[^>]*>', svg), re.findall(r"<use [^>]*>", svg)
    assert len(defined) >= 3
    assert not any("stroke: #" in one for one in defined)
    assert all("stroke: #" in one for one in used)
