"""What a setting means is read from where it is declared; every setting there is has a meaning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pytest

from vnetsim.errors.bounds import Within
from vnetsim.experiment import Experiment
from vnetsim.learning.registry import LEARNERS
from vnetsim.setting_texts import MISSING, as_toml, description, setting_texts, tables_of


@dataclass(frozen=True, kw_only=True)
class Inner:
    """A table.

    Args:
        word: one of two ``words``,
            on two lines.
    """

    word: Literal["one", "two"] = "one"
    unsaid: bool = False


@dataclass(frozen=True, kw_only=True)
class Base:
    """Base.

    Args:
        rate: as the base has it.
        kept: of the base alone.
    """

    rate: Annotated[float, Within(0.5, 2, "m", "why")] = 1.5
    kept: tuple[str, ...] = ("a",)


@dataclass(frozen=True, kw_only=True)
class Outer(Base):
    """Outer.

    Second paragraph.

    Args:
        rate: as the child has it.
        must: no default.
        maybe: may be left out.

    Raises:
        Nothing: of interest.
    """

    must: int
    rate: float = 2.0
    maybe: float | None = None
    more: Mapping[str, Any] = field(default_factory=dict)
    inner: Inner = field(default_factory=Inner)


def test_a_class_of_settings_is_described() -> None:
    texts = {text.key: text for text in setting_texts(Outer, "t", {"t.inner.unsaid": True})}
    assert list(texts) == ["t.rate", "t.kept", "t.must", "t.maybe", "t.more", "t.inner.word", "t.inner.unsaid"]
    rate = texts["t.rate"]
    assert (rate.meaning, rate.values, rate.default) == ("as the child has it.", "number", "2")
    assert (rate.unit, rate.bounds) == ("m", "between 0.5 and 2 m: why"), "those of the base, which the child keeps"
    assert texts["t.kept"].meaning == "of the base alone."
    assert (texts["t.kept"].values, texts["t.kept"].default) == ("list of texts", '["a"]')
    assert texts["t.must"].default == MISSING
    assert (texts["t.maybe"].values, texts["t.maybe"].default) == ("number | left out", "")
    assert (texts["t.more"].values, texts["t.more"].meaning) == ("table", "")
    assert texts["t.inner.word"].meaning == "one of two `words`, on two lines."
    assert texts["t.inner.word"].values == "one | two"
    assert texts["t.inner.unsaid"].default == "true", "as given beside the field's own"
    assert (texts["t.inner.unsaid"].unit, texts["t.inner.unsaid"].bounds) == ("", "")
    assert description(Outer) == "Outer.\n\nSecond paragraph."
    assert tables_of(Outer) == {"inner": Inner}


@pytest.mark.parametrize(
    ("value", "text"),
    [(1e9, "1e9"), (0.1, "0.1"), (1234567.5, "1234567.5"), (3e-6, "3e-6"), (None, ""), ({"a": [True]}, "{a = [true]}")],
)
def test_defaults_are_written_as_in_toml(value: object, text: str) -> None:
    assert as_toml(value) == text


def kinds() -> dict[str, type]:
    tables = {"experiment": Experiment, **tables_of(Experiment)}
    return {**tables, **{name: LEARNERS.find(name).Settings for name in LEARNERS.names()}}


@pytest.mark.parametrize("name", ["experiment", *tables_of(Experiment), *LEARNERS.names()])
def test_every_setting_has_a_meaning_and_every_table_says_what_it_is(name: str) -> None:
    kind = kinds()[name]
    assert description(kind)
    texts = list(setting_texts(kind))
    assert texts
    for text in texts:
        assert text.meaning.endswith("."), f"{kind.__name__}.{text.key}: {text.meaning!r}"
        assert not text.meaning.startswith("see "), f"{kind.__name__}.{text.key} is told elsewhere"
        assert "<" not in text.values, f"{kind.__name__}.{text.key} is of a kind without words: {text.values}"
