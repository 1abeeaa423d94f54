"""FLSimCo's two views: every operation equals torchvision's, every draw is per image."""

import itertools

import pytest
import torch
from device_checks.tiny_data import view_one, view_two
from torchvision.transforms import RandomResizedCrop
from torchvision.transforms import functional as reference

from learners.data.augment import (
    color_jitter,
    greyscale,
    hue_turns,
    random_boxes,
    resized_crop,
    rotate_hue,
)

VIEWS = pytest.mark.parametrize("view", [view_one, view_two])


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def images() -> torch.Tensor:
    return torch.rand(24, 3, 32, 32, generator=generator(1))


def test_crop_equals_torchvision(images):
    boxes = random_boxes(len(images), images.shape[-2:], generator())
    for antialias in (False, True):  # a crop is only ever enlarged, where antialiasing changes nothing
        expected = torch.stack(
            [
                reference.resized_crop(image, *box, size=[32, 32], antialias=antialias)
                for image, box in zip(images, boxes.tolist(), strict=True)
            ]
        )
        torch.testing.assert_close(resized_crop(images, boxes), expected, atol=1e-5, rtol=0)


def test_crop_of_an_oblong_image_equals_torchvision():
    image = torch.rand(1, 2, 20, 48, generator=generator())
    expected = reference.resized_crop(image, 3, 7, 11, 30, size=[20, 48], antialias=False)
    torch.testing.assert_close(resized_crop(image, torch.tensor([[3, 7, 11, 30]])), expected, atol=1e-5, rtol=0)


def test_only_the_flipped_images_are_mirrored(images):
    boxes = random_boxes(len(images), images.shape[-2:], generator())
    flipped = torch.arange(len(images)) % 3 == 0
    plain = resized_crop(images, boxes)
    expected = torch.where(flipped[:, None, None, None], plain.flip(3), plain)
    torch.testing.assert_close(resized_crop(images, boxes, flipped), expected, atol=1e-5, rtol=0)


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
    drawn = random_boxes(count, size, generator(6))
    values = torch.arange(33)
    for side in range(4):
        ours = (drawn[:, side, None] <= values).double().mean(dim=0)
        theirs = (expected[:, side, None] <= values).double().mean(dim=0)
        assert (ours - theirs).abs().max() < 1.95 * (2 / count) ** 0.5


@pytest.mark.parametrize("shape", [(4, 200), (200, 4)])
def test_where_no_attempt_fits_the_crop_is_torchvisions_central_one(shape):
    expected = RandomResizedCrop.get_params(torch.zeros(3, *shape), (0.08, 1.0), (3 / 4, 4 / 3))
    boxes = random_boxes(3, shape, generator())
    assert boxes.tolist() == [list(expected)] * 3


def test_greyscale_equals_torchvision(images):
    torch.testing.assert_close(greyscale(images), reference.rgb_to_grayscale(images), atol=1e-6, rtol=0)


def test_hue_equals_torchvision(images):
    images[0] = 0.5  # no hue at all
    images[1, 1:] = 0  # pure red
    images[2, :2] = images[2, :1]  # two channels tie for the largest or smallest value
    hue = torch.linspace(-0.5, 0.5, len(images))
    expected = torch.stack([reference.adjust_hue(image, h) for image, h in zip(images, hue.tolist(), strict=True)])
    torch.testing.assert_close(rotate_hue(images, hue), expected, atol=1e-5, rtol=0)


def test_jitter_equals_torchvision_in_every_order(images):
    """24 images, one for each order of the four operations."""
    order = torch.tensor(list(itertools.permutations(range(4))))
    factors = 0.6 + 0.8 * torch.rand(24, 3, generator=generator(2))
    hue = 0.2 * torch.rand(24, generator=generator(3)) - 0.1
    operations = (reference.adjust_brightness, reference.adjust_contrast, reference.adjust_saturation)
    expected = []
    for number, image in enumerate(images):
        jittered = image
        for turn in order[number].tolist():
            if turn == 3:
                jittered = reference.adjust_hue(jittered, hue[number].item())
            else:
                jittered = operations[turn](jittered, factors[number, turn].item())
        expected.append(jittered)
    untouched = images.clone()
    found = color_jitter(images, factors, hue, order, hue_turns(order))
    torch.testing.assert_close(found, torch.stack(expected), atol=1e-5, rtol=0)
    assert torch.equal(images, untouched)


@VIEWS
def test_equal_images_get_different_views(view):
    image = torch.rand(1, 3, 32, 32, generator=generator())
    views = view(image.expand(8, -1, -1, -1), generator(1))
    distances = torch.cdist(views.flatten(1), views.flatten(1)) + 99 * torch.eye(8)
    assert distances.min() > 0.1


@VIEWS
def test_same_generator_state_same_bits_and_no_other_state(view, images):
    before, original = torch.get_rng_state(), images.clone()
    assert torch.equal(view(images, generator(7)), view(images, generator(7)))
    assert not torch.equal(view(images, generator(7)), view(images, generator(8)))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(images, original)


@VIEWS
def test_normalisation_comes_last(view, images):
    mean, std = (0.4, 0.5, 0.3), (0.2, 0.25, 0.5)
    plain = view(images, generator(3))
    assert plain.min() >= -1e-6
    assert plain.max() <= 1 + 1e-6
    expected = reference.normalize(plain, list(mean), list(std))
    torch.testing.assert_close(view(images, generator(3), mean, std), expected, atol=1e-5, rtol=0)


@VIEWS
def test_views_keep_shape_type_and_an_empty_batch(view):
    for count in (0, 1, 5):
        views = view(torch.rand(count, 3, 16, 16, dtype=torch.float64, generator=generator()), generator())
        assert views.shape == (count, 3, 16, 16)
        assert views.dtype == torch.float64


@pytest.mark.parametrize(("view", "probability"), [(view_one, 0.2), (view_two, 0.4)])
def test_share_of_grey_views(view, probability):
    """Within four standard deviations of the binomial."""
    count = 4000
    views = view(torch.rand(count, 3, 8, 8, generator=generator()), generator(1))
    grey = ((views - views[:, :1]).abs().amax(dim=(1, 2, 3)) == 0).double().mean().item()
    assert abs(grey - probability) < 4 * (probability * (1 - probability) / count) ** 0.5


@pytest.mark.parametrize(("view", "probability"), [(view_one, 0.5), (view_two, 0.0)])
def test_share_of_flipped_views(view, probability):
    """A ramp that rises to the right falls where it was flipped; grey stays grey whatever the colours do."""
    count = 4000
    ramp = torch.linspace(0.3, 0.6, 8).expand(count, 3, 8, 8)
    views = view(ramp, generator(1))
    flipped = (views[:, 0, 0, 0] > views[:, 0, 0, -1]).double().mean().item()
    assert abs(flipped - probability) <= 4 * (probability * (1 - probability) / count) ** 0.5


def test_share_and_range_of_jittered_second_views():
    """A constant grey image changes only in brightness, by a factor in [0.6, 1.4], in four of five."""
    count = 4000
    views = view_two(torch.full((count, 3, 8, 8), 0.5), generator(1))
    factor = views[:, 0, 4, 4] / 0.5
    jittered = ((factor - 1).abs() > 1e-4).double().mean().item()
    assert abs(jittered - 0.8) < 4 * (0.16 / count) ** 0.5
    assert 0.599 < factor.min() < 0.61
    assert 1.39 < factor.max() < 1.401


def test_range_of_the_second_views_hue():
    """A constant pale red turns by at most a tenth of the circle either way, and nearly that at the extremes."""
    images = torch.tensor([0.45, 0.4, 0.4])[None, :, None, None].expand(4000, 3, 8, 8)
    red, green, blue = view_two(images, generator(1))[:, :, 4, 4].double().unbind(dim=1)
    coloured = (red - torch.minimum(green, blue)) > 1e-3
    turn = torch.atan2(3**0.5 * (green - blue), 2 * red - green - blue)[coloured] / (2 * torch.pi)
    assert 0.09 < turn.max() < 0.105
    assert -0.105 < turn.min() < -0.09


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@VIEWS
def test_a_generator_on_the_cpu_draws_the_same_views_for_every_device(view, images):
    on_device = view(images.cuda(), generator(4))
    assert on_device.is_cuda
    torch.testing.assert_close(on_device.cpu(), view(images, generator(4)), atol=1e-4, rtol=0)
