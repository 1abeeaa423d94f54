"""A training step has fixed shapes and reads no value: recorded for one vehicle, it is every vehicle's, to the bit."""

from __future__ import annotations

import copy
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from device_checks import learner_class, registered
from device_checks.tiny_data import SILOS
from device_checks.tiny_rounds import SETTINGS, jobs_of, tiny_data
from device_checks.training_work import context
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from learners.data.augment import apply_view, draw_view_one, draw_view_two
from learners.data.moving import fixed_shapes
from learners.engines.programs import Program, Tensors, TrainingJob, add_prefix, train_one

FEDPROX = Path(__file__).parents[3] / "scenarios" / "fedprox.py"
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in sorted(registered())),
    ("fedprox", {"mu": 0.1}),
    ("flsimco", {"precision": "bfloat16"}),
    ("fedco", {"key_encoder": "rsu", "precision": "bfloat16"}),
    ("cdl", {"optimizer": "adam-kept", "coupling": "joint"}),
    ("dsgd", {"optimizer": "sgd"}),
    ("fedefm", {"variant": "labels-once", "precision": "bfloat16"}),
]
SHORT = ("fedavg-classification", "fedavg-steering", "flsimco")
"""Learners of each task whose steps are quick; `make test-all` records the others as well."""


def kind_of(name: str) -> Any:
    if name != "fedprox":
        return learner_class(name)
    spec = importlib.util.spec_from_file_location("fedprox_recorded", FEDPROX)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look
    spec.loader.exec_module(module)
    return module.FedProx


UNFIT = {torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default}
"""Operations that read a value, or whose shapes depend on one."""


class Slot(int):
    """Place of a tensor among those of a recording."""


class Recording(TorchDispatchMode):
    """Records the operations of a call and repeats them on other tensors, as a CUDA graph does.

    A tensor that is neither given nor computed is taken for a constant.
    """

    def __init__(self, call: Callable[..., Any], given: Any) -> None:
        super().__init__()
        self._tensors: list[Tensor] = tree_leaves(given)
        self._slots = {id(tensor): Slot(i) for i, tensor in enumerate(self._tensors)}
        self._steps: list[tuple[Any, Any, list[Any], list[Slot]]] = []
        with self:
            found = call(*given)
        self._found = tree_map(lambda one: self._slots[id(one)], found)

    def __torch_dispatch__(self, operation: Any, _types: Any, arguments: Any = (), options: Any = None) -> Any:
        assert operation not in UNFIT, f"a step cannot be recorded: {operation}"
        leaves, spec = tree_flatten((arguments, options or {}))
        masked = operation.__name__.startswith("index") and any(
            getattr(one, "dtype", 0) == torch.bool for one in leaves[1:]
        )
        assert not masked, f"a step cannot be recorded: {operation} by a mask"
        given = [self._slots.get(id(one), one) if isinstance(one, Tensor) else one for one in leaves]
        found = operation(*arguments, **(options or {}))
        self._steps.append((operation, spec, given, [self._slot(one) for one in tree_leaves(found)]))
        return found

    def _slot(self, tensor: Any) -> Slot:
        if id(tensor) not in self._slots:
            self._slots[id(tensor)] = Slot(len(self._tensors))
            self._tensors.append(tensor)  # alive, so that no other gets its id
        return self._slots[id(tensor)]

    @torch.no_grad()
    def replay(self, given: Any) -> Any:
        """Return the results for other tensors of the same shapes."""
        tensors: dict[int, Any] = dict(enumerate(tree_leaves(given)))
        for operation, spec, leaves, slots in self._steps:
            there = [tensors[one] if isinstance(one, Slot) else one for one in leaves]
            arguments, options = tree_unflatten(there, spec)
            tensors.update(zip(slots, tree_leaves(operation(*arguments, **options)), strict=True))
        return tree_map(lambda slot: tensors[slot], self._found)


class Loss(nn.Module):
    """A program's loss as a module, so that a call can replace the network's tensors."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.network, self._loss = copy.deepcopy(program.network), program.loss

    def forward(self, batch: Tensors, base: Tensors) -> tuple[Tensor, Tensors]:
        return self._loss(self.network, batch, base)


def step_of(program: Program) -> Callable[..., Any]:
    """Return a step as a function of all that differs between vehicles and steps."""
    loss_of = Loss(program).train()
    learns = {name for name, parameter in program.network.named_parameters() if parameter.requires_grad}

    def step(base: Tensors, given: Tensors, kept: Tensors, drawn: Tensors, rate: Tensor) -> Any:
        state = {name: torch.empty_like(one).copy_(base[name]) for name, one in program.network.state_dict().items()}
        for name in learns:
            state[name].requires_grad_()
        parameters = {name: state[name] for name, _ in program.network.named_parameters()}
        optimizer = program.optimizer(parameters, rate, kept)
        batch = {**given, **program.prepare(drawn)}
        loss, figures = functional_call(loss_of, add_prefix("network.", state), (batch, base))
        loss.backward()
        optimizer.step()
        return {name: tensor.detach() for name, tensor in state.items()}, optimizer.state(), figures

    return step


def inputs(job: TrainingJob) -> tuple[Any, ...]:
    drawn = job.program.draw(job.training, torch.Generator().manual_seed(job.training.seed))
    rate = torch.tensor(job.training.learning_rate, dtype=torch.float64)
    # copies: a trace takes a tensor that is given twice for one and the same, whatever it is given later
    parts = (job.base, job.given, job.optimizer, drawn)
    tensors = [{name: tensor.clone() for name, tensor in one.items()} for one in parts]
    return *tensors, rate


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        pytest.param(
            name,
            settings,
            id="-".join([name, *map(str, settings.values())]),
            marks=[] if name in SHORT and not settings else [pytest.mark.slow],
        )
        for name, settings in VARIANTS
    ],
)
def test_a_step_recorded_for_one_vehicle_is_that_of_all(name: str, settings: dict[str, Any]) -> None:
    kind = kind_of(name)
    with tiny_data():
        learner = kind.create(context("cpu", SILOS, rounds=4), kind.Settings(**(SETTINGS[kind.task] | settings)))
    recorded: dict[object, Any] = {}
    replayed = 0
    for job in (job for jobs in jobs_of(learner) for job in jobs[:2]):
        one = replace(job, training=replace(job.training, steps=1), mixed=())
        plain = train_one(one, copy.deepcopy(job.program.network))
        # a later step: what the first one left, with another rate and other draws
        training = replace(one.training, seed=one.training.seed + 1, learning_rate=one.training.learning_rate / 3)
        later = replace(one, base=plain.state, optimizer=plain.optimizer, training=training)
        for each in (one, later):
            expected = train_one(each, copy.deepcopy(job.program.network))
            given = inputs(each)
            shapes = [sorted((n, tuple(t.shape)) for n, t in part.items()) for part in given[:4]]
            key = job.program, str(shapes)
            with fixed_shapes():
                if key not in recorded:
                    recorded[key] = Recording(step_of(job.program), inputs(each))
                else:
                    replayed += 1
            state, kept, figures = recorded[key].replay(inputs(each))
            for ours, theirs in ((state, expected.state), (kept, expected.optimizer)):
                assert ours.keys() == theirs.keys()
                assert all(torch.equal(ours[n], theirs[n]) for n in theirs), each.training
            assert all(torch.equal(figures[n], rows[0]) for n, rows in expected.figures.items())
    assert replayed >= 4


@pytest.mark.parametrize("draw", [draw_view_one, draw_view_two])
@pytest.mark.parametrize("count", [3, 64])
def test_views_of_fixed_shapes_are_the_others_to_the_bit(draw: Callable[..., Tensors], count: int) -> None:
    generator = torch.Generator().manual_seed(count)
    images = torch.rand(count, 3, 32, 32, generator=generator)
    drawn = draw(count, (32, 32), generator)
    plain = apply_view(images, drawn, (0.4, 0.5, 0.6), (0.2, 0.3, 0.4))
    given = images, drawn, torch.tensor([0.4, 0.5, 0.6]), torch.tensor([0.2, 0.3, 0.4])
    with fixed_shapes():
        recording = Recording(apply_view, given)
    assert torch.equal(plain, recording.replay(given))


def test_what_cannot_be_recorded_fails() -> None:
    with pytest.raises(AssertionError, match="cannot be recorded"):
        Recording(lambda one: one[one > 0], (torch.arange(3.0),))
    with pytest.raises(AssertionError, match="cannot be recorded"):
        Recording(lambda one: one * float(one.sum()), (torch.arange(3.0),))
    stale = Recording(lambda one, two: one + two.clone(), (torch.ones(2), torch.ones(2)))
    assert stale.replay((torch.ones(2), torch.zeros(2))).tolist() == [1, 1]
