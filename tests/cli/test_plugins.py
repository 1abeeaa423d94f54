"""`vnetsim plugins`: every kind, every installed plug-in, and what one says of itself."""

import contextlib
import re
import tomllib
from pathlib import Path

import pytest

from vnetsim.cli.commands import main
from vnetsim.cli.lookup import kinds, word
from vnetsim.errors import InputError
from vnetsim.setting_texts import setting_texts

Captured = pytest.CaptureFixture[str]
PLUGINS = [(word(kind), name) for kind in kinds() for name in kind.names()]
SCENARIOS = Path(__file__).parents[2] / "scenarios"


def examples() -> list[tuple[str, str]]:
    """Return kind and name, ``file.py:Class``, of every plug-in of a file in ``scenarios``."""
    found = []
    for path in sorted([*SCENARIOS.glob("*.py"), *(SCENARIOS / "plugins").glob("*.py")]):
        for name in re.findall(r"^class (\w+)", path.read_text(), re.MULTILINE):
            for kind in kinds():
                with contextlib.suppress(InputError):
                    kind.find(f"{path}:{name}")
                    found.append((word(kind), f"{path}:{name}"))
                    break
    return found


def told(capsys: Captured, *arguments: str) -> str:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    captured = capsys.readouterr()
    assert stopped.value.code == 0, captured.err
    return captured.out


def test_every_group_of_entry_points_is_a_kind():
    declared = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["entry-points"]
    assert set(declared) <= {kind.group for kind in kinds()}
    modules = (Path(__file__).parents[2] / "vnetsim").rglob("*.py")
    made = [name for path in modules for name in re.findall(r"^(\w+) = Kind\(", path.read_text(), re.MULTILINE)]
    assert len(made) == len(kinds()), made


def test_all_are_listed_below_their_kind(capsys):
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


@pytest.mark.parametrize(("kind", "name"), [*PLUGINS, *examples()])
def test_each_says_what_it_is_with_source_and_every_setting(kind, name, capsys):
    found = next(one for one in kinds() if word(one) == kind)
    out = told(capsys, "plugins", kind, name)
    assert out.startswith(f"{found.find(name).name}: {found.name}\n")
    assert "\nsource: " in out
    described = out.splitlines()[1]
    assert described.strip(), "it has no docstring"
    assert "::" not in out
    assert "vnetsim.learning.Learner" not in out
    for text in setting_texts(found.settings_of(found.find(name)), found.table):
        assert f"\n{text.key} = " in out or f"\n{text.key}\n" in out
        assert text.meaning.endswith("."), f"{text.key} has no meaning in the docstring of its Settings"
        assert not text.meaning.startswith("see "), f"{text.key} is told elsewhere"
        assert "<" not in text.values, f"{text.key} is of a kind without words: {text.values}"
        assert text.bounds or "number" not in text.values, f"{text.key} has no bounds in its annotation"


def test_every_example_is_listed_and_equations_stand_with_those_that_have_some(capsys):
    files = [*SCENARIOS.glob("*.py"), *(SCENARIOS / "plugins").glob("*.py")]
    assert len(examples()) == len(files) - 1, "flower_schedule.py is no plug-in"
    assert {kind for kind, _ in examples()} == {word(kind) for kind in kinds()}
    assert "    R   = B min(efficiency log2(1 + SNR), " in told(capsys, "plugins", "radio_models", "tr37885")
    assert "    v_n ~ N(mean_kmh, sd_kmh^2)" in told(capsys, "plugins", "traffic_sources", "gaussian")


@pytest.mark.usefixtures("broken_plug_in")
def test_one_at_fault_does_not_hide_the_others(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["plugins", "paces"])
    captured = capsys.readouterr()
    assert stopped.value.code == 1
    assert "\n  quorum" in captured.out
    assert captured.err == "vnetsim: pace 'broken' (nowhere:Broken) cannot be imported: no nowhere.\n"
