"""TOML from anybody: values, or one line, and soon."""

import time
import tomllib

import pytest

from vnetsim.storage import toml_text

GOOD = 'a.b.c = 1\nx = [[0.1, -9_223_372_036_854_775_808], ["a.b.c.d"]]\n[t."u.v"]\ny = 0x7fff_ffff_ffff_ffff\n'


def test_what_settings_look_like_is_read_as_python_reads_it() -> None:
    assert toml_text.parse(GOOD) == tomllib.loads(GOOD)
    many = f"x = [{', '.join(['0.5'] * 2000)}]\nnote = '{'one. ' * 30}'\n"
    assert toml_text.parse(many) == tomllib.loads(many)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = " + "9" * 5000, "more than 64 bits"),
        ("x = 0x" + "f" * 5000, "more than 64 bits"),
        ("x = [{y = 9223372036854775808}]", "more than 64 bits"),
        ("x = -9223372036854775809", "more than 64 bits"),
        ("x = " + "[" * 60 + "]" * 60, "nested too deeply"),
        ("x = " + "[" * 9000 + "]" * 9000, "nested too deeply"),
        (".".join("a" * 60) + " = 1", "nested too deeply"),
        ("[" + " . ".join(["'a b'", '"c"', "d"] * 20) + "]", "nested too deeply"),
        ("[x\n", "Expected"),
    ],
    ids=lambda value: value[:12],
)
def test_anything_else_is_one_line(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        toml_text.parse(text)
    assert "\n" not in str(caught.value)


def test_a_key_of_many_parts_takes_no_time() -> None:
    """Python's parser takes minutes."""
    for text in (
        ".".join("a" * 200_000) + " = 1",
        "a" * 200_000,
        '"' * 200_000,
        "'a" * 100_000,
        "a. " * 40 + "b " * 50_000,
    ):
        began_s = time.process_time()
        with pytest.raises(ValueError, match=r"."):
            toml_text.parse(text)
        assert time.process_time() - began_s < 5
