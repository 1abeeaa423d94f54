"""What a setting means is read from where it is declared; every setting there is has a meaning."""

import pytest

from vnetsim.experiment import Experiment
from vnetsim.learning.kinds import LEARNERS
from vnetsim.setting_texts import description, setting_texts, tables_of


def kinds() -> dict[str, type]:
    tables = {"experiment": Experiment, **tables_of(Experiment)}
    return {**tables, **{name: LEARNERS.find(name).Settings for name in LEARNERS.names()}}


@pytest.mark.parametrize("name", ["experiment", *tables_of(Experiment), *LEARNERS.names()])
def test_every_setting_has_a_meaning_and_every_table_says_what_it_is(name):
    kind = kinds()[name]
    assert description(kind)
    texts = list(setting_texts(kind))
    assert texts
    for text in texts:
        assert text.meaning.endswith("."), f"{kind.__name__}.{text.key}: {text.meaning!r}"
        assert not text.meaning.startswith("see "), f"{kind.__name__}.{text.key} is told elsewhere"
        assert "<" not in text.values, f"{kind.__name__}.{text.key} is of a kind without words: {text.values}"
