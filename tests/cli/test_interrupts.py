"""Ctrl-C is one line, wherever it is noticed, and so is what nobody expected."""

import pytest

from vnetsim.cli import commands as cli


class PanicException(BaseException):
    """A panic; no ``Exception``."""


@pytest.mark.parametrize(
    ("error", "line", "status"),
    [
        (KeyboardInterrupt(), "vnetsim: interrupted.\n", 130),
        (KeyboardInterrupt("interrupted after 3 rounds."), "vnetsim: interrupted after 3 rounds.\n", 130),
        (
            PanicException("called on an Err value: PyErr { type: <class 'KeyboardInterrupt'> }"),
            "vnetsim: interrupted; go on with vnetsim resume, or with the same command.\n",
            130,
        ),
        (
            PanicException("index\nout of bounds"),
            "vnetsim: internal error: PanicException: index out of bounds (--debug shows where).\n",
            1,
        ),
    ],
)
def test_one_line(
    error: BaseException, line: str, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(cli, "app", interrupted)
    with pytest.raises(SystemExit) as ended:
        cli.main(["run", "gaussian"])
    assert ended.value.code == status
    assert capsys.readouterr().err == line


class Killed(BaseException):
    """What is neither an error nor a panic."""


@pytest.mark.parametrize("kind", [SystemExit, GeneratorExit, Killed])
def test_what_ends_the_process_is_no_error(kind: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(*_: object, **__: object) -> None:
        raise kind

    monkeypatch.setattr(cli, "app", ended)
    with pytest.raises(kind):
        cli.main(["run", "gaussian"])
