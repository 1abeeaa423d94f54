"""FedCo: the queue at the RSU, the momentum encoder, the loss against the queue, and what crosses the radio link."""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from device_checks.tiny_data import view_one, view_two
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import normalize

from learners.data.sets import ImageSet
from learners.engines.programs import LocalTraining, TrainingJob, remove_prefix
from learners.fedco import KEY, KEYS, QUERY, ROUNDS, FedCo, FedCoSettings, enqueue, queue_figures
from learners.mathematics.losses import queue_info_nce
from vnetsim.experiment import CostSettings
from vnetsim.learning import LearnerContext, Participant, Update

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


@given(length=st.integers(1, 12), rounds=st.lists(st.lists(st.integers(0, 7), max_size=4), max_size=5))
def test_the_queue_is_a_deque_of_fixed_length(length: int, rounds: list[list[int]]) -> None:
    queue = {KEYS: -torch.arange(1.0, length + 1)[:, None], ROUNDS: torch.full((length,), -1)}
    reference = deque([(-float(i), -1) for i in range(1, length + 1)], maxlen=length)
    number = 0.0
    for round_, sizes in enumerate(rounds):
        sent = []
        for size in sizes:
            sent.append(torch.arange(number, number + size)[:, None])
            reference.extend((number + i, round_) for i in range(size))
            number += size
        queue = enqueue(queue, sent, round_=round_)
    assert list(zip(queue[KEYS][:, 0].tolist(), queue[ROUNDS].tolist(), strict=True)) == list(reference)
    ages = [len(rounds) - round_ for _, round_ in reference if round_ >= 0]
    metrics = queue_figures(queue, len(rounds))
    assert metrics["queue_keys"] == len(ages)
    assert metrics.get("queue_age") == (pytest.approx(np.mean(ages)) if ages else None)


def test_the_first_queue_is_random_and_normalised(new: New, new_context: MakeContext) -> None:
    assert len(queue_of(new(batch=512, queue=0))) == 4096, "eight batches, as published"
    keys = queue_of(new(queue=1000))
    torch.testing.assert_close(keys.norm(dim=1), torch.ones(1000), rtol=0, atol=1e-6)
    # uniform on the sphere: every coordinate has mean 0 and variance 1 / 128
    assert float(keys.mean(dim=0).abs().max()) < 5 * math.sqrt(1 / 128 / 1000)
    assert float(keys.var()) == pytest.approx(1 / 128, rel=0.02)
    assert torch.equal(keys, queue_of(new(queue=1000)))
    other = new_context(streams=replace(new_context().streams, seed=2))
    assert not torch.equal(keys, queue_of(new(other, queue=1000)))


# the loss


# local training


@pytest.mark.parametrize("key_encoder", ["silo", "visit", "rsu"])
def test_a_visit_equals_momentum_contrast_step_by_step(
    key_encoder: str, new: New, context: LearnerContext, tiny: ImageSet, participant: MakeParticipant
) -> None:
    """MoCo's algorithm 1 with torch's own optimizer, the key encoder moved after every step."""
    m, t, who = 0.99, 0.2, participant(0, 4)
    learner = new(steps=3, temperature=t, key_encoder=key_encoder)
    queue = queue_of(learner)
    f_q = copy.deepcopy(learner._task.network).train()
    f_k = copy.deepcopy(f_q)
    optimizer = torch.optim.SGD(f_q.parameters(), lr=0.06, momentum=0.9, weight_decay=5e-4)
    generator = torch.Generator().manual_seed(context.streams.integer("training", 0, who.vehicle_id))
    kernel = context.experiment.camera.kernel_px(who.speed_mps, 16)
    training = LocalTraining(silo=4, kernel_px=kernel, blurred_fraction=1.0, learning_rate=0.06, seed=0, steps=3)
    silos = learner._task.silos
    keys, losses = [], []
    for _ in range(3):
        images = silos.images(next(silos.draw(training, 8, generator)))
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


# what crosses the radio link, and what is kept


def test_payload_is_model_queue_and_keys(new: New, participant: MakeParticipant, new_context: MakeContext) -> None:
    context = new_context()
    trained = replace(context, experiment=replace(context.experiment, cost=CostSettings(model="trained")))
    timed = [new(batch=batch, queue=0).cost(0).model for batch in (8, 16)]
    assert timed[0] is not None
    assert timed[0].other_download_bytes == 8 * timed[0].other_upload_bytes == 2 * 2**20, (
        "published, whatever is trained"
    )
    assert timed[1] is not None
    assert timed[1].other_upload_bytes == timed[0].other_upload_bytes
    learner = new(trained, queue=4096, batch=512, steps=16)  # silos of 16 images: 16 steps see 256
    model = {name: t for name, t in learner.state_dict().items() if name.startswith("model.")}
    assert not any("queue" in name for name in model)
    model_bytes = sum(t.numel() * t.element_size() for t in model.values())
    cost = learner.cost(0)
    assert cost.download_bytes == model_bytes + 2 * 2**20
    assert cost.upload_bytes == model_bytes + 256 * 128 * 4
    large = cost.of(3_000_000, 1e9)  # keys stay as they are
    assert (large.download_bytes, large.upload_bytes) == (3_000_000 + 2 * 2**20, 3_000_000 + 256 * 128 * 4)
    assert large.work_flop == 16 * 16 * 4 * 1e9
    assert new(trained, queue=4096, batch=512, steps=64).cost(0).upload_bytes == model_bytes + 256 * 2**10
    # each image: forward and backward for the query, forward for the key
    assert cost.work_flop == 16 * 16 * 4 * learner._task.flop
    facts = learner.describe().facts
    assert "2097 kB" in facts["Queue"]
    assert facts["Keys"] == "at most 512 per participation (262.1 kB), up with it"
    assert "kept in the silo (0.344 MB there)" in facts["Key encoder"], "of 86,000 parameters"
    small = new(trained, queue=16, batch=8, steps=2)
    update = small.train([participant(0, 0)])[0]
    assert small.cost(0).upload_bytes == sum(t.numel() * t.element_size() for t in update.state.values())
    assert small.cost(0).download_bytes == model_bytes + 16 * 128 * 4


# a key encoder in the silo


def key_encoder_of(learner: FedCo, silo: int) -> dict[str, Tensor]:
    """Return what a silo keeps, empty before its first local training."""
    return remove_prefix(f"silo.{silo}.own.", learner.state_dict())


def test_a_silos_key_encoder_goes_on_where_its_last_visit_left_it(new: New, participant: MakeParticipant) -> None:
    """And starts as the downloaded model, not as the first one, where there was none."""
    learner = new(steps=3)
    first = learner.train([participant(0, 1)])
    assert not key_encoder_of(learner, 1), "training changes nothing yet"
    assert learner.aggregate(first).metrics["new_key_encoders"] == 1
    model = {name: t.clone() for name, t in learner._models.newest().items()}
    left = key_encoder_of(learner, 1)
    assert all(torch.equal(left[name], tensor) for name, tensor in first[0].kept.items())
    back, other = participant(1, 7), participant(1, 2)  # silo 1 by another vehicle, and silo 2
    for one, expected in ((back, left), (other, model)):
        start = remove_prefix(KEY, job_of(learner, one).base)
        assert all(torch.equal(start[name], expected[name]) for name in left)
        query = remove_prefix(QUERY, job_of(learner, one).base)
        assert all(torch.equal(query[name], tensor) for name, tensor in model.items() if not name.startswith("queue"))
    assert any(not torch.equal(left[name], model[name]) for name in left)
    assert learner.aggregate(learner.train([back, other])).metrics["new_key_encoders"] == 0.5
    assert key_encoder_of(learner, 2)


def test_a_stale_vehicle_has_the_old_model_and_the_silos_newest_key_encoder(
    new: New, new_context: MakeContext, participant: MakeParticipant
) -> None:
    learner = new(new_context(max_staleness=1))
    old = {name: tensor.clone() for name, tensor in learner._models.newest().items()}
    learner.aggregate(learner.train([participant(0, 1)]))
    base = job_of(learner, participant(1, 7, base_round=0)).base
    newest = key_encoder_of(learner, 1)
    assert all(torch.equal(remove_prefix(KEY, base)[name], tensor) for name, tensor in newest.items())
    query = remove_prefix(QUERY, base)
    assert all(torch.equal(tensor, old[name]) for name, tensor in query.items())


# a key encoder at the RSU


def job_of(learner: FedCo, one: Participant) -> TrainingJob:
    return learner._local._make_job(learner._start(one))  # type: ignore[attr-defined]


def kept_of(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in state.items() if name.startswith("key_encoder.")}


def test_kept_key_encoders_are_averaged_and_clipped_with_their_models(new: New, participant: MakeParticipant) -> None:
    learner = new(key_encoder="rsu")
    before = learner.state_dict()
    updates = learner.train([participant(0, i) for i in range(3)])
    learner.aggregate(updates)
    for name, tensor in kept_of(learner.state_dict()).items():
        mean = torch.stack([update.state[name] for update in updates]).mean(dim=0)
        torch.testing.assert_close(tensor, mean, rtol=1e-6, atol=1e-8)
        assert name == "key_encoder.fc.bias" or not torch.equal(tensor, before[name])
    begun = remove_prefix(KEY, job_of(learner, participant(1, 0)).base)
    for name, tensor in kept_of(learner.state_dict()).items():
        assert torch.equal(begun[name.removeprefix("key_encoder.")], tensor)
    held = new(key_encoder="rsu", clip_norm=1e-6)
    held.aggregate(updates)
    for name, tensor in kept_of(held.state_dict()).items():
        torch.testing.assert_close(tensor, before[name], rtol=0, atol=2e-6)


def test_a_robust_rule_leaves_the_uploads_keys_in_the_queue(new: New, participant: MakeParticipant) -> None:
    learner = new(aggregation="median")
    updates = learner.train([participant(0, i) for i in range(3)])
    learner.aggregate(updates)
    state = learner.state_dict()
    median = torch.stack([update.state["fc.weight"] for update in updates]).median(dim=0).values
    assert torch.equal(state["model.fc.weight"], median)
    assert torch.equal(queue_of(learner)[-24:], torch.cat([update.state["keys"] for update in updates]))
