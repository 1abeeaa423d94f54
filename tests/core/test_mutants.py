"""``make mutants``: which tests a mutant meets, and what is told of the sample."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

REACH = {
    "learners.a.x_small": ["narrow", "wide", "slow"],
    "learners.a.x_large": ["wide", "slow"],
    "learners.a.xǁClsǁof": ["wide"],
}
SECONDS = {"narrow": 2.0, "wide": 1.0, "slow": 9.0}


@pytest.fixture(scope="module")
def tool() -> Any:
    spec = importlib.util.spec_from_file_location("mutants", Path(__file__).parents[1] / "mutants.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("mutant", "budget_s", "tests"),
    [
        ("learners.a.x_small__mutmut_3", 100.0, ["wide", "narrow", "slow"]),  # the quickest first
        ("learners.a.x_small__mutmut_3", 5.0, ["wide", "narrow"]),
        ("learners.a.x_small__mutmut_3", 2.0, ["narrow"]),  # which reaches nothing else
        ("learners.a.x_large__mutmut_1", 9.0, ["slow"]),
        ("learners.a.x_large__mutmut_1", 0.5, ["slow"]),  # one in any case
        ("learners.a.xǁClsǁof__mutmut_12", 5.0, ["wide"]),
        ("learners.a.x_unknown__mutmut_1", 5.0, []),
    ],
)
def test_tests_that_reach_little_else_go_first(tool: Any, mutant: str, budget_s: float, tests: list[str]) -> None:
    assert tool.chosen_tests(mutant, REACH, SECONDS, budget_s) == tests


def test_the_share_and_its_interval(tool: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(tool, "mutmut", lambda *_: "--- a\n+++ b\n-x = 1\n+x = 2\n kept\n")
    states = {f"learners.a.x_f__mutmut_{i}": "killed" for i in range(18)}
    tool.report(
        states | {"learners.b.xǁClsǁof__mutmut_1": "survived", "learners.a.x_g__mutmut_1": "timeout"}, seconds=7
    )
    told = capsys.readouterr().out
    assert "survived: learners.b.xǁClsǁof__mutmut_1\n  -x = 1\n  +x = 2\n" in told
    assert "19 of   19 killed" in told
    # Clopper-Pearson for 19 of 20
    assert "19 of 20 killed in 7 s: 95.0% (75.1% to 99.9%)" in told
