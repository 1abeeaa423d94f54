"""How a device computes is set for a run, and the process is left as it was."""

import os
from collections.abc import Iterator
from contextlib import suppress

import pytest
import torch

from vnetsim.experiment import Experiment
from vnetsim.experiment.arithmetic import WORKSPACE, Arithmetic
from vnetsim.scenario.settings_file import parse_override


def flags() -> tuple[object, ...]:
    return (
        torch.backends.cuda.matmul.allow_tf32,
        torch.backends.cudnn.allow_tf32,
        torch.backends.cudnn.deterministic,
        torch.backends.cudnn.benchmark,
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        os.environ.get(WORKSPACE),
    )


@pytest.fixture(autouse=True)
def as_before(monkeypatch) -> Iterator[None]:
    monkeypatch.delenv(WORKSPACE, raising=False)
    before = flags()
    yield
    assert flags() == before


def test_neither_is_the_default_and_torchs_own_is_another():
    assert Experiment(scenario="gaussian").arithmetic == Arithmetic(tf32=False, deterministic=False)
    assert parse_override("arithmetic.tf32=true") == (("arithmetic", "tf32"), True)
    assert torch.backends.cudnn.allow_tf32, "torch would compute convolutions with TF32"
    with Arithmetic().applied():
        assert flags() == (False, False, False, False, False, False, None)


def test_flags_are_set_within():
    torch.backends.cudnn.benchmark = True
    try:
        with Arithmetic(tf32=True).applied():
            assert flags() == (True, True, False, True, False, False, None)
        with Arithmetic(deterministic=True).applied():
            assert flags() == (False, False, True, False, True, False, ":4096:8")
        assert torch.backends.cudnn.benchmark
    finally:
        torch.backends.cudnn.benchmark = False


def test_what_was_set_before_is_back_after_an_error(monkeypatch):
    monkeypatch.setenv(WORKSPACE, ":16:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    before = flags()
    try:
        seen = []
        with suppress(ZeroDivisionError), Arithmetic(tf32=True, deterministic=True).applied():
            seen.append(flags())
            raise ZeroDivisionError
        assert seen == [(True, True, True, False, True, False, ":16:8")], "a workspace of the user's stays"
        assert flags() == before
        with Arithmetic().applied():
            assert not torch.are_deterministic_algorithms_enabled()
        assert flags() == before
    finally:
        torch.use_deterministic_algorithms(False)
        monkeypatch.delenv(WORKSPACE)


def test_what_holds_already_does_not_load_torchs_compiler(monkeypatch):
    """It comes with ``use_deterministic_algorithms``, and takes seconds."""
    monkeypatch.setattr(torch, "use_deterministic_algorithms", lambda *_, **__: pytest.fail("asked again"))
    with Arithmetic().applied():
        assert not torch.are_deterministic_algorithms_enabled()
