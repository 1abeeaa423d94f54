"""What fuzzing once found stays mended; a few inputs of each kind."""

import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fuzz import FINDINGS, damaged, replayed, tried
from targets import TARGETS

KEPT = sorted((target, folder) for target in TARGETS for folder in (FINDINGS / target).glob("*"))
SLOW = {"scenario"}
QUICK = [name for name in TARGETS if name not in SLOW]


@pytest.mark.parametrize(("target", "finding"), KEPT, ids=lambda value: getattr(value, "name", value))
def test_what_was_found_is_mended(target, finding, tmp_path):
    fault, told = replayed(target, finding, tmp_path)
    assert not fault, told


@pytest.mark.parametrize("target", QUICK)
def test_a_few_inputs_of_each_kind(target, tmp_path):
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        damaged(TARGETS[target], folder, random.Random(f"test {number}"))
        fault, told = tried(TARGETS[target], folder)
        assert not fault, f"{number}: {told}"


@pytest.mark.parametrize("target", QUICK)
def test_the_seeds_are_good(target, tmp_path):
    TARGETS[target].seed(tmp_path)
    fault, told = tried(TARGETS[target], tmp_path)
    assert (fault, told) == ("", "")
