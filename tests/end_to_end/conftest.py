"""What tests of whole runs share."""

from collections.abc import Callable

import pytest
from small_runs import cli, results_of, scenarios, small, small_run, small_timing, toy, undrawn

from vnetsim.cli.commands import main

__all__ = ["cli", "refused", "results_of", "scenarios", "small", "small_run", "small_timing", "toy", "undrawn"]


@pytest.fixture
def refused(capfd) -> Callable[..., str]:
    """Calls a command that must fail; returns its one line. Whatever SUMO prints below Python counts as well."""

    def call(*arguments: object, status: int = 2) -> str:
        with pytest.raises(SystemExit) as stopped:
            main([str(argument) for argument in arguments])
        captured = capfd.readouterr()
        assert stopped.value.code == status, captured.err
        assert captured.err.startswith("vnetsim: ")
        assert captured.err.count("\n") == 1, captured.err
        assert captured.err.endswith("\n")
        assert captured.out == ""
        return captured.err

    return call
