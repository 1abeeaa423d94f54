"""The procedural sign set: seeded, balanced, hard for raw pixels, and closed under the flip of the first view."""

import numpy as np
import pytest
import torch

from learners.data import load_images
from learners.data.sign_designs import DESIGNS, PAINTS
from learners.data.signs import Signs
from vnetsim.experiment import DataSettings
from vnetsim.random_streams import Streams


def load(seed=0, train=300, test=100, scatter=1.0):
    data = DataSettings(train_images=train, test_images=test)
    return load_images(data, streams=Streams(seed=seed), settings=Signs(scatter=scatter))


def plain(name, *, mirrored=False, seed=0):
    """Six signs of one class, as wide as the image and without any disturbance, shape (6, H, W, 3)."""
    side = np.linspace(-1.1, 1.1, 32, dtype=np.float32)
    u, v = (np.repeat(grid[None], 6, axis=0) for grid in np.meshgrid(-side if mirrored else side, side))
    image = np.full((6, 32, 32, 3), 0.5)
    for distance, paint in DESIGNS[name](u, v, np.random.default_rng(seed)):
        image = np.where(distance[..., None] < 0, np.array(PAINTS[paint]), image)
    return image


def test_classes_are_balanced_and_mixed():
    _, labels = Signs()._draw_part(205, np.random.default_rng(0))
    counts = np.bincount(labels, minlength=10)
    assert np.ptp(counts) == 1
    assert len(np.unique(labels[:40])) >= 8


def test_signs_in_the_middle_are_told_apart_by_their_pixels_as_scattered_ones_are_not():
    def right(images):
        """Share of test images nearest to the mean training image of their class."""
        means = torch.stack(
            [images.train[images.train_labels == label].float().mean(0).flatten() for label in range(10)]
        )
        nearest = torch.cdist(images.test.float().flatten(1), means).argmin(1)
        return float((nearest == images.test_labels).float().mean())

    scattered, half, upright = (right(load(train=500, test=300, scatter=scatter)) for scatter in (1, 0.5, 0))
    assert scattered + 0.05 < half < upright - 0.05


def test_no_image_occurs_twice_in_training_or_test():
    images = load(train=500, test=500)  # equal numbers: one stream for both would make them equal
    both = torch.cat([images.train, images.test]).flatten(1)
    assert len(torch.unique(both, dim=0)) == 1000


def test_mean_and_std_normalise_the_training_images():
    images = load()
    scaled = images.train.double() / 255
    assert images.mean == pytest.approx(scaled.mean(dim=(0, 2, 3)).tolist(), rel=1e-12)
    assert images.std == pytest.approx(scaled.std(dim=(0, 2, 3), correction=0).tolist(), rel=1e-9)


@pytest.mark.parametrize("mirrored", [False, True])
def test_no_class_nor_its_mirror_image_looks_like_another(mirrored):
    """Even the two most alike designs differ by 0.26 root mean square; equal ones by 0."""
    drawn = {name: np.concatenate([plain(name, mirrored=mirrored, seed=seed) for seed in range(3)]) for name in DESIGNS}
    for name in DESIGNS:
        for other in set(DESIGNS) - {name}:
            differences = plain(name)[:, None] - drawn[other][None]
            assert np.sqrt(np.square(differences).mean(axis=(2, 3, 4))).min() > 0.2, (name, other)


def test_the_outline_has_all_but_the_pictures():
    data, streams = DataSettings(train_images=57, test_images=23), Streams(seed=3)
    black, drawn = (load_images(data, streams=streams, pictures=pictures) for pictures in (False, True))
    for part in ("train", "test"):
        assert getattr(black, part).shape == getattr(drawn, part).shape
        assert not getattr(black, part).any()
        assert torch.equal(getattr(black, f"{part}_labels"), getattr(drawn, f"{part}_labels"))
    assert black.class_names == drawn.class_names
    assert (black.mean, black.std) == ((0, 0, 0), (1, 1, 1)), "normalising leaves it black"
    whole = load_images(DataSettings(), streams=streams, pictures=False)
    assert (len(whole.train), len(whole.test)) == (9500, 2000), "100 for each of 95 silos"
