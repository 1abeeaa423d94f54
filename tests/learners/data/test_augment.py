"""FLSimCo's two views: every operation equals torchvision's, every draw is per image."""

import pytest
import torch
from device_checks.tiny_data import draw_view_one, draw_view_two, view_one, view_two
from torchvision.transforms import RandomResizedCrop
from torchvision.transforms import functional as reference

from learners.data.augment import (
    NUMBERS_ONE,
    NUMBERS_TWO,
    apply_view,
    first_view_draws,
    random_boxes,
    resized_crop,
    rotate_hue,
    second_view_draws,
)

DRAWS = pytest.mark.parametrize("draw", [draw_view_one, draw_view_two])
JITTER = (reference.adjust_brightness, reference.adjust_contrast, reference.adjust_saturation)
MEAN, STD = (0.4, 0.5, 0.3), (0.2, 0.25, 0.5)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def by_torchvision(image: torch.Tensor, draws: dict[str, torch.Tensor], i: int) -> torch.Tensor:
    """Return the view that torchvision's operations make of an image, given the draws of its row."""
    view = reference.resized_crop(image, *draws["box"][i].tolist(), size=[32, 32], antialias=True)
    if "flipped" in draws and draws["flipped"][i]:
        view = reference.hflip(view)
    if "jittered" in draws and draws["jittered"][i]:
        for turn in draws["order"][i].tolist():
            if turn == 3:
                view = reference.adjust_hue(view, draws["hue"][i].item())
            else:
                view = JITTER[turn](view, draws["factors"][i, turn].item())
    if draws["grey"][i]:
        view = reference.rgb_to_grayscale(view, num_output_channels=3)
    return reference.normalize(view, list(MEAN), list(STD))


@DRAWS
def test_views_equal_torchvisions_of_the_same_draws(draw):
    """Among 200 images is every order of the four operations; a crop is only ever enlarged, antialiased or not."""
    images = torch.rand(200, 3, 32, 32, generator=generator(1))
    original, draws = images.clone(), draw(200, (32, 32), generator())
    assert "order" not in draws or len(torch.unique(draws["order"][draws["jittered"]], dim=0)) == 24
    expected = torch.stack([by_torchvision(image, draws, i) for i, image in enumerate(images)])
    torch.testing.assert_close(apply_view(images, draws, MEAN, STD), expected, atol=1e-4, rtol=0)
    assert torch.equal(images, original)


def test_crop_of_an_oblong_image_equals_torchvision():
    image = torch.rand(1, 2, 20, 48, generator=generator())
    expected = reference.resized_crop(image, 3, 7, 11, 30, size=[20, 48], antialias=False)
    torch.testing.assert_close(resized_crop(image, torch.tensor([[3, 7, 11, 30]])), expected, atol=1e-5, rtol=0)


def test_hue_at_its_edges_equals_torchvision():
    images = torch.rand(24, 3, 32, 32, generator=generator(1))
    images[0] = 0.5  # no hue at all
    images[1, 1:] = 0  # pure red
    images[2, :2] = images[2, :1]  # two channels tie for the largest or smallest value
    hue = torch.linspace(-0.5, 0.5, len(images))
    expected = torch.stack([reference.adjust_hue(image, h) for image, h in zip(images, hue.tolist(), strict=True)])
    torch.testing.assert_close(rotate_hue(images, hue), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("size", [(32, 32), (3, 4), (4, 3)])
def test_boxes_are_distributed_as_torchvision_draws_them(size):
    """Two-sample Kolmogorov-Smirnov distance of height, width, top and left, at the 0.1 % level."""
    count = 3000
    image = torch.zeros(3, *size)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        expected = torch.tensor(
            [RandomResizedCrop.get_params(image, (0.08, 1.0), (3 / 4, 4 / 3)) for _ in range(count)]
        )
    drawn = random_boxes(torch.rand(1, 40 * count, generator=generator(6)), size)[0]
    values = torch.arange(33)
    for side in range(4):
        ours = (drawn[:, side, None] <= values).double().mean(dim=0)
        theirs = (expected[:, side, None] <= values).double().mean(dim=0)
        assert (ours - theirs).abs().max() < 1.95 * (2 / count) ** 0.5


@pytest.mark.parametrize("shape", [(4, 200), (200, 4)])
def test_where_no_attempt_fits_the_crop_is_torchvisions_central_one(shape):
    expected = RandomResizedCrop.get_params(torch.zeros(3, *shape), (0.08, 1.0), (3 / 4, 4 / 3))
    boxes = random_boxes(torch.rand(1, 120, generator=generator()), shape)
    assert boxes.tolist() == [[list(expected)] * 3]


def test_shares_and_ranges_of_the_draws():
    """Shares within four standard deviations of the binomial."""
    count = 4000
    first, second = (draw(count, (8, 8), generator(1)) for draw in (draw_view_one, draw_view_two))
    for drawn, p in ((first["flipped"], 0.5), (first["grey"], 0.2), (second["jittered"], 0.8), (second["grey"], 0.4)):
        assert abs(drawn.double().mean().item() - p) < 4 * (p * (1 - p) / count) ** 0.5
    for drawn, low, high in ((second["factors"], 0.6, 1.4), (second["hue"], -0.1, 0.1)):
        assert low <= drawn.min() < low + 0.001 < high - 0.001 < drawn.max() <= high
    assert torch.bincount((second["order"] * torch.tensor([64, 16, 4, 1])).sum(dim=1)).count_nonzero() == 24


@DRAWS
def test_same_generator_state_same_draws_one_for_each_image_and_no_other_state(draw):
    before = torch.get_rng_state()
    one, two, other = (draw(8, (32, 32), generator(seed)) for seed in (7, 7, 8))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not torch.equal(one["box"], other["box"])
    assert len(torch.unique(one["box"], dim=0)) == 8
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("view", [view_one, view_two])
def test_views_keep_shape_type_and_an_empty_batch(view):
    for count in (0, 1, 5):
        views = view(torch.rand(count, 3, 16, 16, dtype=torch.float64, generator=generator()), generator())
        assert views.shape == (count, 3, 16, 16)
        assert views.dtype == torch.float64


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("view", [view_one, view_two])
def test_a_generator_on_the_cpu_draws_the_same_views_for_every_device(view):
    images = torch.rand(24, 3, 32, 32, generator=generator(1))
    on_device = view(images.cuda(), generator(4))
    assert on_device.is_cuda
    torch.testing.assert_close(on_device.cpu(), view(images, generator(4)), atol=1e-4, rtol=0)


@pytest.mark.parametrize(("count", "size"), [(1, (8, 8)), (13, (20, 100)), (64, (32, 32)), (129, (60, 80))])
def test_draws_of_several_batches_are_those_of_each_alone(count, size):
    """To the bit: results do not depend on how many steps are drawn at once."""
    for draw, each in ((first_view_draws, NUMBERS_ONE), (second_view_draws, NUMBERS_TWO)):
        numbers = torch.rand(9, each * count, generator=generator(count))
        together = draw(numbers, size)
        for i in range(9):
            alone = draw(numbers[i : i + 1].clone(), size)
            assert all(torch.equal(together[name][i], alone[name][0]) for name in alone)
