"""Every learner on a device that is not the host's memory: nothing is mixed up, nothing is forgotten on the way."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from device_checks import registered
from device_checks.other_device import MOVES, There, other_device
from device_checks.recorder import CallingLane
from device_checks.tiny_rounds import joined, tiny_learner
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from learners.data.moving import _strides, to_device
from learners.engines.programs import draw_first
from learners.engines.recorded import COMPARED_CALLS, RecordedEngine
from learners.tasks.evaluation import as_floats
from vnetsim.learning.faults import train_checked


class Crossings(TorchDispatchMode):
    """Refuses what waits for the device or brings tensors to it."""

    def __torch_dispatch__(self, operation: Any, _types: Any, arguments: Any = (), options: Any = None) -> Any:
        found = operation(*arguments, **(options or {}))
        sides = {isinstance(one, There) for one in (found, *arguments) if isinstance(one, Tensor)}
        assert operation is not torch.ops.aten._local_scalar_dense.default
        assert len(sides) < 2 or operation not in MOVES, operation
        return found


class WatchedLane(CallingLane):
    """In which a recorded step stays on its device."""

    def record(self, call: Callable[[], None]) -> Callable[[], None]:
        call()
        with Crossings():
            call()
        return call


def test_what_is_mixed_up_shows() -> None:
    with other_device() as device:
        there = torch.arange(6.0).reshape(2, 3).to(device)
        assert (there.device.type, (there @ there.T).sum().item()) == (device, 83.0)
        assert there[torch.tensor([1])].cpu().numpy().tolist() == [[3.0, 4.0, 5.0]]
        for mixed in (lambda: there + torch.ones(3), lambda: torch.ones(2, 2) @ there, there.numpy):
            with pytest.raises(RuntimeError):
                mixed()


@pytest.mark.parametrize("engine", ["sequential", "recorded"])
@pytest.mark.parametrize("name", sorted(registered()))
def test_a_learner_keeps_to_its_device(name: str, engine: str) -> None:
    host = tiny_learner(name, "cpu", engine="sequential")
    expected = [update.loss for update in host.train(joined(0))]
    with other_device() as device:
        learner = tiny_learner(name, device)
        if engine == "recorded":
            learner._task.engine = RecordedEngine(WatchedLane, lanes=2)
        learner.describe()
        for round_ in range(2):
            updates = train_checked(learner, joined(round_), {})
            assert round_ or [update.loss for update in updates] == pytest.approx(expected, rel=1e-3)
            learner.aggregate(updates)
        if engine == "recorded":  # what follows is the same with both
            assert name == "fedefm" or learner.describe().facts["Engine"] == "recorded steps, 2 at a time"
            return
        assert all(map(math.isfinite, learner.evaluate(final=True).values()))
        saved = learner.state_dict()
        assert not any(isinstance(tensor, There) for tensor in saved.values()), "a checkpoint lies in the host's memory"
        resumed = tiny_learner(name, device)
        resumed.load_state_dict(saved)
        went_on, again = (one.train(joined(2)) for one in (learner, resumed))
        assert [update.loss for update in went_on] == [update.loss for update in again]
        learner.sample_images([0.0, 2.0], 3)


def test_tensors_of_every_kind_cross_and_come_back() -> None:
    tensors = {
        "plain": torch.rand(3, 5),
        "last": torch.rand(2, 3, 4, 4).contiguous(memory_format=torch.channels_last),
        "number": torch.tensor(7),
        "flags": torch.tensor([True, False, True]),
        "half": torch.rand(5).bfloat16(),
        "double": torch.rand(1, dtype=torch.float64),
        "nothing": torch.zeros(0, 3),
    }
    with other_device() as name:
        device, host = torch.device(name), torch.device("cpu")
        there = to_device(tensors, device)
        back = to_device(there, host)
        assert list(there) == list(back) == list(tensors)
        assert all(isinstance(tensor, There) for tensor in there.values())
        assert to_device(there, device)["last"] is there["last"]
        assert to_device({**tensors, "plain": there["plain"]}, device)["plain"] is there["plain"]
    for one, tensor in tensors.items():
        assert torch.equal(back[one], tensor)
        assert back[one].dtype == tensor.dtype
        assert back[one].is_contiguous()


@pytest.mark.parametrize("name", ["flsimco", "fedavg-classification", "dsgd"])
def test_networks_and_batches_are_laid_out_channels_last(name: str) -> None:
    """As convolutions want them; a layout is lost without a trace."""
    learner = tiny_learner(name, "cpu", encoder="small") if name != "dsgd" else tiny_learner(name, "cpu")
    program, task = learner._local._program, learner._task
    training = task.local_training(0, speed_mps=20.0, learning_rate=0.1, seed=0, steps=1)
    batch = program.prepare(draw_first(program, training, torch.Generator().manual_seed(0)))
    parts = [part for part in (*batch.values(), *program.network.parameters()) if part.ndim == 4]
    if name != "dsgd":
        parts.append(as_floats(task.silos.pool[:4]))
    assert len(parts) > 5
    assert all(part.is_contiguous(memory_format=torch.channels_last) for part in parts)


class Copies(TorchDispatchMode):
    """Counts copies between the host and the device."""

    count = 0

    def __torch_dispatch__(self, operation: Any, _types: Any, arguments: Any = (), options: Any = None) -> Any:
        found = operation(*arguments, **(options or {}))
        sides = {isinstance(one, There) for one in (found, *arguments) if isinstance(one, Tensor)}
        self.count += operation in MOVES and len(sides) == 2
        return found


def test_a_vehicle_copies_its_draws_at_once() -> None:
    """However many steps it takes; what a round copies besides does not depend on them either."""
    counts = []
    with other_device() as device:
        for steps, vehicles in ((2, 1), (4, 1), (2, 2)):
            learner = tiny_learner("flsimco", device, steps=steps)
            learner._task.engine = RecordedEngine(WatchedLane, lanes=1)
            learner.train(joined(0, vehicles))  # recorded
            learner._task.engine._calls = COMPARED_CALLS  # compared no more
            with Copies() as copies:
                learner.train(joined(0, vehicles))
            counts.append(copies.count)
    short, long, two = counts
    assert short == long
    assert 0 < two - short <= 2


class Lists(TorchDispatchMode):
    """Refuses operations on lists that CUDA takes tensor by tensor: of several types, or of layouts that differ."""

    def __torch_dispatch__(self, operation: Any, _types: Any, arguments: Any = (), options: Any = None) -> Any:
        lists = [one for one in arguments if isinstance(one, list) and one and isinstance(one[0], There)]
        if operation.__name__.startswith("_foreach_") and lists:
            copies = "copy" in operation.__name__  # the layout of a network is not that of a packed row
            assert len({one.dtype for some in (lists[-1:] if copies else lists) for one in some}) == 1, operation
            assert copies or all(len({str(_strides(one)) for one in pair}) == 1 for pair in zip(*lists, strict=True))
        return operation(*arguments, **(options or {}))


@pytest.mark.parametrize("settings", [{}, {"optimizer": "adam-kept"}], ids=["adam", "adam-kept"])
def test_lists_of_tensors_take_few_kernels(settings: dict[str, Any]) -> None:
    with other_device() as device:
        learner = tiny_learner("cdl", device, **settings)
        learner._task.engine = RecordedEngine(CallingLane, lanes=1)
        for round_ in range(2):
            if round_:  # sub-networks train, and optimizers continue
                learner._task.engine._calls = COMPARED_CALLS
            with Lists():
                learner.aggregate(learner.train(joined(round_)))
