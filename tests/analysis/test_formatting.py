import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.formatting import THIN, clean, count, duration, number, percent, plural, si, timestamp


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0, "0"), (12.345, "12.3"), (0.00012345, "0.000123"), (9.999, "10.0"), (999.6, f"1{THIN}000"),
        (123456.0, f"123{THIN}000"), (-2.5, "\u22122.50"), (1.5e9, f"1.50{THIN}\u00d7{THIN}10\u2079"),
        (3e-7, f"3.00{THIN}\u00d7{THIN}10\u207b\u2077"), (math.nan, "\u2013"),
    ],
)  # fmt: skip
def test_number(value, words):
    assert number(value) == words


def test_units_and_spans_of_time():
    sizes = {44_937_984: "44.9 MB", 1.11e9: "1.11 GB", 999_999: "1.00 MB", 0: "0 B", 512: "512 B", 3e16: "30.0 PB"}
    assert {value: si(value, "B").replace(THIN, " ") for value in sizes} == sizes
    assert si(0.002, "s") == f"2.00{THIN}ms"
    spans = {3.21: "3.21 s", 900: "15 min", 973: "16 min 13 s", 7199.7: "2 h", 6960: "1 h 56 min", math.inf: "\u2013"}
    assert {seconds: duration(seconds).replace(THIN, " ") for seconds in spans} == spans


def test_counts_and_shares():
    assert count(1234567) == f"1{THIN}234{THIN}567"
    assert percent(0.6234) == f"62.3{THIN}%"
    assert plural(1, "vehicle") == "1 vehicle"
    assert plural(0, "vehicle") == "0 vehicles"


@given(st.text(max_size=200))
def test_clean_text_is_short_and_printable(text):
    assert clean(text).isprintable()
    assert len(clean(text)) <= 60


def test_clean_replaces_control_characters_and_lone_surrogates():
    assert clean("a\x07b\ud800c\n") == "a\ufffdb\ufffdc\ufffd"


def test_timestamp():
    assert timestamp("2025-03-01T14:00:00.123+02:00") == "2025-03-01 12:00:00 UTC"
    assert timestamp("yesterday") == "yesterday"
    assert timestamp(None) == ""
