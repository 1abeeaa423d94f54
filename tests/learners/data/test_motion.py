"""The motion kernel: its moments and its edges."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from learners.data.motion import motion_blur

SIDE = 41
LENGTHS = st.floats(0.0, 30.0, width=32)


def kernel(length: float) -> torch.Tensor:
    """The response to one bright pixel in the middle, shape (SIDE, SIDE)."""
    image = torch.zeros(1, 1, SIDE, SIDE, dtype=torch.float64)
    image[..., SIDE // 2, SIDE // 2] = 1
    return motion_blur(image, torch.tensor([length], dtype=torch.float64))[0, 0]


def moments(weights: torch.Tensor) -> tuple[float, float, float, float, float]:
    """Sum, centroid (x, y) and variance along x and y."""
    place = torch.arange(SIDE, dtype=torch.float64) - SIDE // 2
    x, y = weights.sum(dim=0), weights.sum(dim=1)
    return (weights.sum().item(), (x @ place).item(), (y @ place).item(), (x @ place**2).item(), (y @ place**2).item())


@given(length=LENGTHS)
def test_horizontal_kernel_has_unit_sum_no_shift_and_the_lines_variance(length):
    """A line of odd length L covers L pixels: variance (L^2 - 1) / 12; between odd lengths the ends add up to 1/4."""
    total, x, y, variance_x, variance_y = moments(kernel(length))
    assert total == pytest.approx(1, abs=1e-12)
    assert (x, y, variance_y) == pytest.approx((0, 0, 0), abs=1e-12)
    assert variance_x == pytest.approx((max(length, 1) ** 2 - 1) / 12, abs=0.27)


@pytest.mark.parametrize("length", [1, 3, 5, 9])
def test_odd_length_is_the_box_of_as_many_pixels(length):
    middle = kernel(length)[SIDE // 2]
    expected = torch.zeros(SIDE, dtype=torch.float64)
    expected[(SIDE - length) // 2 : (SIDE + length) // 2] = 1 / length
    torch.testing.assert_close(middle, expected, atol=1e-12, rtol=0)


def test_fractional_ends_are_kept():
    expected = torch.tensor([0.25, 1, 0.25], dtype=torch.float64) / 1.5
    torch.testing.assert_close(kernel(1.5)[SIDE // 2, SIDE // 2 - 1 : SIDE // 2 + 2], expected)


def test_up_to_one_pixel_nothing_changes_bit_for_bit():
    images = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    blurred = motion_blur(images, torch.tensor([0.0, 0.3, 1.0, 2.0]))
    assert torch.equal(blurred[:3], images[:3])
    assert not torch.equal(blurred[3], images[3])


@given(length=st.floats(0.0, 40.0, width=32))
def test_a_constant_image_stays_constant(length):
    images = torch.full((1, 2, 8, 8), 0.75, dtype=torch.float64)
    torch.testing.assert_close(motion_blur(images, torch.tensor([length])), images, atol=1e-12, rtol=0)
