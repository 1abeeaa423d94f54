"""Learners by name and by file: what is found, and one line for whatever is wrong with it."""

import sys
from pathlib import Path
from typing import Any

import pytest

from vnetsim.errors import InputError, RunError
from vnetsim.learning.kinds import LEARNERS
from vnetsim.plugins import entry_points

METHODS = [part for part in LEARNERS.parts if part not in ("name", "task", "paper", "Settings")]
BODY = "\n".join(f"    def {method}(self, *_, **__): ..." for method in METHODS)
HEAD = """
from __future__ import annotations
from dataclasses import dataclass

@dataclass(frozen=True, kw_only=True)
class MineSettings:
    batch: int = 3
"""
NAMES = "    name, task, paper, Settings = 'mine', 'a task', 'a paper', MineSettings"
MINE = f"{HEAD}\nclass Mine:\n{NAMES}\n{BODY}\n"
OF_PROTOCOL = f"{HEAD}\nfrom vnetsim.learning import Learner\nclass Mine(Learner):\n{NAMES}\n"
ABSTRACT = f"{HEAD}\nimport abc\nclass Mine(abc.ABC):\n{NAMES}\n{BODY}\n".replace(
    "    def train", "    @abc.abstractmethod\n    def train"
)


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


def test_a_learner_has_these_parts():
    methods = {"create", "describe", "series", "cost", "train", "aggregate", "evaluate"}
    state = {"state_dict", "load_state_dict", "sample_images"}
    assert set(LEARNERS.parts) == {"name", "task", "paper", "Settings"} | methods | state


def test_a_class_of_a_file(file, monkeypatch):
    found: Any = LEARNERS.find(f"{file}:Mine")
    assert found.name == "mine"
    assert found.Settings().batch == 3
    assert LEARNERS.find(f"{file}:Mine") is found, "run once"
    monkeypatch.chdir(file.parent)
    assert LEARNERS.find("mine.py:Mine") is found
    assert not list(file.parent.glob("__pycache__")), "nothing is written beside it"
    assert str(file.parent) not in sys.path
    file.write_text(MINE.replace("= 3", "= 4"))
    assert LEARNERS.find(f"{file}:Mine").Settings().batch == 4, "a changed file is another learner"


def replaced(old: str, new: str) -> str:
    assert old in MINE
    return MINE.replace(old, new)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (replaced("class Mine:", "class Mini:"), r"mine\.py: unknown learner class 'Mine'\. Did you mean 'Mini'\?"),
        ("x = 1\n", r"mine\.py: unknown learner class 'Mine'\. Available: none"),
        ("Mine = 3\n", r"mine\.py:Mine: not a class"),
        ("x = 1\nclass Mine(:\n", r"mine\.py:2: invalid syntax"),
        ("x = '\n", r"mine\.py:1: unterminated string literal"),
        ("x = 1\n\nimport no_such_package\n", r"mine\.py:3: ModuleNotFoundError: No module named 'no_such_package'\.$"),
        ("import beside\n", r"mine\.py:1: ModuleNotFoundError: .* stands alone: what it imports must be installed"),
        ("def f():\n    return 1 / 0\n\nf()\n", r"mine\.py:2: ZeroDivisionError: division by zero\.$"),
        ("import sys\nsys.exit('no\\nway')\n", r"mine\.py:2: SystemExit: no way\.$"),
        (replaced("def train", "def trains"), r"mine\.py:Mine: it lacks train, which a learner must have"),
        (f"{HEAD}\nclass Mine:\n    name = 'x'\n{BODY}\n", r"it lacks task, paper, Settings, which"),
        (OF_PROTOCOL, r"mine\.py:Mine: it lacks create, describe"),
        (ABSTRACT, r"mine\.py:Mine: it lacks train,"),
        (replaced("'a task'", "3"), r"mine\.py:Mine: its task must be a string"),
        (replaced("@dataclass(frozen=True, kw_only=True)", ""), r"mine\.py:Mine: its Settings must be a dataclass"),
        (replaced("'a paper', MineSettings", "'a paper', MineSettings()"), r"its Settings must be a dataclass"),
        (replaced("frozen=True, ", ""), r"its Settings must be a dataclass, frozen"),
        (replaced("batch: int", "batch: Nowhere"), r"its settings cannot be read: NameError: name 'Nowhere' is not"),
        (replaced("def train(self, *_, **__)", "def train(self)"), r"Mine: its method train cannot be called with "),
        (f"{MINE}    defaults = ['rounds']\n", r"mine\.py:Mine: its defaults must be a mapping"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(file, text, message):
    file.write_text(text)
    (file.parent / "beside.py").touch()
    before = set(sys.modules)
    with pytest.raises(InputError, match=message) as caught:
        LEARNERS.find(f"{file}:Mine")
    assert "\n" not in str(caught.value)
    left = {name for name in set(sys.modules) - before if name.startswith("vnetsim_learner")}
    assert not left or "mine.py:Mine" in str(caught.value) or "unknown learner class" in str(caught.value)


def test_a_file_that_is_not_there_or_not_named_in_full(file):
    with pytest.raises(InputError, match=r"gone\.py: no such file"):
        LEARNERS.find(f"{file.parent / 'gone.py'}:Mine")
    with pytest.raises(InputError, match="cannot be read"):
        LEARNERS.find(f"{file.parent}:Mine")
    with pytest.raises(InputError, match=r"mine\.py': name the class as well, as .*mine\.py:CLASS"):
        LEARNERS.find(str(file))
    with pytest.raises(InputError, match="unknown learner class ''"):
        LEARNERS.find(f"{file}:")


class Entry:
    """An entry point whose package is at fault."""

    name = "broken"
    value = "package:Class"

    def __init__(self, load: Any) -> None:
        self.load = load


@pytest.mark.parametrize(
    ("load", "message"),
    [
        (lambda: {}["x"], r"learner 'broken' \(package:Class\) cannot be imported: 'x'\."),
        (lambda: int, r"learner 'broken' \(package:Class\): it lacks name, task, paper"),
    ],
)
def test_an_installed_learner_that_is_at_fault(load, message, monkeypatch):
    monkeypatch.setattr("vnetsim.plugins.entry_points", lambda group: [*entry_points(group=group), Entry(load)])
    assert "broken" in LEARNERS.names()
    with pytest.raises(RunError, match=message):
        LEARNERS.find("broken")


def test_every_installed_learner_tells_payload_and_equations():
    for name in LEARNERS.names():
        told = LEARNERS.find(name)
        assert told.payload, name
        assert told.equations, name
        assert all(equation.strip() == equation and "\n" not in equation for equation in told.equations)
