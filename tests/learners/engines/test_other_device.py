"""Every learner on a device that is not the host's memory: nothing is mixed up, nothing is forgotten on the way."""

import math

import pytest
import torch
from device_checks.other_device import There, other_device
from device_checks.schedule import registered
from device_checks.tiny_rounds import joined, tiny_learner


def test_what_is_mixed_up_shows() -> None:
    with other_device() as device:
        there = torch.arange(6.0).reshape(2, 3).to(device)
        assert (there.device.type, (there @ there.T).sum().item()) == (device, 83.0)
        assert isinstance(torch.zeros(2, device=device), There)
        assert there[torch.tensor([1])].tolist() == [[3.0, 4.0, 5.0]]
        assert (there * torch.tensor(2.0)).tolist()[0] == [0.0, 2.0, 4.0]
        with pytest.raises(RuntimeError, match="tensors on two devices"):
            there + torch.ones(3)
        with pytest.raises(RuntimeError, match="tensors on two devices"):
            torch.ones(2, 2) @ there
        with pytest.raises(RuntimeError):
            there.numpy()
        assert there.cpu().numpy().sum() == 15


@pytest.mark.parametrize("engine", ["sequential", "batched"])
@pytest.mark.parametrize("name", sorted(registered()))
def test_a_learner_keeps_to_its_device(name: str, engine: str) -> None:
    host = tiny_learner(name, "cpu", engine="sequential")
    expected = [update.loss for update in host.train(joined(0))]
    with other_device() as device:
        learner = tiny_learner(name, device, engine=engine)
        learner.describe()
        for round_ in range(2):
            updates = learner.train(joined(round_))
            assert round_ or [update.loss for update in updates] == pytest.approx(expected, rel=1e-3)
            learner.aggregate(updates)
        if engine == "batched":  # what follows is the same with both
            return
        assert all(map(math.isfinite, learner.evaluate(final=True).values()))
        saved = learner.state_dict()
        assert not any(isinstance(tensor, There) for tensor in saved.values()), "a checkpoint lies in the host's memory"
        resumed = tiny_learner(name, device, engine=engine)
        resumed.load_state_dict(saved)
        went_on, again = (one.train(joined(2)) for one in (learner, resumed))
        assert [update.loss for update in went_on] == [update.loss for update in again]
        learner.sample_images([0.0, 2.0], 3)
