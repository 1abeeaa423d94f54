"""``learning.precision``: the trunk trains in bfloat16; everything else, and evaluation, does not."""

from typing import Any

import pytest
import torch

from learners.encoders import create_classifier, create_encoder, create_resnet8
from learners.encoders.precision import set_precision
from learners.engines.programs import Engine, SequentialEngine
from learners.engines.side_by_side import SideBySideEngine
from learners.fedco import FedCo
from learners.fedefm import FedEFM
from learners.flsimco import FLSimCo
from vnetsim.errors import InputError

LEARNERS: list[tuple[Any, dict[str, Any]]] = [
    (FLSimCo, {"batch": 8, "steps": 2}),
    (FedCo, {"batch": 8, "steps": 2}),
    (FedEFM, {"batch": 8, "steps": 2, "local_test": 12}),
]
NETWORKS = [
    pytest.param(lambda: create_encoder("small", seed=3), id="encoder"),
    pytest.param(lambda: create_encoder("resnet18", seed=3), id="resnet18", marks=pytest.mark.all_only),
    pytest.param(lambda: create_classifier("small", classes=4, seed=3), id="classifier"),
    pytest.param(lambda: create_resnet8((3, 32, 32), seed=3), id="resnet8"),
]


@pytest.mark.parametrize("make", NETWORKS)
def test_only_the_trunk_computes_in_less_and_only_in_training(make):
    full, lowered = make(), make()
    set_precision(lowered, "bfloat16", (3, 32, 32))
    images = torch.rand(6, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    seen: list[torch.dtype] = []
    lowered.trunk[-1].register_forward_hook(lambda _module, _inputs, output: seen.append(output.dtype))

    assert torch.equal(full.eval()(images), lowered.eval()(images))
    with torch.inference_mode():
        assert torch.equal(full.train()(images), lowered.train()(images))
    ours, exact = lowered.train()(images), full.train()(images)
    assert seen == [torch.float32, torch.float32, torch.bfloat16]
    assert ours.dtype == exact.dtype == torch.float32
    assert not torch.equal(ours, exact)
    torch.testing.assert_close(ours, exact, rtol=0.0, atol=0.1 * float(exact.detach().abs().max()))

    for output in (ours, exact):
        output.pow(3).mean().backward()
    gradient, expected = (
        torch.cat([parameter.grad.flatten() for parameter in network.parameters()]) for network in (lowered, full)
    )
    assert gradient.dtype == torch.float32
    assert 0 < float((gradient - expected).norm()) < 0.2 * float(expected.norm())
    assert lowered.state_dict().keys() == full.state_dict().keys()
    assert [t.dtype for t in lowered.state_dict().values()] == [t.dtype for t in full.state_dict().values()]


@pytest.mark.parametrize(("height", "width"), [(16, 16), (16, 64), (64, 16)])
def test_images_too_small_for_right_gradients_are_refused(height, width):
    network = create_resnet8((1, height, width), seed=3)
    message = rf"learning\.precision = bfloat16: images of {width} x {height} pixels are too small"
    with pytest.raises(InputError, match=message):
        set_precision(network, "bfloat16", (1, height, width))
    set_precision(network, "float32", (1, height, width))
    assert network.training


def test_one_pixel_is_too_little_for_a_strided_kernel_of_several_alone():
    for kernel, stride in ((1, 2), ((1, 3), 1)):
        set_precision(torch.nn.Conv2d(3, 2, kernel, stride), "bfloat16", (3, 1, 8))
    with pytest.raises(InputError, match="images of 8 x 1 pixels are too small"):
        set_precision(torch.nn.Conv2d(3, 2, (1, 2), (1, 2)), "bfloat16", (3, 1, 8))


def test_double_precision_is_not_lowered():
    images = torch.rand(4, 3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    full, lowered = (create_encoder("small", seed=3) for _ in range(2))
    set_precision(lowered, "bfloat16", (3, 16, 16))
    assert torch.equal(lowered.double()(images), full.double()(images))


@pytest.mark.parametrize(
    ("kind", "settings"),
    [pytest.param(*one, id=one[0].name, marks=[pytest.mark.all_only] * (one[0] is FedCo)) for one in LEARNERS],
)
@pytest.mark.usefixtures("tiny")
def test_learners_learn_about_the_same(kind, settings, context, participant):
    """bfloat16 goes about the same way, the same to the bit on one core or three."""

    def trained(engine: Engine, precision: str) -> tuple[torch.Tensor, list[float]]:
        """Return the changes of all parameters in one row, and the losses."""
        learner = kind.create(context, kind.Settings(**settings, precision=precision))
        learner._task.engine = engine
        updates, start = learner.train([participant(0, i) for i in range(3)]), learner._models.newest()
        names = [name for name, _ in learner._task.network.named_parameters()]
        moved = [(update.state[name] - start[name]).flatten() for update in updates for name in names]
        return torch.cat(moved), [update.loss for update in updates]

    exact, losses = trained(SequentialEngine(), "float32")
    alone, lowered_losses = trained(SideBySideEngine(workers=1), "bfloat16")
    beside, _ = trained(SideBySideEngine(workers=3), "bfloat16")
    assert torch.equal(alone, beside)
    assert lowered_losses == pytest.approx(losses, rel=0.05)
    assert 0 < float((alone - exact).norm()) < 0.5 * float(exact.norm())
