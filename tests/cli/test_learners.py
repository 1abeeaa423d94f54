"""`vnetsim learners`: the list, and one learner explained."""

from pathlib import Path

import pytest

from vnetsim.cli.commands import main
from vnetsim.learning.registry import LEARNERS

MINE = """
from dataclasses import dataclass, field

@dataclass(frozen=True, kw_only=True)
class Settings:
    widths: tuple[str, ...] = field(default_factory=lambda: ("a", "b"))
    must: int
    rate: float = 0.5

class Mine:
    \"\"\"Does nothing
    at all [bold].

    But well.

    Args:
        hidden: from who only runs it.
    \"\"\"
    name, task, paper, payload = "mine", "idling", "Nobody (2020): Nothing, arXiv:0000.00000", "nothing [red]"
    equations = ("x = [1, 2]  (Eq. 1)", "y" * 100)
    defaults = {"round.quorum": 2}
    Settings = Settings
"""
METHODS = [part for part in LEARNERS.parts if part not in ("name", "task", "paper", "Settings")]


def told(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> tuple[str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(["learners", *arguments])
    assert stopped.value.code == status
    captured = capsys.readouterr()
    return captured.out, captured.err


@pytest.fixture
def mine(tmp_path: Path) -> str:
    file = tmp_path / "mine.py"
    file.write_text(MINE + "\n".join(f"    def {part}(self): ..." for part in METHODS))
    return f"{file}:Mine"


def test_the_list_has_name_task_payload_and_paper(capsys: pytest.CaptureFixture[str]) -> None:
    out, err = told(capsys)
    assert err == ""
    words = "".join(line.replace("\u2502", " ") for line in out.splitlines()).split()
    assert {"task", "payload", "paper", "contrastive", "queue"} <= set(words)
    assert max(map(len, out.splitlines())) <= 80
    assert len(out.splitlines()) < 8 * len(LEARNERS.names()), "no narrow columns of words"
    assert set(LEARNERS.names()) <= set(words)
    assert "\u2026" not in out, "nothing is cut"


def test_a_learner_is_explained(mine: str, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = told(capsys, mine)
    lines = [line.rstrip() for line in out.splitlines()]
    assert lines[:2] == ["mine: learner", "Does nothing at all [bold]."]
    assert "hidden" not in out
    assert f"    {'y' * 100}" in lines, "an equation is not broken"
    for line in ("But well.", "    x = [1, 2]  (Eq. 1)", "task: idling", "payload: nothing [red]"):
        assert line in lines
    assert "source: Nobody (2020): Nothing, arXiv:0000.00000" in lines
    for line in ('learning.widths = ["a", "b"]', "learning.must = (must be given)", "learning.rate = 0.5"):
        assert line in lines
    assert lines.index("round.quorum = 2") > lines.index("defaults that it brings for other settings")


def test_the_equations_of_an_installed_one(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = told(capsys, "flsimco")
    assert "    weights: w_n = (S - L_n) / ((N - 1) S), S = sum_n L_n  (Eq. 11); 1 / N where N = 1 or S = 0\n" in out
    assert "t_alpha" in out
    assert "2408.00256" in out


def test_a_name_that_is_none(mine: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "unknown learner 'x'" in told(capsys, "x", status=2)[1]
    assert (
        "unknown learner class 'Mime'. Did you mean 'Mine'?"
        in told(capsys, mine.replace(":Mine", ":Mime"), status=2)[1]
    )
