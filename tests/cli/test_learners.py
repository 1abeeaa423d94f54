"""`vnetsim learners`: the list, and one learner explained."""

from importlib.metadata import entry_points
from pathlib import Path

import pytest

from vnetsim.cli.commands import main
from vnetsim.learning.registry import LEARNERS, learner_names

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
    assert len(out.splitlines()) < 8 * len(learner_names()), "no narrow columns of words"
    assert set(learner_names()) <= set(words)
    assert "\u2026" not in out, "nothing is cut"


def test_a_learner_is_explained(mine: str, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = told(capsys, mine)
    lines = [line.rstrip() for line in out.splitlines()]
    assert lines[:2] == ["mine: idling", "Does nothing at all [bold]."]
    assert "But well." in lines
    assert "hidden" not in out
    assert "paper: Nobody (2020): Nothing, arXiv:0000.00000" in lines
    assert "payload of a participation: nothing [red]" in lines
    assert "  x = [1, 2]  (Eq. 1)" in lines
    assert f"  {'y' * 100}" in lines, "an equation is not broken"
    rows = [[cell.strip() for cell in line.split("\u2502")[1:-1]] for line in lines if line.startswith("\u2502")]
    assert rows == [["widths", "('a', 'b')"], ["must", "(must be given)"], ["rate", "0.5"], ["round.quorum", "2"]]
    assert lines.index("settings (--set learning.NAME=VALUE)") < lines.index(
        "general settings of which it has a default of its own (--set KEY=VALUE)"
    )


def test_the_equations_of_an_installed_one(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = told(capsys, "flsimco")
    assert "  weights: w_n = (S - L_n) / ((N - 1) S), S = sum_n L_n  (Eq. 11); 1 / N where N = 1 or S = 0\n" in out
    assert "t_alpha" in out
    assert "2408.00256" in out


def test_a_package_at_fault_does_not_hide_the_others(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        name, value = "broken", "package:Class"

        def load(self) -> None:
            raise ImportError("no\nway")

    monkeypatch.setattr("vnetsim.plugins.entry_points", lambda group: [*entry_points(group=group), Broken()])
    out, err = told(capsys, status=1)
    assert "flsimco" in out
    assert err == "vnetsim: learner 'broken' (package:Class) cannot be imported: no way.\n"


def test_a_name_that_is_none(mine: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "unknown learner 'x'" in told(capsys, "x", status=2)[1]
    assert (
        "unknown learner class 'Mime'. Did you mean 'Mine'?"
        in told(capsys, mine.replace(":Mine", ":Mime"), status=2)[1]
    )
