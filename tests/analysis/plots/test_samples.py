import base64
import dataclasses
import io

import numpy as np
import pytest
from PIL import Image

from analysis.loading import Samples, load
from analysis.plots.blur import sample_strips


def strips(run, images):
    levels = np.arange(len(images), dtype=float)
    samples = Samples(images=images, kernels_px=levels, speeds_mps=10 * levels)
    return sample_strips(dataclasses.replace(load(run), samples=samples))


def picture(strip):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(strip.uri.partition(",")[2]))))


@pytest.mark.parametrize(("height", "width", "shown"), [(32, 32, 8), (64, 64, 8), (48, 160, 8), (200, 200, 6)])
def test_grey_images(learning_run, height, width, shown):
    images = np.random.default_rng(0).integers(0, 256, (4, 8, height, width, 1)).astype(np.uint8)
    for level, strip in enumerate(strips(learning_run, images)):
        drawn = picture(strip)
        assert drawn.shape == (height, shown * (width + 1) - 1) == (strip.height, strip.width)
        for i in range(shown):
            np.testing.assert_array_equal(drawn[:, i * (width + 1) : i * (width + 1) + width], images[level, i, ..., 0])


def test_strips_of_the_same_pixels_say_so(learning_run):
    images = np.random.default_rng(0).integers(0, 256, (3, 3, 8, 8, 3)).astype(np.uint8)
    images[1] = images[0]
    sharp, same, other = strips(learning_run, images)
    assert same.detail.endswith("motion kernel 1.00\u202fpx, the same pixels as sharp")
    assert "same pixels" not in sharp.detail + other.detail
