"""Ctrl-C is one line, wherever it is noticed."""

import pytest

from vnetsim.cli import commands as cli


class PanicException(BaseException):
    """A panic; no ``Exception``."""


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (KeyboardInterrupt(), "vnetsim: interrupted.\n"),
        (KeyboardInterrupt("interrupted after 3 rounds."), "vnetsim: interrupted after 3 rounds.\n"),
        (
            PanicException("called on an Err value: PyErr { type: <class 'KeyboardInterrupt'> }"),
            "vnetsim: interrupted; go on with vnetsim resume, or with the same command.\n",
        ),
    ],
)
def test_one_line(
    error: BaseException, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(cli, "app", interrupted)
    with pytest.raises(SystemExit) as ended:
        cli.main(["run", "gaussian"])
    assert ended.value.code == 130
    assert capsys.readouterr().err == line


def test_another_panic_is_no_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    def panicked(*_: object, **__: object) -> None:
        raise PanicException("index out of bounds")

    monkeypatch.setattr(cli, "app", panicked)
    with pytest.raises(PanicException, match="out of bounds"):
        cli.main(["run", "gaussian"])
