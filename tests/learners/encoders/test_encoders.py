"""Encoders: published size, shapes, exact operation counts, seeded and isolated initialisation."""

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from learners.encoders import ResidualBlock, create_classifier, create_encoder, create_resnet8, forward_flop
from vnetsim.errors import RunError


def test_resnet18_has_the_published_size():
    encoder = create_encoder("resnet18", seed=0)
    assert sum(one.numel() for one in encoder.parameters()) == 11_234_496
    floats = sum(t.numel() for t in encoder.state_dict().values() if t.is_floating_point())
    assert floats * 4 / 1e6 == pytest.approx(44.9, abs=0.1)


@pytest.mark.parametrize(("name", "dense"), [("small", (64, 4, 4)), ("resnet18", (512, 4, 4))])
def test_shapes_and_unit_length(name, dense):
    encoder = create_encoder(name, seed=0).eval()
    images = torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert encoder.dense(images).shape == (3, *dense)
        assert encoder.features(images).shape == (3, encoder.width)
        torch.testing.assert_close(encoder.features(images), encoder.dense(images).mean(dim=(2, 3)))
        projection = encoder(images)
    assert projection.shape == (3, 128)
    torch.testing.assert_close(projection.norm(dim=1), torch.ones(3))


def by_hand_small() -> int:
    """Multiply-adds layer by layer: output positions x outputs x inputs x kernel."""
    macs = 32 * 32 * 16 * 3 * 9
    side = 32
    for inputs, outputs in ((16, 16), (16, 32), (32, 64)):
        side //= 2
        macs += side * side * outputs * (inputs * 9 + outputs * 9 + inputs)
    return macs + 64 * 128


def by_hand_resnet18() -> int:
    macs = 32 * 32 * 64 * 3 * 9 + 4 * 32 * 32 * 64 * 64 * 9
    side = 32
    for outputs in (128, 256, 512):
        side //= 2
        inputs = outputs // 2
        macs += side * side * outputs * (inputs * 9 + 3 * outputs * 9 + inputs)
    return macs + 512 * 128


def by_hand_resnet8() -> int:
    macs = 32 * 32 * 32 * 25
    side = 15
    for inputs, outputs in ((32, 32), (32, 64), (64, 128)):
        side = (side + 1) // 2
        macs += side * side * outputs * (9 * inputs + 9 * outputs + inputs)
    return macs + 512


NETWORKS: dict[str, tuple[Callable[[int], Any], tuple[int, int, int], int]] = {
    "small": (lambda seed: create_encoder("small", seed=seed), (3, 32, 32), by_hand_small()),
    "resnet18": (lambda seed: create_encoder("resnet18", seed=seed), (3, 32, 32), by_hand_resnet18()),
    "resnet8": (lambda seed: create_resnet8((1, 64, 64), seed=seed), (1, 64, 64), by_hand_resnet8()),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_weights_follow_from_the_seed_operations_equal_the_sum_by_hand_and_all_is_trained(name):
    make, shape, macs = NETWORKS[name]
    rng = torch.random.get_rng_state()
    network, state = make(3), make(3).state_dict()
    torch.rand(5)
    torch.random.set_rng_state(rng)
    again, other = make(3).state_dict(), make(4).state_dict()
    assert torch.equal(torch.random.get_rng_state(), rng)
    assert all(torch.equal(state[key], again[key]) and state[key].isfinite().all() for key in state)
    assert not torch.equal(state["trunk.conv1.weight"], other["trunk.conv1.weight"])

    assert forward_flop(network, shape) == 2 * macs
    assert network.training
    assert not any(module._forward_hooks for module in network.modules())
    assert all(torch.equal(tensor, state[key]) for key, tensor in network.state_dict().items())

    outputs = network(torch.rand(8, *shape, generator=torch.Generator().manual_seed(0)))
    (outputs if outputs.ndim == 1 else outputs[:, 0]).pow(3).sum().backward()
    missing = {key for key, p in network.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0}
    assert not missing


def test_initial_scale():
    state = create_encoder("resnet18", seed=0).state_dict()
    weight = state["trunk.layer4.1.conv2.weight"]
    assert float(weight.std()) == pytest.approx((2 / (512 * 9)) ** 0.5, rel=0.01)
    for name in ("fc.weight", "fc.bias"):
        ends = [float(state[name].min()), float(state[name].max())]
        assert ends == pytest.approx([-(512**-0.5), 512**-0.5], rel=0.02)
    assert state["trunk.bn1.running_var"].eq(1).all()
    assert state["trunk.bn1.num_batches_tracked"].item() == 0


def test_a_block_computes_what_torchvisions_does():
    ours, theirs = ResidualBlock(64, 128), create_encoder("resnet18", seed=0).get_submodule("trunk.layer2.0")
    ours.load_state_dict({n.replace("downsample", "shortcut"): t for n, t in theirs.state_dict().items()})
    images = torch.rand(4, 64, 6, 6, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(ours(images), theirs(images))
    small = create_encoder("small", seed=0).trunk.named_children()
    assert [name for name, _ in small] == ["conv1", "bn1", "relu", "layer1", "layer2", "layer3"]


@dataclass(frozen=True, kw_only=True)
class Own:
    """An encoder of a plug-in: as wide as its settings say, and of another width where they say so."""

    name, source = "own", "a test"
    width: int = 8
    claims: int = 8
    fails: bool = False

    def build(self) -> tuple[torch.nn.Module, int]:
        if self.fails:
            raise ZeroDivisionError("by hand")
        return torch.nn.Conv2d(3, self.width, 3, stride=2), self.claims


def test_an_encoder_of_ones_own_is_seeded_and_looked_at(monkeypatch):
    own = SimpleNamespace(name="encoder", names=lambda: ["own"], find={"own": Own}.__getitem__)
    monkeypatch.setattr("learners.encoders.ENCODERS", own)
    before = torch.random.get_rng_state()
    first, again, other = (create_encoder("own", seed=seed).state_dict() for seed in (3, 3, 4))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["trunk.weight"], other["trunk.weight"])
    assert first["trunk.weight"].shape == (8, 3, 3, 3)
    assert first["fc.weight"].shape == (128, 8)
    wide = create_classifier("own", classes=5, seed=3, settings=Own(width=12, claims=12)).state_dict()
    assert wide["head.weight"].shape == (5, 12)
    with pytest.raises(RunError, match=r"makes \(2, 9, 15, 15\) of images \(2, 3, 32, 32\), expected \(2, 8, H', W'\)"):
        create_encoder("own", seed=3, settings=Own(width=9))
    with pytest.raises(RunError, match=r"'own'.*in build.*ZeroDivisionError.*by hand"):
        create_encoder("own", seed=3, settings=Own(fails=True))
