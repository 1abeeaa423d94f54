"""FedCo: the queue at the RSU, the momentum encoder, the loss against the queue, and what crosses the radio link."""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import normalize

from learners.data.augment import view_one, view_two
from learners.data.sets import ImageSet
from learners.engines.optimizers import Optimizer, Sgd
from learners.engines.programs import Engine, LocalTraining, Trained, TrainingJob, read, unprefixed
from learners.fedco import FedCo, FedCoSettings
from learners.state.momentum_contrast import INITIAL_ROUND, KEY, QUERY, KeyQueue, QueryAndKey, Trailing, queue_info_nce
from vnetsim.errors import InputError
from vnetsim.learning import LearnerContext, Participant, Update

CPU = torch.device("cpu")
MakeParticipant = Callable[..., Participant]
MakeContext = Callable[..., LearnerContext]
New = Callable[..., FedCo]


@pytest.fixture
def new(tiny: ImageSet, context: LearnerContext) -> New:  # noqa: ARG001  replaces the images
    """Return a maker of small FedCos on the tiny set."""

    def make(given_context: LearnerContext | None = None, **settings: Any) -> FedCo:
        quick = {"batch": 8, "steps": 2, "bank": 40, "queue": 32}
        return FedCo.create(given_context or context, FedCoSettings(**(quick | settings)))

    return make


def unit_vectors(count: int, *, seed: int, width: int = 128) -> Tensor:
    return normalize(torch.randn(count, width, generator=torch.Generator().manual_seed(seed)), dim=1)


def uploads(learner: FedCo, participant: MakeParticipant, count: int, keys: int) -> list[Update]:
    """Return uploads of the global model as it is, each with keys of its own."""
    model = {name.removeprefix("model."): tensor for name, tensor in learner.state_dict().items()
             if name.startswith("model.")}  # fmt: skip
    round_ = int(learner.state_dict()["round"])
    states = [{**model, "keys": unit_vectors(keys, seed=i)} for i in range(count)]
    return [
        Update(participant=participant(round_, i), state=state, loss=1.0, finite=True) for i, state in enumerate(states)
    ]


def queue_of(learner: FedCo) -> Tensor:
    keys: Tensor = learner.state_dict()["queue.keys"]
    return keys


# the queue


def test_eight_vehicles_of_512_keys_replace_a_queue_of_4096(new: New, participant: MakeParticipant) -> None:
    learner = new(batch=512, queue=0)
    before = queue_of(learner)
    assert before.shape == (4096, 128)
    sent = uploads(learner, participant, 8, 512)
    done = learner.aggregate(sent)
    weights = done.weights
    metrics = done.metrics
    assert torch.equal(queue_of(learner), torch.cat([update.state["keys"] for update in sent]))
    assert weights == [1 / 8] * 8
    assert (metrics["queue_keys"], metrics["queue_age"]) == (4096, 0.0)


def test_seven_vehicles_leave_the_newest_512_old_keys(new: New, participant: MakeParticipant) -> None:
    learner = new(queue=4096)
    before = queue_of(learner)
    sent = uploads(learner, participant, 7, 512)
    done = learner.aggregate(sent)
    metrics = done.metrics
    assert torch.equal(queue_of(learner), torch.cat([before[-512:], *(update.state["keys"] for update in sent)]))
    assert (metrics["queue_keys"], metrics["queue_age"]) == (7 * 512, 0.0)


def test_of_more_than_eight_vehicles_the_first_keys_fall_out_at_once(new: New, participant: MakeParticipant) -> None:
    learner = new(queue=4096)
    sent = uploads(learner, participant, 11, 512)
    learner.aggregate(sent)
    assert torch.equal(queue_of(learner), torch.cat([update.state["keys"] for update in sent[3:]]))
    other_order = new(queue=4096)
    other_order.aggregate(sent[::-1])
    assert torch.equal(queue_of(other_order), torch.cat([update.state["keys"] for update in sent[7::-1]]))


@given(length=st.integers(1, 12), rounds=st.lists(st.lists(st.integers(0, 7), max_size=4), max_size=5))
def test_the_queue_is_a_deque_of_fixed_length(length: int, rounds: list[list[int]]) -> None:
    queue = KeyQueue(keys=-torch.arange(1.0, length + 1)[:, None], rounds=torch.full((length,), INITIAL_ROUND))
    reference = deque([(-float(i), INITIAL_ROUND) for i in range(1, length + 1)], maxlen=length)
    number = 0.0
    for round_, sizes in enumerate(rounds):
        sent = []
        for size in sizes:
            sent.append(torch.arange(number, number + size)[:, None])
            reference.extend((number + i, round_) for i in range(size))
            number += size
        queue = queue.enqueue(sent, round_=round_)
    assert list(zip(queue.keys[:, 0].tolist(), queue.rounds.tolist(), strict=True)) == list(reference)
    ages = [len(rounds) - round_ for _, round_ in reference if round_ != INITIAL_ROUND]
    metrics = queue.metrics(len(rounds))
    assert metrics["queue_keys"] == len(ages)
    assert metrics.get("queue_age") == (pytest.approx(np.mean(ages)) if ages else None)


def test_enqueueing_leaves_the_old_queue() -> None:
    queue = KeyQueue.random(6, 4, generator=np.random.default_rng(0), device=CPU)
    before = queue.keys.clone()
    queue.enqueue([unit_vectors(9, seed=1, width=4)], round_=0)
    assert torch.equal(queue.keys, before)


def test_the_first_queue_is_random_and_normalised(new: New, new_context: MakeContext) -> None:
    keys = queue_of(new(queue=1000))
    torch.testing.assert_close(keys.norm(dim=1), torch.ones(1000), rtol=0, atol=1e-6)
    # uniform on the sphere: every coordinate has mean 0 and variance 1 / 128
    assert float(keys.mean(dim=0).abs().max()) < 5 * math.sqrt(1 / 128 / 1000)
    assert float(keys.var()) == pytest.approx(1 / 128, rel=0.02)
    assert torch.equal(keys, queue_of(new(queue=1000)))
    other = new_context(streams=replace(new_context().streams, seed=2))
    assert not torch.equal(keys, queue_of(new(other, queue=1000)))


def test_age_and_number_of_keys_over_the_rounds(new: New, participant: MakeParticipant) -> None:
    learner = new(queue=32)
    done = learner.aggregate([])
    empty = done.metrics
    assert empty["queue_keys"] == 0
    assert "queue_age" not in empty
    done = learner.aggregate(learner.train([participant(1, 0)]))
    one = done.metrics
    assert (one["queue_keys"], one["queue_age"]) == (8, 0.0)
    done = learner.aggregate([])
    none = done.metrics
    assert (none["queue_keys"], none["queue_age"]) == (8, 1.0)
    done = learner.aggregate(uploads(learner, participant, 1, 24))
    three = done.metrics
    assert (three["queue_keys"], three["queue_age"]) == (32, 8 * 2 / 32)


def test_the_queue_holds_eight_batches_as_published() -> None:
    assert [FedCoSettings(batch=batch).length for batch in (512, 64)] == [4096, 512]
    assert FedCoSettings(batch=64, queue=100).length == 100


def test_five_uploads_a_round_renew_the_queue_in_two_rounds(new: New, participant: MakeParticipant) -> None:
    """1.6 rounds of 5 x 8 keys into 64, as of 5 x 512 into 4096."""
    learner = new(queue=0)
    shares = []
    for round_ in range(3):
        updates = learner.train([participant(round_, i) for i in range(5)])
        shares.append(learner.aggregate(updates).metrics["queue_random"])
    assert shares == [1 - 5 / 8, 0, 0]
    slow = new(queue=512)
    assert slow.aggregate(slow.train([participant(0, 0)])).metrics["queue_random"] == 1 - 8 / 512


# the loss


def test_loss_equals_a_slow_float64_loop() -> None:
    q, k, queue = (unit_vectors(n, seed=s, width=16).double() for n, s in ((5, 0), (5, 1), (9, 2)))
    rows = []
    for i in range(5):
        logits = [sum(float(a) * float(b) for a, b in zip(q[i], other, strict=True)) / 0.1 for other in (k[i], *queue)]
        rows.append(-math.log(math.exp(logits[0]) / sum(math.exp(logit) for logit in logits)))
    assert float(queue_info_nce(q, k, queue, temperature=0.1)) == pytest.approx(np.mean(rows), rel=1e-12)


def test_constant_similarities_give_the_logarithm_of_the_candidates() -> None:
    q = unit_vectors(1, seed=0).double().expand(4, -1)
    loss = queue_info_nce(q, q, q[:1].expand(511, -1), temperature=0.1)
    assert float(loss) == pytest.approx(6.238325, abs=1e-6)


def test_gradient_is_that_of_the_softmax() -> None:
    """D loss / d q_i = (sum_c p_ic c - k_i) / (B t) over the candidates c, the positive k_i among them."""
    q, k, queue = (unit_vectors(n, seed=s, width=16).double() for n, s in ((5, 0), (5, 1), (9, 2)))
    q.requires_grad_()
    queue_info_nce(q, k, queue, temperature=0.2).backward()  # type: ignore[no-untyped-call]
    for i in range(5):
        candidates = np.vstack([k[i].numpy(), queue.numpy()])
        p = np.exp(candidates @ q[i].detach().numpy() / 0.2)
        expected = (p / p.sum() @ candidates - k[i].numpy()) / (5 * 0.2)
        assert q.grad is not None
        np.testing.assert_allclose(q.grad[i].numpy(), expected, rtol=1e-10, atol=1e-14)


def test_a_dominating_positive_keeps_its_digits() -> None:
    q = torch.tensor([[1.0, 0.0]])
    loss = queue_info_nce(q, q, -q, temperature=0.05)
    assert float(loss) == pytest.approx(math.exp(-40), rel=1e-5)


# local training


def test_momentum_update_equals_a_slow_loop() -> None:
    """It moves towards the model that the step left, not to the one before it."""
    pair = QueryAndKey(nn.Linear(3, 2))
    generator = torch.Generator().manual_seed(0)
    for parameter in pair.parameters():
        nn.init.normal_(parameter, generator=generator)
    parameters = dict(pair.named_parameters())
    optimizer = Trailing(Sgd(parameters, learning_rate=0.1, momentum=0.0, weight_decay=0.5), parameters, momentum=0.7)
    expected = {}
    for name, theta_q in pair.query.named_parameters():
        theta_q.grad = torch.randn(theta_q.shape, generator=generator)
        rows = zip(*(t.flatten().tolist() for t in (parameters[KEY + name], theta_q, theta_q.grad)), strict=True)
        expected[name] = [0.7 * k + 0.3 * (q - 0.1 * (gradient + 0.5 * q)) for k, q, gradient in rows]
    optimizer.step()
    for name, values in expected.items():
        assert parameters[KEY + name].flatten().tolist() == pytest.approx(values, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("key_encoder", ["silo", "visit", "rsu"])
def test_a_visit_equals_momentum_contrast_step_by_step(
    key_encoder: str, new: New, context: LearnerContext, tiny: ImageSet, participant: MakeParticipant
) -> None:
    """MoCo's algorithm 1 with torch's own optimizer, the key encoder moved after every step."""
    m, t, who = 0.6, 0.2, participant(0, 4)
    learner = new(steps=3, momentum_encoder=m, temperature=t, key_encoder=key_encoder)
    queue = queue_of(learner)
    f_q = copy.deepcopy(learner._task.network).train()
    f_k = copy.deepcopy(f_q)
    optimizer = torch.optim.SGD(f_q.parameters(), lr=0.06, momentum=0.9, weight_decay=5e-4)
    generator = torch.Generator().manual_seed(context.streams.integer("training", 0, who.vehicle_id))
    kernel = context.camera.kernel_px(who.speed_mps, 16)
    training = LocalTraining(silo=4, kernel_px=kernel, blurred_fraction=1.0, learning_rate=0.06, seed=0)
    silos = learner._task.silos
    keys, losses = [], []
    for _ in range(3):
        images = silos.images(silos.draw(training, 8, generator))
        q = f_q(view_one(images, generator, tiny.mean, tiny.std))
        k = f_k(view_two(images, generator, tiny.mean, tiny.std)).detach()
        logits = torch.cat([(q * k).sum(dim=1, keepdim=True), q @ queue.T], dim=1) / t
        loss = nn.functional.cross_entropy(logits, torch.zeros(8, dtype=torch.int64))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        with torch.no_grad():
            for theta_k, theta_q in zip(f_k.parameters(), f_q.parameters(), strict=True):
                theta_k.copy_(m * theta_k + (1 - m) * theta_q)
        keys.append(k)
        losses.append(float(loss.detach()))
    update = learner.train([participant(0, 1), who])[1]  # nothing is left of the one before
    assert update.loss == pytest.approx(np.mean(losses), rel=1e-5)
    torch.testing.assert_close(update.state["keys"], torch.cat(keys)[-8:], rtol=1e-4, atol=1e-5)
    for name, tensor in f_q.state_dict().items():
        torch.testing.assert_close(update.state[name], tensor, rtol=1e-4, atol=1e-5)
    moved = {f"key_encoder.{name}": tensor for name, tensor in f_k.named_parameters()} if key_encoder == "rsu" else {}
    assert kept_of(update.state).keys() == moved.keys()
    for name, tensor in moved.items():
        torch.testing.assert_close(update.state[name], tensor.detach(), rtol=1e-4, atol=1e-5)
    assert bool(update.kept) == (key_encoder == "silo")
    for name, tensor in update.kept.items():
        torch.testing.assert_close(tensor, dict(f_k.named_parameters())[name].detach(), rtol=1e-4, atol=1e-5)


def test_gradients_flow_through_the_queries_alone(new: New, participant: MakeParticipant) -> None:
    learner = new()
    job = job_of(learner, participant(0, 0))
    pair = copy.deepcopy(job.program.network).train()
    assert all(parameter.requires_grad == name.startswith(QUERY) for name, parameter in pair.named_parameters())
    pair.requires_grad_()
    batch = job.program.prepare(job.program.draw(job.training, torch.Generator().manual_seed(0)))
    loss, figures = job.program.loss(pair, {**job.given, **batch}, job.base)
    loss.backward()  # type: ignore[no-untyped-call]
    assert not figures["keys"].requires_grad
    assert job.given["queue"].grad is None
    for name, parameter in pair.named_parameters():
        assert (parameter.grad is not None) == name.startswith(QUERY), name


def test_momentum_one_keeps_the_downloaded_key_encoder(new: New, participant: MakeParticipant) -> None:
    def trained_key_encoder(learner: FedCo) -> dict[str, Tensor]:
        return unprefixed(KEY, learner._task.engine.train([job_of(learner, participant(0, 0))])[0].state)

    learner = new(steps=3, momentum_encoder=1.0)
    before = {name: tensor.detach().clone() for name, tensor in learner._task.network.named_parameters()}
    after = trained_key_encoder(learner)
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    assert not torch.equal(trained_key_encoder(new(steps=3))["fc.weight"], before["fc.weight"])


@pytest.fixture
def negatives(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """Return the list that receives the negatives of every step to come, in order under the sequential engine."""
    seen: list[Tensor] = []

    def record(q: Tensor, k: Tensor, queue: Tensor, *, temperature: float) -> Tensor:
        assert not k.requires_grad
        assert not queue.requires_grad
        seen.append(queue.clone())
        return queue_info_nce(q, k, queue, temperature=temperature)

    monkeypatch.setattr("learners.fedco.queue_info_nce", record)
    return seen


def test_the_queue_is_frozen_while_vehicles_train(
    new: New, participant: MakeParticipant, negatives: list[Tensor]
) -> None:
    learner = new(steps=3, engine="sequential")
    before = queue_of(learner)
    updates = learner.train([participant(0, i) for i in range(2)])
    assert len(negatives) == 6
    assert all(torch.equal(queue, before) for queue in negatives)
    assert torch.equal(queue_of(learner), before)
    learner.aggregate(updates)
    assert torch.equal(queue_of(learner), torch.cat([before[16:], *(update.state["keys"] for update in updates)]))


def test_a_stale_vehicle_uses_the_queue_it_downloaded(
    new: New, new_context: MakeContext, participant: MakeParticipant, negatives: list[Tensor]
) -> None:
    learner = new(new_context(max_staleness=1), steps=1, engine="sequential")
    old = queue_of(learner)
    learner.aggregate(uploads(learner, participant, 2, 5))
    resumed = new(new_context(max_staleness=1), steps=1, engine="sequential")
    resumed.load_state_dict(learner.state_dict())
    new_queue = queue_of(learner)
    group = [participant(1, 7, base_round=0), participant(1, 8)]
    for one in (learner, resumed):
        negatives.clear()
        one.train(group)
        assert torch.equal(negatives[0], old)
        assert torch.equal(negatives[1], new_queue)
    assert not torch.equal(old, new_queue)


def test_uploaded_keys_have_unit_length(new: New, participant: MakeParticipant) -> None:
    keys = new().train([participant(0, 0)])[0].state["keys"]
    assert keys.shape == (8, 128)
    assert keys.dtype == torch.float32
    torch.testing.assert_close(keys.norm(dim=1), torch.ones(8))


# rejected uploads


class InfiniteKeys:
    """An engine that gives all trained vehicles keys that are not finite."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def train(self, jobs: Sequence[TrainingJob]) -> list[Trained]:
        trained = self._engine.train(jobs)
        assert all(one.finite for one in trained)
        infinite = [{**one.figures, "keys": one.figures["keys"] * torch.inf} for one in trained]
        return read([replace(one, figures=figures) for one, figures in zip(trained, infinite, strict=True)])


def test_non_finite_keys_alone_reject_an_upload(new: New, participant: MakeParticipant) -> None:
    learner = new()
    learner._task.engine = InfiniteKeys(learner._task.engine)
    update = learner.train([participant(0, 0)])[0]
    assert not update.finite
    assert math.isfinite(update.loss)


# what crosses the radio link, and what is kept


def test_payload_is_model_queue_and_keys(new: New, participant: MakeParticipant) -> None:
    learner = new(queue=4096, batch=512, steps=16)  # silos of 16 images: 16 steps see 256
    model = {name: t for name, t in learner.state_dict().items() if name.startswith("model.")}
    assert not any("queue" in name for name in model)
    model_bytes = sum(t.numel() * t.element_size() for t in model.values())
    cost = learner.cost(0)
    assert cost.download_bytes == model_bytes + 2 * 2**20
    assert cost.upload_bytes == model_bytes + 256 * 128 * 4
    large = cost.of(3_000_000, 1e9)  # keys stay as they are
    assert (large.download_bytes, large.upload_bytes) == (3_000_000 + 2 * 2**20, 3_000_000 + 256 * 128 * 4)
    assert large.work_flop == 16 * 16 * 4 * 1e9
    assert new(queue=4096, batch=512, steps=64).cost(0).upload_bytes == model_bytes + 256 * 2**10
    # each image: forward and backward for the query, forward for the key
    assert cost.work_flop == 16 * 16 * 4 * learner._task.flop
    assert "2097 kB" in learner.describe().facts["Queue"]
    small = new(queue=16, batch=8, steps=2)
    update = small.train([participant(0, 0)])[0]
    assert small.cost(0).upload_bytes == sum(t.numel() * t.element_size() for t in update.state.values())
    assert small.cost(0).download_bytes == model_bytes + 16 * 128 * 4


def test_a_queue_of_another_length_does_not_fit(new: New) -> None:
    with pytest.raises(InputError, match=r"does not fit this learner's settings \(at 'queue.keys'\)"):
        new(queue=16).load_state_dict(new(queue=32).state_dict())


def test_a_checkpoint_without_queue_is_refused(new: New) -> None:
    learner = new()
    state = {name: tensor for name, tensor in learner.state_dict().items() if name != "queue.keys"}
    with pytest.raises(InputError, match=r"does not fit this learner's settings \(at 'queue.keys'\)"):
        learner.load_state_dict(state)


# a key encoder in the silo


def key_encoder_of(learner: FedCo, silo: int) -> dict[str, Tensor]:
    """Return what a silo keeps, empty before its first local training."""
    return unprefixed(f"silo.{silo}.own.", learner.state_dict())


def test_a_key_encoder_in_the_silo_costs_no_payload(new: New, participant: MakeParticipant) -> None:
    silo, visit = new(), new(key_encoder="visit")
    assert [silo.cost(i) for i in range(6)] == [visit.cost(i) for i in range(6)]
    update = silo.train([participant(0, 0)])[0]
    assert silo.cost(0).upload_bytes == sum(t.numel() * t.element_size() for t in update.state.values())
    assert update.kept.keys() == {name for name, _ in silo._task.network.named_parameters()}
    assert "kept in the silo" in silo.describe().facts["Key encoder"]


def test_a_silos_key_encoder_goes_on_where_its_last_visit_left_it(new: New, participant: MakeParticipant) -> None:
    """And starts as the downloaded model, not as the first one, where there was none."""
    learner = new(steps=3, momentum_encoder=0.6)
    first = learner.train([participant(0, 1)])
    assert not key_encoder_of(learner, 1), "training changes nothing yet"
    assert learner.aggregate(first).metrics["new_key_encoders"] == 1
    model = {name: t.clone() for name, t in learner._models.newest().items()}
    left = key_encoder_of(learner, 1)
    assert all(torch.equal(left[name], tensor) for name, tensor in first[0].kept.items())
    back, other = participant(1, 7), participant(1, 2)  # silo 1 by another vehicle, and silo 2
    for one, expected in ((back, left), (other, model)):
        start = unprefixed(KEY, job_of(learner, one).base)
        assert all(torch.equal(start[name], expected[name]) for name in left)
        query = unprefixed(QUERY, job_of(learner, one).base)
        assert all(torch.equal(query[name], tensor) for name, tensor in model.items() if not name.startswith("queue"))
    assert any(not torch.equal(left[name], model[name]) for name in left)
    assert learner.aggregate(learner.train([back, other])).metrics["new_key_encoders"] == 0.5
    assert key_encoder_of(learner, 2)


def test_of_two_vehicles_with_one_silo_the_later_upload_leaves_its_key_encoder(
    new: New, participant: MakeParticipant
) -> None:
    learner = new()
    learner.aggregate(learner.train([participant(0, 1)]))
    found = key_encoder_of(learner, 1)
    twice = [participant(1, 7), participant(1, 13)]
    for one in twice:
        assert all(
            torch.equal(unprefixed(KEY, job_of(learner, one).base)[name], tensor) for name, tensor in found.items()
        )
    updates = learner.train(twice)
    learner.aggregate(updates)
    after = key_encoder_of(learner, 1)
    assert all(torch.equal(after[name], tensor) for name, tensor in updates[1].kept.items())
    assert any(not torch.equal(after[name], tensor) for name, tensor in updates[0].kept.items())


def test_a_stale_vehicle_has_the_old_model_and_the_silos_newest_key_encoder(
    new: New, new_context: MakeContext, participant: MakeParticipant
) -> None:
    learner = new(new_context(max_staleness=1))
    old = {name: tensor.clone() for name, tensor in learner._models.newest().items()}
    learner.aggregate(learner.train([participant(0, 1)]))
    base = job_of(learner, participant(1, 7, base_round=0)).base
    newest = key_encoder_of(learner, 1)
    assert all(torch.equal(unprefixed(KEY, base)[name], tensor) for name, tensor in newest.items())
    query = unprefixed(QUERY, base)
    assert all(torch.equal(tensor, old[name]) for name, tensor in query.items())


def test_silos_key_encoders_survive_a_resume(new: New, participant: MakeParticipant) -> None:
    learner, resumed = new(), new()
    learner.aggregate(learner.train([participant(0, i) for i in range(2)]))
    saved = learner.state_dict()
    resumed.load_state_dict({name: tensor.clone() for name, tensor in saved.items()})
    group = [participant(1, 7), participant(1, 8)]  # one silo seen before and a new one
    for a, b in zip(learner.train(group), resumed.train(group), strict=True):
        assert all(torch.equal(a.state[name], b.state[name]) for name in a.state)
        assert all(torch.equal(a.kept[name], b.kept[name]) for name in a.kept)
    with pytest.raises(InputError, match=r"does not fit this learner's settings \(at 'silo.0.own"):
        new(key_encoder="visit").load_state_dict(saved)
    with pytest.raises(InputError, match=r"does not fit this learner's settings \(at 'silo.1.own.fc.weight'\)"):
        new().load_state_dict({name: tensor for name, tensor in saved.items() if name != "silo.1.own.fc.weight"})


# a key encoder at the RSU


def job_of(learner: FedCo, one: Participant) -> TrainingJob:
    return learner._local._job(learner._start(one))  # type: ignore[attr-defined]


def kept_of(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in state.items() if name.startswith("key_encoder.")}


def test_a_kept_key_encoder_starts_as_the_model_and_doubles_the_payload(new: New, participant: MakeParticipant) -> None:
    kept, visit = new(key_encoder="rsu"), new(key_encoder="visit")
    state = kept.state_dict()
    parameters = dict(kept._task.network.named_parameters())
    assert kept_of(state).keys() == {f"key_encoder.{name}" for name in parameters}
    assert all(torch.equal(state[f"key_encoder.{name}"], parameter) for name, parameter in parameters.items())
    assert not any("key_encoder" in name for name in state if name.startswith("model."))
    assert not kept_of(visit.state_dict())
    assert "MB each way with it" in kept.describe().facts["Key encoder"]
    assert visit.describe().facts["Key encoder"] == "starts as the downloaded model at each local training"
    more = sum(parameter.numel() * 4 for parameter in parameters.values())
    assert kept.cost(0).download_bytes - visit.cost(0).download_bytes == more
    assert kept.cost(0).upload_bytes - visit.cost(0).upload_bytes == more
    assert more > 0.9 * visit.cost(0).upload_bytes - 8 * 128 * 4
    assert kept.cost(0).work_flop == visit.cost(0).work_flop
    update = kept.train([participant(0, 0)])[0]
    assert kept.cost(0).upload_bytes == sum(t.numel() * t.element_size() for t in update.state.values())


def test_a_kept_key_encoder_trails_every_step_from_visit_to_visit(
    new: New, participant: MakeParticipant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After S steps it has moved S times, at last towards the uploaded model; the next goes on from there."""
    models: list[dict[str, Tensor]] = []

    class Recorded(Trailing):
        def __init__(self, optimizer: Optimizer, parameters: Mapping[str, Tensor], *, momentum: float) -> None:
            super().__init__(optimizer, parameters, momentum=momentum)
            self._model = unprefixed(QUERY, parameters)

        def step(self) -> None:
            super().step()
            models.append({name: parameter.detach().clone() for name, parameter in self._model.items()})

    monkeypatch.setattr("learners.fedco.Trailing", Recorded)
    learner = new(key_encoder="rsu", steps=3, momentum_encoder=0.6, engine="sequential")
    expected = {name.removeprefix("key_encoder."): t for name, t in kept_of(learner.state_dict()).items()}
    for round_ in range(2):
        models.clear()
        update = learner.train([participant(round_, 1), participant(round_, 4)])[1]
        assert len(models) == 6
        for model in models[3:]:
            expected = {name: 0.6 * theta_k + 0.4 * model[name] for name, theta_k in expected.items()}
        for name, tensor in expected.items():
            torch.testing.assert_close(update.state[f"key_encoder.{name}"], tensor, rtol=1e-5, atol=1e-7)
            assert torch.equal(models[-1][name], update.state[name])
        learner.aggregate([update])
        state = learner.state_dict()
        assert all(torch.equal(state[name], update.state[name]) for name in kept_of(state))


def test_kept_key_encoders_are_averaged_and_clipped_with_their_models(new: New, participant: MakeParticipant) -> None:
    learner = new(key_encoder="rsu")
    before = learner.state_dict()
    updates = learner.train([participant(0, i) for i in range(3)])
    learner.aggregate(updates)
    for name, tensor in kept_of(learner.state_dict()).items():
        mean = torch.stack([update.state[name] for update in updates]).mean(dim=0)
        torch.testing.assert_close(tensor, mean, rtol=1e-6, atol=1e-8)
        assert name == "key_encoder.fc.bias" or not torch.equal(tensor, before[name])
    held = new(key_encoder="rsu", clip_norm=1e-6)
    held.aggregate(updates)
    for name, tensor in kept_of(held.state_dict()).items():
        torch.testing.assert_close(tensor, before[name], rtol=0, atol=2e-6)


def test_momentum_1_never_moves_the_kept_key_encoder(new: New, participant: MakeParticipant) -> None:
    learner = new(key_encoder="rsu", momentum_encoder=1.0)
    before = kept_of(learner.state_dict())
    for round_ in range(2):
        learner.aggregate(learner.train([participant(round_, i) for i in range(2)]))
    after = learner.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())


def test_a_kept_key_encoder_survives_a_resume_and_reaches_the_stale(
    new: New, new_context: MakeContext, participant: MakeParticipant
) -> None:
    def make() -> FedCo:
        return new(new_context(max_staleness=1), key_encoder="rsu")

    learner, resumed = make(), make()
    learner.aggregate(learner.train([participant(0, i) for i in range(2)]))
    resumed.load_state_dict(learner.state_dict())
    group = [participant(1, 7, base_round=0), participant(1, 8)]
    for a, b in zip(learner.train(group), resumed.train(group), strict=True):
        assert all(torch.equal(a.state[name], b.state[name]) for name in a.state)
    with pytest.raises(InputError, match="does not fit this learner's settings"):
        new(new_context(max_staleness=1), key_encoder="visit").load_state_dict(learner.state_dict())


def test_a_first_visit_is_the_same_either_way(new: New, participant: MakeParticipant) -> None:
    silo, rsu, visit = (new(key_encoder=choice).train([participant(0, 0)])[0] for choice in ("silo", "rsu", "visit"))
    for one in (silo, rsu):
        assert one.loss == visit.loss
        assert all(torch.equal(one.state[name], tensor) for name, tensor in visit.state.items())


def test_a_robust_rule_leaves_the_uploads_keys_in_the_queue(new: New, participant: MakeParticipant) -> None:
    learner = new(aggregation="median")
    updates = learner.train([participant(0, i) for i in range(3)])
    learner.aggregate(updates)
    state = learner.state_dict()
    median = torch.stack([update.state["fc.weight"] for update in updates]).median(dim=0).values
    assert torch.equal(state["model.fc.weight"], median)
    assert torch.equal(queue_of(learner)[-24:], torch.cat([update.state["keys"] for update in updates]))


def test_the_loss_falls_within_a_visit(new: New, participant: MakeParticipant) -> None:
    """Between rounds it may rise, since the negatives change; against a frozen queue of real keys it must fall."""
    first = new(batch=16, steps=1, queue=48)
    first.aggregate(first.train([participant(0, i) for i in range(3)]))

    def mean_loss(steps: int) -> float:
        learner = new(batch=16, steps=steps, queue=48)
        learner.load_state_dict(first.state_dict())
        return learner.train([participant(1, 3)])[0].loss

    assert mean_loss(24) < 0.8 * mean_loss(1)
