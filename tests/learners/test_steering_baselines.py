"""Every steering learner keeps the protocol's promises; without the divergence they are well-known methods."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from device_checks.tiny_rounds import Doubled
from learner_checks import equal, of, resumed

from learners.data.sets import SteeringSet
from learners.encoders import ResNet8
from learners.engines.programs import SequentialEngine, Trained, TrainingJob, draw_first
from learners.steering_baselines import DecentralisedSgd, FedAvgSteering
from vnetsim.learning import AGGREGATOR, ModelKey, Participant

MakeParticipant = Callable[..., Participant]
New = Callable[..., Any]


@pytest.fixture
def new(new_steering: New) -> New:
    return new_steering


@pytest.fixture
def in_contact(participant: MakeParticipant) -> Callable[..., list[Participant]]:
    """Return a maker of participants that all exchanged with each other."""

    def make(round_: int, numbers: Sequence[int]) -> list[Participant]:
        alone = [participant(round_, number) for number in numbers]
        return [
            participant(round_, number, peers=[p for p in alone if p is not me])
            for number, me in zip(numbers, alone, strict=True)
        ]

    return make


def play(learner: Any, rounds: Sequence[int], in_contact: Callable[..., list[Participant]]) -> None:
    for r in rounds:
        group = in_contact(r, [r, r + 1])
        if r == 2:  # one that started a round earlier
            group[0] = replace(group[0], base=ModelKey(AGGREGATOR, 1))
        learner.aggregate(learner.train(group))
        learner.evaluate(final=False)


@pytest.mark.parametrize(
    ("learner_class", "topology", "settings"),
    [
        ("cdl", "contact", {"optimizer": "adam-kept", "schedule": "cosine"}),
        ("fedavg-steering", "star", {"optimizer": "adam-kept"}),
        pytest.param("cdl", "star", {"optimizer": "adam-kept"}, marks=pytest.mark.all_only),
    ],
    indirect=["learner_class"],
)
def test_a_resumed_run_gives_the_same_bits(
    learner_class: Any, topology: str, settings: Any, new: New, in_contact: Callable[..., list[Participant]]
) -> None:
    resumed(
        lambda: new(learner_class, topology, {"max_staleness": 1}, **settings),
        lambda learner, rounds: play(learner, rounds, in_contact),
        rounds=3,
        stop=2,
    )


@pytest.mark.parametrize("topology", ["contact", "ring", "star"])
def test_a_rejected_update_is_left_out(
    learner_class: Any, topology: str, new: New, in_contact: Callable[..., list[Participant]]
) -> None:
    learner = new(learner_class, topology)
    one, two, bad = learner.train(in_contact(0, [0, 1, 2]))
    done = learner.aggregate([one, two])
    assert list(done.weights) == [0.5, 0.5]
    assert done.metrics["loss"] == pytest.approx((one.loss + two.loss) / 2)
    state = learner.state_dict()
    assert all(tensor.isfinite().all() for tensor in state.values())
    for name, tensor in of(state, "model.").items():
        if tensor.is_floating_point():
            torch.testing.assert_close(tensor, (one.state[name] + two.state[name]) / 2)
    if topology != "star" and learner_class is not FedAvgSteering:
        assert not of(state, "silo.2.")
        # the graph is that of the two that are left: each takes half of the other
        assert equal(of(state, "silo.0.shared."), of(state, "silo.1.shared."))
        ids = [update.participant.vehicle_id for update in (one, two, bad)]
        expected = {(s, r): 0.0 if s == ids[2] else 0.5 for s in ids for r in ids[:2] if s != r}
        assert done.exchanges == expected


def test_only_exchanges_that_completed_mix(new: New, participant: MakeParticipant) -> None:
    learner = new(DecentralisedSgd)
    a, b, c, d = (participant(0, i) for i in range(4))
    gone = participant(0, 5)  # completed an exchange, but did not commit
    chain = [
        participant(0, 0, peers=[b, gone]),
        participant(0, 1, peers=[a, c]),
        participant(0, 2, peers=[b]),
        participant(0, 3, peers=[c]),  # who did not get its model
    ]
    updates = learner.train(chain)
    done = learner.aggregate(updates)
    state = learner.state_dict()
    w = [update.state["fc.weight"] for update in updates]
    expected = [(2 * w[0] + w[1]) / 3, (w[0] + w[1] + w[2]) / 3, (w[1] + 2 * w[2]) / 3]
    for silo in range(3):
        torch.testing.assert_close(state[f"silo.{silo}.shared.fc.weight"], expected[silo])
    assert torch.equal(state["silo.3.shared.fc.weight"], w[3])
    third = pytest.approx(1 / 3)
    ids = [p.vehicle_id for p in (a, b, c, d, gone)]
    assert done.exchanges == {
        (ids[1], ids[0]): third,
        (ids[4], ids[0]): 0.0,
        (ids[0], ids[1]): third,
        (ids[2], ids[1]): third,
        (ids[1], ids[2]): third,
        (ids[2], ids[3]): 0.0,
    }


def test_the_directed_ring_takes_half_from_the_one_before(new: New, participant: MakeParticipant) -> None:
    learner = new(DecentralisedSgd, "ring")
    a, b, c = (participant(0, i) for i in range(3))
    ring = [participant(0, 0, peers=[c]), participant(0, 1, peers=[a]), participant(0, 2, peers=[])]
    updates = learner.train(ring)
    done = learner.aggregate(updates)
    state, w = learner.state_dict(), [update.state["fc.weight"] for update in updates]
    torch.testing.assert_close(state["silo.0.shared.fc.weight"], (w[0] + w[2]) / 2)
    torch.testing.assert_close(state["silo.1.shared.fc.weight"], (w[1] + w[0]) / 2)
    assert torch.equal(state["silo.2.shared.fc.weight"], w[2])
    assert done.exchanges == {(c.vehicle_id, a.vehicle_id): 0.5, (a.vehicle_id, b.vehicle_id): 0.5}


def first_network(learner: Any) -> ResNet8:
    """Return a network with the weights theta^0, its convolutions laid out in memory like the learner's."""
    network = copy.deepcopy(learner._task.network)
    network.load_state_dict(learner._task.initial_state())
    return network.train()


def batches(learner: Any, participant: Participant) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Return frames and angles of a vehicle's steps."""
    task, training = learner._task, learner._task.local_training_of(participant)
    generator = torch.Generator().manual_seed(training.seed)
    for _ in range(task.settings.steps):
        drawn = next(task.silos.draw(training, task.batch_size(training.silo), generator))
        yield task.silos.images(drawn), task._data.train_angles[drawn["rows"]]


def take_steps(learner: Any, vehicle: Participant, network: ResNet8, optimizer: Any) -> None:
    for images, angles in batches(learner, vehicle):
        (network(images.to(network.fc.weight.dtype)) - angles).square().mean().backward()
        optimizer.step()
        network.zero_grad()


def test_two_vehicles_with_one_silo(new: New, participant: MakeParticipant) -> None:
    learner = new(DecentralisedSgd)
    updates = learner.train([participant(0, 1), participant(0, 7)])
    assert updates[0].loss != updates[1].loss
    learner.aggregate(updates)
    assert equal(of(learner.state_dict(), "silo.1.shared."), dict(updates[1].state))


class InDouble(SequentialEngine):
    """An engine in double precision: Adam makes whole steps of the rounding of a gradient that should be 0."""

    def train(self, jobs: Sequence[TrainingJob]) -> list[Trained]:
        in_double = Doubled("cpu")
        return super().train([in_double(job) for job in jobs])


@pytest.mark.parametrize(
    "settings", [{"optimizer": "adam-kept"}, {"optimizer": "sgd", "lr": 0.05, "weight_decay": 1e-3}]
)
def test_alone_it_is_the_local_optimizer_of_torch(new: New, participant: MakeParticipant, settings: Any) -> None:
    learner = new(DecentralisedSgd, dropout=0.0, **settings)
    learner._task.engine = InDouble()
    network = first_network(learner).double()
    reference = (
        torch.optim.Adam(network.parameters(), lr=1e-3, weight_decay=1e-5)
        if settings["optimizer"] == "adam-kept"
        else torch.optim.SGD(network.parameters(), lr=0.05, weight_decay=1e-3)
    )
    for r in range(3):
        vehicle = participant(r, 2 + 6 * r)  # another one each time, which carries the same silo
        take_steps(learner, vehicle, network, reference)
        learner.aggregate(learner.train([vehicle]))
    state = of(learner.state_dict(), "silo.2.shared.")
    for name, tensor in network.state_dict().items():
        torch.testing.assert_close(state[name], tensor, rtol=1e-9, atol=1e-11)
    # silos that nobody trained share the first model and take no room
    assert {name.split(".")[1] for name in learner.state_dict() if name.startswith("silo.")} == {"2"}


def test_errors_are_pooled_over_all_test_frames(
    new: New, in_contact: Callable[..., list[Participant]], roads: SteeringSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("learners.tasks.evaluation.PASS", 7)
    monkeypatch.setattr("learners.tasks.steering.estimate_statistics", lambda *_: None)
    learner = new(DecentralisedSgd)
    done = learner.aggregate(learner.train([replace(p, peers=()) for p in in_contact(0, [0, 3])]))
    state, measured = learner.state_dict(), learner.evaluate(final=False)

    def by_hand(prefix: str) -> tuple[float, float]:
        network = first_network(learner)
        network.load_state_dict(of(state, prefix))
        with torch.no_grad():
            error = network.eval()(roads.test.float() / 255) - roads.test_angles
        return float(error.square().mean().sqrt()), float(error.abs().mean())

    average, one, two = by_hand("model."), by_hand("silo.0.shared."), by_hand("silo.3.shared.")
    assert measured["rmse"] == pytest.approx(average[0], rel=1e-5)
    assert measured["mae"] == pytest.approx(average[1], rel=1e-5)
    assert measured["rmse_silos"] == pytest.approx((one[0] + two[0]) / 2, rel=1e-5)
    assert measured["mae_silos"] == pytest.approx((one[1] + two[1]) / 2, rel=1e-5)
    assert measured["rmse_best"] == pytest.approx(min(one[0], two[0]), rel=1e-5)
    assert measured["rmse_worst"] == pytest.approx(max(one[0], two[0]), rel=1e-5)
    constant = roads.test_angles - roads.train_angles.mean()
    assert measured["rmse_constant"] == pytest.approx(float(constant.square().mean().sqrt()), rel=1e-5)
    assert measured["mae_constant"] == pytest.approx(float(constant.abs().mean()), rel=1e-5)
    names = [name for name, _ in learner._task.network.named_parameters()]
    vectors = [torch.cat([state[f"silo.{i}.shared.{n}"].double().flatten() for n in names]) for i in (0, 3)]
    distance = float((vectors[0] - vectors[1]).norm() / 2)
    assert done.metrics["consensus_distance"] == pytest.approx(distance, rel=1e-5)


def test_test_frames_are_spread_evenly(new: New, roads: SteeringSet) -> None:
    few = new(DecentralisedSgd, test_frames=4)._task
    assert few._test_angles.tolist() == roads.test_angles[[0, 8, 15, 23]].tolist()
    assert len(new(DecentralisedSgd, test_frames=1000)._task._test) == 24


def test_the_record_says_how_large_the_model_is_and_where_silos_steer(new: New, roads: SteeringSet) -> None:
    roads.train_angles[:4] = torch.tensor([-0.05, 0.05, -0.06, 0.06])  # straight up to 0.05 either way
    learner = new(DecentralisedSgd)
    described, parts = learner.describe(), roads.train_angles.split(16)
    counts = [[int(one.sum()) for one in (part < -0.05, part.abs() <= 0.05, part > 0.05)] for part in parts]
    assert described.silo_label_counts.tolist() == counts
    assert not described.network.own_statistics
    assert described.facts["Optimizer"] == "a new one at each local training"
    assert described.facts["Model"] == f"{learner.cost(0).exchange.send_bytes / 1e6:.4g} MB"
    for topology, mutual in (("contact", True), ("complete", True), ("ring", False)):
        exchange = new(DecentralisedSgd, topology).cost(0).exchange
        assert (exchange.before_training, exchange.mutual) == (False, mutual)


def test_dropout_keeps_the_expectation(new: New, participant: MakeParticipant) -> None:
    learner = new(DecentralisedSgd, dropout=0.25, batch=16)
    task = learner._task
    training = task.local_training_of(participant(0, 1))
    program = learner._local._program
    generator = torch.Generator().manual_seed(0)
    drawn = [program.prepare(draw_first(program, training, generator)) for _ in range(50)]
    dropped = torch.cat([task.dropout(torch.ones(16, task.network.width), batch) for batch in drawn])
    assert dropped.numel() >= 100_000
    assert dropped.unique().tolist() == [0.0, pytest.approx(4 / 3)]
    assert float(dropped.mean()) == pytest.approx(1, abs=0.01)
    # a frame's draws are its own, and so are a feature's
    assert float((dropped.mean(dim=1) - 1).abs().max()) < 0.3
    assert float((dropped.mean(dim=0) - 1).abs().max()) < 0.1
