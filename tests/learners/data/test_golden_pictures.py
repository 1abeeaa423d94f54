"""The built-in pictures of a seed are those that results were measured on, and views of them as well.

Studies are compared over versions, so that a change of what the built-in sets show is a change of their results. The
golden values are means over blocks of pixels, in quarters of a level, which hold on any machine. After a change that is
meant to alter the pictures, and with the reason in the commit's message:

    python tests/learners/data/test_golden_pictures.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import avg_pool2d

from learners.data import road, signs
from learners.data.augment import view_one, view_two
from vnetsim.experiment import DataSettings
from vnetsim.random_streams import Streams

GOLDEN = Path(__file__).with_name("golden_pictures.npz")
STREAMS = Streams(seed=7)
QUARTERS = 4
NAMES = ("signs", "signs_test", "labels", "road", "road_test", "angles", "first_views", "second_views")
Arrays = dict[str, np.ndarray[Any, Any]]


def blocks(images: torch.Tensor, side: int) -> np.ndarray[Any, Any]:
    """Return the means over blocks of ``side`` x ``side`` pixels, in quarters of a level of 255."""
    levels = avg_pool2d(images.to(torch.float64), side)
    return (QUARTERS * levels).round().to(torch.int16).numpy()


def pictures() -> Arrays:
    """Return blocks and targets of a hundred signs, of 88 frames of road, and of views of some signs."""
    shown = signs.load(DataSettings(train_images=100, test_images=10), streams=STREAMS)
    seen = road.load(DataSettings(train_images=88, test_images=12), streams=STREAMS)
    found: Arrays = {
        "signs": blocks(shown.train, 4),
        "signs_test": blocks(shown.test, 8),
        "labels": shown.train_labels.numpy(),
        "road": blocks(seen.train, 8),
        "road_test": blocks(seen.test, 16),
        "angles": seen.train_angles.numpy(),
    }
    some = shown.train[:40].to(torch.float32) / 255
    for name, view in (("first_views", view_one), ("second_views", view_two)):
        made = view(some, torch.Generator().manual_seed(3), (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
        found[name] = blocks(255 * made, 4)
    return found


@pytest.fixture(scope="module")
def made() -> Arrays:
    return pictures()


def golden() -> Arrays:
    with np.load(GOLDEN) as arrays:
        return dict(arrays)


@pytest.mark.parametrize("name", NAMES)
def test_pictures_are_those_that_results_were_measured_on(name: str, made: Arrays) -> None:
    """Half a level of 255 is what other arithmetic may change in a block; angles and labels do not change."""
    expected = golden()[name]
    assert made[name].shape == expected.shape
    if name in {"labels", "angles"}:
        np.testing.assert_allclose(made[name], expected, rtol=0, atol=1e-5)
    else:
        difference = np.abs(made[name].astype(np.int64) - expected)
        assert difference.max() <= 2, (
            f"{(difference > 2).mean():.1%} of the blocks differ, by up to {difference.max() / 4}"
        )


def test_nothing_is_left_out(made: Arrays) -> None:
    assert set(NAMES) == made.keys() == golden().keys()


if __name__ == "__main__":
    np.savez_compressed(GOLDEN, **pictures())  # type: ignore[arg-type]
