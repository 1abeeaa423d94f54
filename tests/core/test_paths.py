"""Names that become paths stay names; paths that no record can hold are refused before anything is written."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vnetsim.cli.commands import main
from vnetsim.errors import InputError
from vnetsim.errors.paths import path_name, resolve_path
from vnetsim.study.request import plan_of

STUDY = """
scenario = "gaussian"
[[arms]]
learner = "flsimco"
name = "../../escaped"
[[arms]]
learner = "fedavg"
[[conditions]]
name = "/etc/x"
[sizes."x/../../escaped"]
[sizes."..".settings]
"""


@given(st.lists(st.text(max_size=60), max_size=3))
def test_whatever_words_are_their_name_is_one_part_of_a_path(words):
    name = path_name(*words)
    assert Path("folder", name).parts == ("folder", name)
    assert name.isascii()
    assert name[0] not in ".-"
    assert 0 < len(name) < 255


@pytest.mark.parametrize("size", ["x/../../escaped", ".."])
def test_the_names_of_a_study_do_not_leave_the_folder(size, tmp_path):
    (tmp_path / "study.toml").write_text(STUDY)
    plan, name = plan_of(str(tmp_path / "study.toml"), [], size=size, seeds="0")
    assert name == ("study-x-..-..-escaped" if "x" in size else "study")
    for cell in plan.cells:
        assert Path("cells", cell.folder("hash")).resolve().parent == Path("cells").resolve()


@pytest.mark.parametrize("path", [os.fsdecode(b"n\xffx"), "a\0b", "b" * 3000])
def test_a_name_that_no_file_can_have(path):
    with pytest.raises(InputError, match="not a path of a file or folder: "):
        resolve_path(path)


def refusal(arguments: tuple[str, ...], folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the one line by which a command refuses its input; it leaves ``folder`` as it was."""
    before = sorted(path.name for path in folder.iterdir())
    with pytest.raises(SystemExit) as stopped:
        main(list(arguments))
    line = capsys.readouterr().err
    assert stopped.value.code == 2, line
    assert line.count("\n") == 1
    assert sorted(path.name for path in folder.iterdir()) == before
    return line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("mobility", "gaussian", "--no-report", "--out", os.fsdecode(b"n\xffx")),
            "has characters that no name can have.",
        ),
        (("mobility", "loop.sumocfg", "--out", "out"), "loop.sumocfg"),
        (("mobility", "loop", "--out", "out"), "loop"),
        (("mobility", "loop.csv", "--rsu", "0,0:5", "--out", "out"), "loop.csv"),
        (("mobility", "gaussian", "--no-report", "--out", "loop"), "loop"),
        (("run", "gaussian", "--data", "folder", "--data-root", "loop", "--out", "out"), "loop"),
    ],
)
def test_no_command_fails_by_them_or_leaves_a_file(arguments, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("loop", "loop.sumocfg", "loop.csv"):
        Path(name).symlink_to(name)
    line = refusal(arguments, tmp_path, capsys)
    assert words in line
