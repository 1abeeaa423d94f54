"""What a plug-in raises, or returns against its protocol, is one line in the protocol's words, with the file's line."""

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from vnetsim.errors import InputError, RunError
from vnetsim.plugins import Kind
from vnetsim.plugins.results import errors_of_plugins, number_of, require_type
from vnetsim.radio import RADIO_MODELS, RATE
from vnetsim.simulation.selection import SELECTIONS

FILE = """
from dataclasses import dataclass
from vnetsim.errors import InputError

def helper(value):
    return 1 / value

class Base:
    def after_round(self, records, memory):
        return helper(0)

@dataclass(frozen=True, kw_only=True)
class Mine(Base):
    name = source = "mine"

    @property
    def figure(self):
        return 1 / 0

    def begin(self):
        raise InputError("mine to say")

    def _inner(self):
        return 1 / 0

    def select(self, candidates, free, context):
        {select}
"""
CONTEXT: Any = SimpleNamespace(round=4)


def policy(tmp_path: Path, select: str = "return 1 / 0") -> Any:
    file = tmp_path / "mine.py"
    file.write_text(FILE.format(select=select))
    return SELECTIONS.find(f"{file}:Mine")()


@pytest.mark.parametrize(
    ("select", "message"),
    [
        ("return 3", "it returned 3, expected Iterable; see vnetsim.simulation.selection.SelectionPolicy."),
        ("return None", "it returned None, expected Iterable; see"),
        ("return 1 / 0", "ZeroDivisionError: division by zero."),
        ("return self._inner()", "ZeroDivisionError: division by zero."),
        ("yield helper(0)", "ZeroDivisionError: division by zero."),
        ("return sorted(candidates, key=lambda one: helper(0))", "ZeroDivisionError: division by zero."),
        ("raise SystemExit(3)", "SystemExit: 3."),
        ("raise ValueError('wrong\\nshape')", "ValueError: wrong shape."),
    ],
)
def test_what_is_wrong_is_told_with_the_line_of_the_file(tmp_path, select, message):
    mine = policy(tmp_path, select)
    with pytest.raises(RunError) as told, errors_of_plugins((RADIO_MODELS, SimpleNamespace()), (SELECTIONS, mine)):
        list(require_type(mine.select(("a", "b"), 1, CONTEXT), Iterable, SELECTIONS, mine, "select", CONTEXT))
    text = str(told.value)
    assert text.startswith(f"selection policy 'mine' failed in select in round 4: {message}"), text
    assert text.rstrip(".").endswith(f"{tmp_path / 'mine.py'}")
    assert " See line " in text
    assert "\n" not in text


def test_the_method_is_named_and_other_errors_pass(tmp_path):
    mine = policy(tmp_path)
    for given in (mine, type(mine)):
        with (
            pytest.raises(RunError, match=r"'mine' failed in after_round: ZeroDivisionError.* See line 6 of"),
            errors_of_plugins((SELECTIONS, given)),
        ):
            mine.after_round([], None)
    with pytest.raises(RunError, match="'mine' failed in figure: Zero"), errors_of_plugins((SELECTIONS, mine)):
        _ = mine.figure
    with pytest.raises(InputError, match=r"^mine to say$"), errors_of_plugins((SELECTIONS, mine)):
        mine.begin()
    with pytest.raises(KeyError), errors_of_plugins((SELECTIONS, mine)):
        raise KeyError("vnetsim's own")


def test_numbers_come_back_plain_and_within_their_bounds():
    model = SimpleNamespace(name="rates", downlink_bps=None)
    given: tuple[Any, Kind, Any, str] = (RATE, RADIO_MODELS, model, "downlink_bps")
    for right in (np.float32(8), 8, 8.0):
        assert (type(rate := number_of(right, *given)), rate) == (float, 8)
    for wrong in (0, -1.0, float("nan"), float("inf"), "8", None, [8], 10**400):
        with pytest.raises(RunError, match=r"radio model 'rates' failed in downlink_bps: it returned .*; see vnet"):
            number_of(wrong, *given)
