"""FedEFM: overseas training that nobody else notices, weights from transport, exact losses, FedAvg without peers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from learner_checks import equal, peers_of
from torch.nn.functional import cross_entropy

from learners.classification_fedavg import ClassificationFedAvg
from learners.encoders import create_classifier, forward_flop
from learners.engines.programs import Engine, Tensors, Trained, TrainingJob, summarise
from learners.fedefm import FedEFM
from learners.mathematics.weights import weighted_mean
from learners.tasks.classification import ClassificationSettings
from vnetsim.experiment import DataSettings
from vnetsim.learning import AGGREGATOR, ModelKey, Participant
from vnetsim.scenario.settings_file import learner_defaults

TASK = {"batch": 8, "steps": 2}


@pytest.fixture
def new(new_fedefm):
    return new_fedefm


@pytest.fixture
def learner(new):
    """Return a learner in round 1, the first whose vehicles learn from each other."""
    made = new()
    made.aggregate([])
    return made


def on_labels(model: torch.nn.Module, batch: Tensors, _: Tensors) -> tuple[torch.Tensor, Tensors]:
    loss = cross_entropy(model(batch["images"]), batch["labels"])
    return loss, {"loss": loss}


def without_peers(participants: list[Participant]) -> list[Participant]:
    return [replace(one, peers=()) for one in participants]


@pytest.mark.parametrize("cls", [FedEFM, ClassificationFedAvg])
def test_silos_lack_labels_by_default(cls, new):
    defaults = learner_defaults(cls)
    assert defaults["round.distinct_silos"] is True
    data = DataSettings(partition=defaults["data.partition"])
    learner = new({"data": data})
    assert (learner._task._counts == 0).any()
    assert (learner.describe().silo_label_counts > 0).sum(axis=1).tolist() == [2] * 6  # of three


def test_without_peers_it_is_fedavg(new, new_context, group):
    fedefm, fedavg = new(), ClassificationFedAvg.create(new_context(), ClassificationSettings(**TASK))
    for r in range(3):
        vehicles = without_peers(group(r))
        mine, theirs = fedefm.train(vehicles), fedavg.train(vehicles)
        assert all(equal(a.state, b.state) and a.loss == b.loss for a, b in zip(mine, theirs, strict=True))
        done = fedefm.aggregate(mine)
        assert done.metrics == {**fedavg.aggregate(theirs).metrics, "teachers": 0.0}
        assert not done.exchanges
    assert equal(fedefm.state_dict(), fedavg.state_dict())
    assert fedefm.evaluate(final=True) == fedavg.evaluate(final=True)


def test_round_0_is_plain_local_training(new, group):
    learner = new({"max_staleness": 1})
    taught, plain = learner.train(group(0)), learner.train(without_peers(group(0)))
    assert all(equal(a.state, b.state) and not a.exchanges for a, b in zip(taught, plain, strict=True))
    learner.aggregate(taught)
    late = replace(group(1)[0], base=ModelKey(AGGREGATOR, 0))
    assert learner.train([late])[0].metrics["teachers"] == 0
    assert learner.train(group(1)[:1])[0].metrics["teachers"] == 2


def test_training_at_host_is_noticed_by_nobody(learner, group):
    rng = torch.random.get_rng_state()
    before = learner.state_dict()
    vehicles = group(1)
    host = replace(vehicles[1], peers=())
    alone = learner.train([host])[0]
    base = dict(learner._models.newest())
    kept = {name: tensor.clone() for name, tensor in base.items()}
    copies = learner._local._train_copies(vehicles[:1])[0]
    # theta_i, BatchNorm statistics included, and the RSU's model are as they were
    assert equal(base, kept)
    assert equal(learner.state_dict(), before)
    # the host trains as if no guest had come: its optimizer, statistics and random draws are its own
    after = learner.train([vehicles[0], host])[1]
    assert equal(after.state, alone.state)
    assert after.loss == alone.loss
    assert torch.equal(torch.random.get_rng_state(), rng)
    assert len(copies) == 2
    assert all(not equal(copy, base) for copy in copies.values())


def test_a_copy_depends_on_round_host_and_guest_alone(learner, group):
    guest, host, other = group(1)
    both = learner._local._train_copies([guest])[0]
    assert list(both) == [host.vehicle_id, other.vehicle_id]
    alone = learner._local._train_copies([replace(guest, peers=peers_of(host))])[0]
    assert equal(alone[host.vehicle_id], both[host.vehicle_id])
    # nor does it matter whose copies are trained besides; each vehicle gets its own back
    among = learner._local._train_copies([other, guest, replace(host, peers=())])
    assert list(among[0]) == [guest.vehicle_id, host.vehicle_id]
    assert list(among[1]) == list(both)
    assert all(equal(among[1][name], both[name]) for name in both)
    assert among[2] == {}
    # guests of one host differ by their draws
    second = learner._local._train_copies([replace(other, peers=peers_of(host))])[0]
    assert equal(second[host.vehicle_id], among[0][host.vehicle_id])
    assert not equal(second[host.vehicle_id], alone[host.vehicle_id])
    # the images are the host's, blurred by its speed
    for change in ({"silo": 5}, {"speed_mps": 60.0}):
        changed = learner._local._train_copies([replace(guest, peers=(replace(*peers_of(host), **change),))])[0]
        assert not equal(changed[host.vehicle_id], alone[host.vehicle_id])


def trained_by(learner: FedEFM, one: Participant, objective: Any) -> Trained:
    """Return what a participant makes of the global model of round 1 or later with another loss."""
    base = learner._models[one.base]
    job = TrainingJob(
        program=learner._task.training(objective), training=learner._task.local_training_of(one), base=base
    )
    return learner._task.engine.train([job])[0]


def test_similarities_go_to_the_record(learner, group):
    updates = learner.train(group(1))
    done = learner.aggregate(updates[:2])
    names = [f"vehicle {i}" for i in range(3)]
    # sender and host; of a rejected upload none, but it hosted
    assert set(done.exchanges) == {(names[i], names[j]) for i in range(2) for j in range(3) if i != j}
    assert done.exchanges[names[0], names[1]] == float(updates[0].exchanges[names[1]])
    assert done.metrics["emd"] == pytest.approx(sum(done.exchanges.values()) / 4)
    assert done.metrics["emd_least"] == min(done.exchanges.values()) < max(done.exchanges.values())
    assert done.metrics["emd_largest"] == max(done.exchanges.values())
    assert done.metrics["teachers"] == 2
    assert list(done.weights) == [0.5, 0.5]
    mean = weighted_mean([update.state for update in updates[:2]], [0.5, 0.5])
    assert equal(dict(learner._models.newest()), mean)


class Diverging:
    """An engine whose loss is not finite wherever a vehicle trains on one silo."""

    def __init__(self, engine: Engine, *, silo: int) -> None:
        self._engine, self._silo = engine, silo

    def train(self, jobs: Sequence[TrainingJob]) -> list[Trained]:
        return summarise(
            [
                replace(one, figures={"loss": one.figures["loss"] * torch.nan})
                if job.training.silo == self._silo
                else one
                for job, one in zip(jobs, self._engine.train(jobs), strict=True)
            ]
        )


def test_a_copy_that_diverged_is_left_out(learner, group, monkeypatch):
    one = group(1)[0]
    base = learner._models.newest()
    broken = {name: tensor * torch.nan if "trunk.conv1" in name else tensor for name, tensor in base.items()}
    compared = learner._local._compare_copies([learner._start(one)], [{"good": base, "broken": broken}])
    assert list(compared[0]) == ["good"]
    learner._task.engine = Diverging(learner._task.engine, silo=one.peers[0].silo)
    assert list(learner.train([one])[0].exchanges) == [one.peers[1].vehicle_id]
    monkeypatch.setattr(learner._server, "base", lambda _: broken)
    assert learner._local._compare_copies([learner._start(one)], [{"good": base}]) == [{}]


def test_guest_average_uploads_a_mean(new, group):
    learner = new(variant="guest-average")
    learner.aggregate([])
    one = group(1)[0]
    update = learner.train([one])[0]
    local = trained_by(learner, one, on_labels)
    guests = list(learner._local._train_copies([one])[0].values())
    for name in ("head.weight", "trunk.bn1.running_mean"):
        expected = local.state[name] / 2 + (guests[0][name] + guests[1][name]) / 4
        torch.testing.assert_close(update.state[name], expected)
    assert update.loss == local.means["loss"]
    assert not update.exchanges
    assert "emd" not in learner.aggregate([update]).metrics
    plain = learner.train(without_peers(group(2)))[0]
    assert equal(plain.state, trained_by(learner, group(2)[0], on_labels).state)


def test_cost_counts_teachers_and_overseas_work(new, images, monkeypatch):
    flop = forward_flop(create_classifier("small", classes=3, seed=0), (3, 16, 16))
    learner = new(max_teachers=2)
    cost = learner.cost(0)
    # two steps of eight images forward and backward and past two teachers; one batch past both and the own model
    assert cost.work_flop == 8 * flop * (2 * 3 + 2 * 2 + 3)
    model = sum(tensor.numel() * tensor.element_size() for tensor in learner._models.newest().values())
    assert cost.download_bytes == cost.upload_bytes == model
    assert cost.exchange is not None
    assert cost.exchange.before_training
    assert not cost.exchange.mutual
    assert cost.exchange.send_bytes == cost.exchange.return_bytes == model
    assert cost.exchange.work_flop == 1 * 8 * 3 * flop
    assert new(variant="guest-average").cost(0).work_flop == 2 * 8 * 3 * flop
    # a host may have the largest silo
    few = replace(images, train=images.train[:-1], train_labels=images.train_labels[:-1])
    monkeypatch.setattr("learners.tasks.task.load_images", lambda *_, **__: few)
    uneven = new(batch=64)
    assert uneven.describe().facts["Images per silo"] == "15 to 16, 95 in all"
    assert uneven.cost(0).exchange.work_flop == 16 * 3 * flop
    # at every step the features come with the labels: no pass besides
    assert new(max_teachers=2, similarity="step").cost(0).work_flop == 8 * flop * (2 * 3 + 2 * 2)
