"""`vnetsim plugins`: every kind, every installed plug-in, and what one says of itself."""

import re
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from vnetsim.cli.commands import main
from vnetsim.cli.plugins import kinds, word
from vnetsim.setting_texts import setting_texts

Captured = pytest.CaptureFixture[str]
PLUGINS = [(word(kind), name) for kind in kinds() for name in kind.names()]


def told(capsys: Captured, *arguments: str, status: int = 0) -> str:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    captured = capsys.readouterr()
    assert stopped.value.code == status, captured.err
    return captured.err if status else captured.out


def test_every_group_of_entry_points_is_a_kind() -> None:
    declared = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["entry-points"]
    assert set(declared) <= {kind.group for kind in kinds()}
    modules = (Path(__file__).parents[2] / "vnetsim").rglob("*.py")
    made = [name for path in modules for name in re.findall(r"^(\w+) = Kind\(", path.read_text(), re.MULTILINE)]
    assert len(made) == len(kinds()), made


def test_all_are_listed_below_their_kind(capsys: Captured) -> None:
    lines = told(capsys, "plugins").splitlines()
    heads = [line for line in lines if line and not line.startswith(" ")]
    assert heads == [word(kind) for kind in kinds()]
    listed: dict[str, list[str]] = {}
    for line in lines:
        if line and not line.startswith(" "):
            listed[line] = []
        elif line.startswith("  ") and not line.startswith("   ") and " = NAME" not in line and "  " in line.strip():
            listed[heads[len(listed) - 1]].append(line.split()[0])
    assert [(kind, name) for kind, names in listed.items() for name in names] == PLUGINS
    assert all(len(line) <= 100 and line == line.rstrip() for line in lines)


@pytest.mark.parametrize("asked", ["selections", "selection", "selection policy"])
def test_one_kind_alone(asked: str, capsys: Captured) -> None:
    out = told(capsys, "plugins", asked)
    assert out.splitlines()[0] == "selections"
    assert "\n  arrival" in out
    assert "flsimco" not in out
    assert "round.selection = NAME, or path/to/file.py:CLASS" in out


@pytest.mark.parametrize(("kind", "name"), PLUGINS)
def test_each_says_what_it_is_with_source_and_every_setting(kind: str, name: str, capsys: Captured) -> None:
    found = next(one for one in kinds() if word(one) == kind)
    out = told(capsys, "plugins", kind, name)
    assert out.startswith(f"{name}: {found.name}\n")
    assert "\nsource: " in out
    described = out.splitlines()[1]
    assert described.strip(), "it has no docstring"
    for text in setting_texts(found.find(name).Settings, found.table):
        assert f"\n{text.key} = " in out or f"\n{text.key}\n" in out
        assert text.meaning, f"{text.key} has no meaning in the docstring of its Settings"


def test_one_of_a_file_with_meaning_unit_default_and_bounds(capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text('''
from dataclasses import dataclass
from typing import Annotated
from vnetsim.setting_checks import Within
from vnetsim.simulation.selection.arrival import ArrivalSelection

class Mine(ArrivalSelection):
    """Takes the ones with time left.

    By slack::

        R_n - T_n  >=  margin T_n
    """
    name, source = "mine", "nobody (2020)"

    @dataclass(frozen=True, kw_only=True)
    class Settings:
        """How much.

        Args:
            margin: share of the duration that must be left.
        """
        margin: Annotated[float, Within(0, 9, "s", "no window is longer")] = 0.5
''')
    assert told(capsys, "plugins", "selections", f"{tmp_path / 'mine.py'}:Mine").splitlines() == [
        "mine: selection policy",
        "Takes the ones with time left.",
        "",
        "By slack::",
        "",
        "    R_n - T_n  >=  margin T_n",
        "",
        "source: nobody (2020)",
        f"class: {tmp_path / 'mine.py'}:Mine",
        "",
        "[selection]",
        "How much.",
        "",
        "selection.margin = 0.5",
        "    share of the duration that must be left.",
        "    number, between 0 and 9 s: no window is longer",
    ]


def test_unknown_kinds_and_names_are_refused(capsys: Captured) -> None:
    assert "unknown kind of plug-in 'selctions'. Did you mean 'selections'?" in told(
        capsys, "plugins", "selctions", status=2
    )
    assert "unknown pace 'quorun'. Did you mean 'quorum'?" in told(capsys, "plugins", "paces", "quorun", status=2)


def test_one_at_fault_does_not_hide_the_others(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        name, value = "broken", "nowhere:Broken"

        def load(self) -> type:
            raise ImportError("no nowhere")

    monkeypatch.setattr("vnetsim.plugins.entry_points", lambda group: [*entry_points(group=group), Broken()])
    with pytest.raises(SystemExit) as stopped:
        main(["plugins", "paces"])
    captured = capsys.readouterr()
    assert stopped.value.code == 1
    assert "\n  quorum" in captured.out
    assert captured.err == "vnetsim: pace 'broken' (nowhere:Broken) cannot be imported: no nowhere.\n"
