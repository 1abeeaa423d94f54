"""Every learner on a device that is not the host's memory: nothing is mixed up, nothing is forgotten on the way."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from device_checks.other_device import TRAFFIC, There, other_device
from device_checks.schedule import registered
from device_checks.tiny_rounds import joined, tiny_learner

from learners.data.moving import moved
from learners.tasks.evaluation import as_floats
from vnetsim.learning.faults import trained

VEHICLES = 3
READ = {"read": 1, "waited": 0, "sent": 0}
TRAINING_READS = {
    # the losses, what is finite in the results, and again in what was uploaded
    **dict.fromkeys(["discard", "fedavg", "fedavg-classification", "flsimco"], 3),
    "fedco": 3 + VEHICLES,  # key encoders go to their silos
    **dict.fromkeys(["dsgd", "fedavg-steering"], 2 + VEHICLES),  # models go to their silos
    "cdl": 2 + VEHICLES + 1 + VEHICLES,  # so they do; influences, and gradients compared, before training
}
"""How often a round of training waits for the device, without FedEFM's, whose transport is solved in steps."""
SOLVING_READS = 5
"""Most of one batch of small transport problems: totals, gaps, and three looks at whether all are finished."""


def crossed(call: Callable[[], Any]) -> tuple[Any, dict[str, int]]:
    TRAFFIC.clear()
    found = call()
    return found, {kind: TRAFFIC[kind] for kind in READ}


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
            updates, traffic = crossed(lambda r=round_: trained(learner, joined(r), {}))
            assert round_ or [update.loss for update in updates] == pytest.approx(expected, rel=1e-3)
            aggregation = crossed(lambda u=updates: learner.aggregate(u))[1]
        assert name == "fedefm" or (traffic["read"], traffic["waited"]) == (TRAINING_READS[name], 0)
        assert aggregation["read"] <= 1 + VEHICLES
        assert aggregation["waited"] == 0
        if engine == "batched":  # what follows is the same with both
            return
        figures, evaluation = crossed(lambda: learner.evaluate(final=False))
        models = 1 + VEHICLES * ("rmse_silos" in figures)
        assert evaluation == {"read": models, "waited": 0, "sent": evaluation["sent"]}
        assert all(map(math.isfinite, learner.evaluate(final=True).values()))
        saved, saving = crossed(learner.state_dict)
        assert saving["read"] <= 1, "a model is saved in one copy"
        assert not any(isinstance(tensor, There) for tensor in saved.values()), "a checkpoint lies in the host's memory"
        resumed = tiny_learner(name, device, engine=engine)
        resumed.load_state_dict(saved)
        went_on, again = (one.train(joined(2)) for one in (learner, resumed))
        assert [update.loss for update in went_on] == [update.loss for update in again]
        learner.sample_images([0.0, 2.0], 3)


@pytest.mark.parametrize("engine", ["sequential", "batched"])
@pytest.mark.parametrize(("name", "copies"), [("flsimco", 3), ("fedco", 3), ("cdl", 2), ("fedavg-classification", 2)])
def test_a_step_waits_for_nothing(name: str, engine: str, copies: int) -> None:
    """So the next step's draws are made while the device is at this one; they go there in few copies."""
    rounds = []
    with other_device() as device:
        for steps in (1, 3):
            learner = tiny_learner(name, device, engine=engine, steps=steps)
            learner.train(joined(0))
            rounds.append(crossed(lambda one=learner: one.train(joined(0)))[1])
    few, many = rounds
    trainings = VEHICLES if engine == "sequential" else 1
    assert {kind: (many[kind] - few[kind]) / 2 for kind in few} == {"read": 0, "waited": 0, "sent": copies * trainings}


@pytest.mark.parametrize("engine", ["sequential", "batched"])
@pytest.mark.parametrize("similarity", ["visit", "step"])
def test_fedefm_waits_for_its_teachers_so_often_at_most(similarity: str, engine: str) -> None:
    """Once a visit the transport of all vehicles is one batch, however many steps follow."""
    steps, trainings = 3, VEHICLES if engine == "sequential" else 1
    solved = 1 if similarity == "visit" else steps * trainings
    with other_device() as device:
        learner = tiny_learner("fedefm", device, engine=engine, steps=steps, similarity=similarity)
        learner.aggregate(learner.train(joined(0)))
        updates, traffic = crossed(lambda: trained(learner, joined(1), {}))
    assert all(len(update.exchanges) == VEHICLES - 1 for update in updates)
    # the copies' losses and what is finite in them; similarities come to the host for each vehicle, and go back
    assert traffic["read"] <= TRAINING_READS["fedavg"] + 2 + VEHICLES + SOLVING_READS * solved
    assert traffic["waited"] <= (VEHICLES if similarity == "visit" else 0)


def test_many_tensors_cross_in_one_copy() -> None:
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
        there, sent = crossed(lambda: moved(tensors, device))
        back, read = crossed(lambda: moved(there, host))
        assert (sent, read) == ({"read": 0, "waited": 0, "sent": 1}, READ)
        assert list(there) == list(back) == list(tensors)
        assert all(isinstance(tensor, There) for tensor in there.values())
        assert moved(there, device)["last"] is there["last"]
        assert moved({**tensors, "plain": there["plain"]}, device)["plain"] is there["plain"]
    for one, tensor in tensors.items():
        assert torch.equal(back[one], tensor)
        assert back[one].dtype == tensor.dtype
        assert back[one].is_contiguous()


@pytest.mark.parametrize("name", ["flsimco", "fedavg-classification", "dsgd"])
def test_networks_and_batches_are_laid_out_channels_last(name: str) -> None:
    """As convolutions want them; a layout is lost without a trace."""
    learner = tiny_learner(name, "cpu", encoder="small") if name != "dsgd" else tiny_learner(name, "cpu")
    program, task = learner._local._program, learner._task
    training = task.local_training(0, speed_mps=20.0, learning_rate=0.1, seed=0)
    batch = program.prepare(program.draw(training, torch.Generator().manual_seed(0)))
    parts = [part for part in (*batch.values(), *program.network.parameters()) if part.ndim == 4]
    if name != "dsgd":
        parts.append(as_floats(task.silos.pool[:4]))
    assert len(parts) > 5
    assert all(part.is_contiguous(memory_format=torch.channels_last) for part in parts)
