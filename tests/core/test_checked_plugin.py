"""What a plug-in raises, or returns against its protocol, is one line in the protocol's words, with the file's line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from vnetsim.errors import InputError, RunError
from vnetsim.learning import Learner
from vnetsim.learning.kinds import ENCODERS, EncoderTrunk
from vnetsim.plugins.checked import checked
from vnetsim.radio import RadioModel
from vnetsim.simulation.selection import SELECTIONS, SelectionPolicy

FILE = """
from dataclasses import dataclass
from vnetsim.errors import InputError

@dataclass(frozen=True, kw_only=True)
class Mine:
    name = source = "mine"

    def begin(self):
        {begin}

    def select(self, candidates, free, context):
        {select}

    def after_round(self, records):
        return "nobody asks"
"""


def policy(tmp_path: Path, *, select: str = "return candidates", begin: str = "return 3") -> Any:
    file = tmp_path / "mine.py"
    file.write_text(FILE.format(select=select, begin=begin))
    return checked(SELECTIONS.find(f"{file}:Mine")(), SELECTIONS.name, SelectionPolicy)


CONTEXT: Any = SimpleNamespace(round=4)


def ask(tmp_path: Path, select: str) -> list[Any]:
    return list(policy(tmp_path, select=select).select(("a", "b"), 1, CONTEXT))


def test_what_is_right_passes(tmp_path: Path) -> None:
    assert ask(tmp_path, "yield from candidates") == ["a", "b"]
    assert policy(tmp_path).after_round([]) == "nobody asks"


@pytest.mark.parametrize(
    ("select", "message"),
    [
        ("return 3", "it returned 3, expected an Iterable of Candidate; see vnetsim.simulation.selection.Selection"),
        ("return None", "it returned None, expected an Iterable"),
        ("return 1 / 0", "ZeroDivisionError: division by zero."),
        ("yield 1 / 0", "ZeroDivisionError: division by zero."),
        ("raise SystemExit(3)", "SystemExit: 3."),
    ],
)
def test_what_is_wrong_is_told_with_the_line_of_the_file(tmp_path: Path, select: str, message: str) -> None:
    with pytest.raises(RunError) as told:
        ask(tmp_path, select)
    text = str(told.value)
    assert text.startswith(f"selection policy 'mine' failed in select in round 4: {message}"), text
    assert text.rstrip(".").endswith(f"{tmp_path / 'mine.py'}")
    assert " See line " in text
    assert "\n" not in text


def test_what_is_vnetsims_own_error_passes_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="mine to say"):
        policy(tmp_path, begin="raise InputError('mine to say')").begin()
    with pytest.raises(RunError, match="selection policy 'mine' failed in begin: ZeroDivisionError"):
        policy(tmp_path, begin="1 / 0").begin()


def test_numbers_come_back_plain_and_within_their_bounds() -> None:
    class Rates:
        name = "rates"

        def __init__(self, found: object) -> None:
            self.found = found

        def downlink_bps(self, *_: object) -> object:
            return self.found

    given: Any = (None, (0.0, 0.0), None)
    rate = checked(Rates(np.float32(8)), "radio model", RadioModel).downlink_bps(*given)  # type: ignore[type-var]
    assert (type(rate), rate) == (float, 8)
    for wrong in (0, -1.0, float("nan"), float("inf"), "8", None, [8]):
        with pytest.raises(RunError, match="radio model 'rates' failed in downlink_bps: it returned"):
            checked(Rates(wrong), "radio model", RadioModel).downlink_bps(*given)  # type: ignore[type-var]


def test_an_encoder_without_its_channels() -> None:
    class Trunk:
        name = "trunk"

        def build(self) -> object:
            return object()

    words = r"encoder 'trunk' failed in build: it returned an object, expected the network and its number of channels"
    with pytest.raises(RunError, match=words):
        checked(Trunk(), ENCODERS.name, EncoderTrunk).build()  # type: ignore[type-var]


def test_a_learner_of_no_finite_number() -> None:
    class Toy:
        name = "toy"

        def evaluate(self, **_: bool) -> dict[str, float]:
            return {"accuracy": float("nan")}

        def train(self, _: Any) -> Any:
            return [3]

    toy: Any = checked(Toy(), "learner", Learner)  # type: ignore[type-var]
    assert isinstance(toy, Toy)
    with pytest.raises(RunError, match="failed in evaluate: its 'accuracy' is nan; what is no finite number is to be"):
        toy.evaluate(final=False)
    one = SimpleNamespace(round=2, vehicle_id="v7")
    with pytest.raises(RunError, match="failed in train in round 2 at vehicle 'v7': it returned 3, expected an Update"):
        toy.train([one])
    with pytest.raises(AttributeError):
        _ = toy.nothing


def test_what_a_lazy_answer_raises_is_told() -> None:
    class Late:
        name = "late"

        def select(self, candidates: Any, *_: Any) -> Iterator[Any]:
            yield candidates[0]
            raise KeyError("x")

    found = checked(Late(), "selection policy", SelectionPolicy).select(["a"], 1, CONTEXT)  # type: ignore[type-var, list-item]
    assert next(iter(found)) == "a"
    with pytest.raises(RunError, match="'late' failed in select in round 4: KeyError: 'x'"):
        list(found)
