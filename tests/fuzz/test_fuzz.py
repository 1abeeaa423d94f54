"""What fuzzing once found stays mended; a few inputs of each kind; and the fuzzer itself finds what it should."""

from __future__ import annotations

import random
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fuzz import FINDINGS, damaged, fault_of, replayed, tried
from mutations import mutated
from targets import TARGETS, Done, Target, inner

KEPT = sorted((target, folder) for target in TARGETS for folder in (FINDINGS / target).glob("*"))
SLOW = {"comparison", "comparison-again", "live-net", "process", "report", "resume", "scenario"}
QUICK = [name for name in TARGETS if name not in SLOW]


@pytest.mark.parametrize(("target", "finding"), KEPT, ids=lambda value: getattr(value, "name", value))
def test_what_was_found_is_mended(target: str, finding: Path, tmp_path: Path) -> None:
    fault, told = replayed(target, finding, tmp_path)
    assert not fault, told


@pytest.mark.parametrize("target", QUICK)
def test_a_few_inputs_of_each_kind(target: str, tmp_path: Path) -> None:
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        damaged(TARGETS[target], folder, random.Random(f"test {number}"))
        fault, told = tried(TARGETS[target], folder)
        assert not fault, f"{number}: {told}"


@pytest.mark.parametrize("target", QUICK)
def test_the_seeds_are_good(target: str, tmp_path: Path) -> None:
    TARGETS[target].seed(tmp_path)
    fault, told = tried(TARGETS[target], tmp_path)
    assert (fault, told) == ("", "")


def test_the_same_seed_gives_the_same_input(tmp_path: Path) -> None:
    contents = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        contents.append(damaged(TARGETS["fcd-xml"], tmp_path / name, random.Random(5)).read_bytes())
    assert contents[0] == contents[1]
    assert len({mutated(random.Random(n), contents[0]) for n in range(20)}) > 15


def raises(error: BaseException) -> Callable[[], Done]:
    def call() -> Any:
        raise error

    return lambda: inner(call)


def warns() -> Done:
    return inner(lambda: warnings.warn("overflow", RuntimeWarning, stacklevel=1))


def leaves() -> Done:
    Path("out").mkdir()
    return Done(status=2, err="vnetsim: wrong.\n")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (raises(ZeroDivisionError("x")), "ZeroDivisionError: x"),
        (warns, "a warning of Python's"),
        (leaves, "files left behind"),
        (lambda: Done(status=-11, err=""), "exit status -11"),
        (lambda: Done(status=2, err="vnetsim: x.csv:3: wrong.\n"), ""),
    ],
)
def test_what_counts_as_a_finding(call: Callable[[], Done], words: str, tmp_path: Path) -> None:
    target = Target(share=1, seed=lambda _: None, files=(), call=call)
    assert tried(target, tmp_path)[0] == words


def test_a_hang_is_a_finding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def forever() -> Done:
        while True:
            pass

    def waiting() -> Done:
        time.sleep(60)
        raise AssertionError

    for limit, call in (("CPU_S", forever), ("WALL_S", waiting)):
        with monkeypatch.context() as patch:
            patch.setattr(f"fuzz.{limit}", 0.05)
            target = Target(share=1, seed=lambda _: None, files=(), call=call)
            assert "0.05 s " in tried(target, tmp_path)[0]
    assert fault_of(Done(status=0, err=""), tmp_path) == ""
