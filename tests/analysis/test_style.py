from xml.etree import ElementTree as ET

import pytest
from matplotlib.figure import Figure

from analysis.style import styled, time_axis, to_svg


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


def test_a_time_axis_says_its_begin_as_a_clock_does():
    assert time_axis(600.0).label == "simulated time (min)"
    assert time_axis(600.0, 300.0).label == "simulated time since 0:05:00 (min)"
