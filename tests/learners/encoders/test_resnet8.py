"""ResNet-8: the published size, shapes, and what its features are."""

import pytest
import torch
from torch import nn

from learners.encoders import create_resnet8
from vnetsim.errors import InputError


def test_published_size():
    network = create_resnet8((1, 200, 200), seed=0)
    assert sum(one.numel() for one in network.parameters()) == 314_657
    assert network.width == 6272
    assert [name for name, _ in network.trunk.named_children()] == ["conv1", "pool", "stage1", "stage2", "stage3"]


@pytest.mark.parametrize("shape", [(1, 200, 200), (1, 64, 64), (3, 100, 160), (1, 33, 47), (1, 5, 5), (1, 6, 9)])
def test_shapes_follow_from_the_image(shape):
    network = create_resnet8(shape, seed=0).eval()
    images = torch.rand(3, *shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        dense, features = network.dense(images), network.features(images)
        assert dense.shape[:2] == (3, 128)
        assert features.shape == (3, network.width)
        torch.testing.assert_close(features, dense.clamp(min=0).reshape(3, -1))
        assert network(images).shape == (3,)
        torch.testing.assert_close(network(images), network.head(features))


@pytest.mark.parametrize("shape", [(1, 4, 40), (1, 40, 4)])
def test_images_of_less_than_five_pixels_a_side_are_refused(shape):
    with pytest.raises(InputError, match="too small for ResNet-8: it takes 5 x 5 at least"):
        create_resnet8(shape, seed=0)


def test_images_are_scaled_to_minus_one_to_one():
    network = create_resnet8((1, 16, 16), seed=0)
    seen: list[torch.Tensor] = []
    network.trunk.conv1.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0]))
    network(torch.stack([torch.zeros(1, 16, 16), torch.ones(1, 16, 16)]))
    assert seen[0][0].eq(-1).all()
    assert seen[0][1].eq(1).all()


def test_a_stage_normalises_before_it_convolves():
    stage = create_resnet8((1, 16, 16), seed=0).trunk.stage2
    kinds = [type(module) for module in stage.residual]
    assert kinds == [nn.BatchNorm2d, nn.ReLU, nn.Conv2d] * 2
    x = torch.rand(2, 32, 4, 4, generator=torch.Generator().manual_seed(0))
    before = x.clone()
    stage.eval()
    torch.testing.assert_close(stage(x), stage.residual(x) + stage.shortcut(x))
    assert torch.equal(x, before)  # nothing works in place on the shortcut's input
