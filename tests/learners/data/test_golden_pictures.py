"""The built-in pictures of a seed are those that results were measured on, and views of them as well.

Studies are compared over versions, so that a change of what the built-in sets show is a change of their results. The
golden values are means over blocks of pixels, in quarters of a level, which hold on any machine. After a change that is
meant to alter the pictures, and with the reason in the commit's message:

    python tests/learners/data/test_golden_pictures.py
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from device_checks.tiny_data import view_one, view_two
from torch.nn.functional import avg_pool2d

from learners.data import road, signs
from vnetsim.experiment import DataSettings
from vnetsim.random_streams import Streams

GOLDEN = Path(__file__).with_name("golden_pictures.npz")
STREAMS = Streams(seed=7)
QUARTERS = 4
Arrays = dict[str, np.ndarray[Any, Any]]


def blocks(images: torch.Tensor, side: int) -> np.ndarray[Any, Any]:
    """Return the means over blocks of ``side`` x ``side`` pixels, in quarters of a level of 255."""
    levels = avg_pool2d(images.to(torch.float64), side)
    return (QUARTERS * levels).round().to(torch.int16).numpy()


def of_signs() -> Arrays:
    """Return blocks and labels of a hundred signs, and of ten for the test."""
    shown = signs.Signs().load(DataSettings(train_images=100, test_images=10), STREAMS)
    return {"signs": blocks(shown.train, 4), "signs_test": blocks(shown.test, 8), "labels": shown.train_labels.numpy()}


def of_many_signs() -> Arrays:
    """Return blocks of six signs of a class of 255: 250 are drawn at a time, so that the first depends on that."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(signs, "DESIGNS", {"stop": signs.DESIGNS["stop"]})
        images, _ = signs.Signs()._draw_part(255, STREAMS.generator("many"))
    return {"many_signs": blocks(torch.from_numpy(images[::50]), 8)}


def of_the_road() -> Arrays:
    """Return blocks and angles of 88 frames of road, and blocks of twelve for the test; and what a world is drawn."""
    seen = road.Road().load(DataSettings(train_images=88, test_images=12), STREAMS)
    angles = seen.train_angles.numpy()
    world = road.World(np.random.default_rng(0))
    numbers = np.array([*world.camera, *(value for value in vars(world).values() if isinstance(value, float))])
    return {"road": blocks(seen.train, 8), "road_test": blocks(seen.test, 16), "angles": angles, "world": numbers}


def of_views() -> Arrays:
    """Return blocks of both views of 40 signs."""
    shown = signs.Signs().load(DataSettings(train_images=100, test_images=10), STREAMS)
    some = shown.train[:40].to(torch.float32) / 255
    views = {"first_views": view_one, "second_views": view_two}
    return {
        name: blocks(255 * view(some, torch.Generator().manual_seed(3), (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)), 4)
        for name, view in views.items()
    }


KINDS: dict[Callable[[], Arrays], set[str]] = {
    of_signs: {"signs", "signs_test", "labels"},
    of_many_signs: {"many_signs"},
    of_the_road: {"road", "road_test", "angles", "world"},
    of_views: {"first_views", "second_views"},
}
"""What is made together, each by the one test that looks at it, and its names."""


def golden() -> Arrays:
    with np.load(GOLDEN) as arrays:
        return dict(arrays)


@pytest.mark.parametrize("kind", KINDS)
def test_pictures_are_those_that_results_were_measured_on(kind):
    """Half a level of 255 is what other arithmetic may change in a block; no other numbers change."""
    pictures = kind()
    assert pictures.keys() == KINDS[kind]
    for name, made in pictures.items():
        expected = golden()[name]
        assert made.shape == expected.shape
        if name in {"labels", "angles", "world"}:
            np.testing.assert_allclose(made, expected, rtol=0, atol=1e-5)
        else:
            difference = np.abs(made.astype(np.int64) - expected)
            assert difference.max() <= 2, (
                f"{(difference > 2).mean():.1%} of the blocks of {name} differ, by up to {difference.max() / 4}"
            )


def test_nothing_is_left_out():
    assert golden().keys() == set().union(*KINDS.values())


if __name__ == "__main__":
    np.savez_compressed(GOLDEN, **{name: made for kind in KINDS for name, made in kind().items()})  # type: ignore[arg-type]
