"""Laws that every registered learner keeps, whatever its task: what the simulator relies on.

A learner of a known task is tested as soon as ``pyproject.toml`` names it. A new task needs an entry in ``SETTINGS`` of
``device_checks.tiny_rounds``, and one in ``RESULTS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from device_checks import learner_class as learner_class_of
from device_checks import registered
from device_checks.tiny_rounds import SETTINGS
from learner_checks import equal, mark_all_only, model_of, peers_of, resumed

from vnetsim.learning import AGGREGATOR, Learner, LearnerContext, ModelKey, Participant, Update
from vnetsim.learning.faults import aggregate_checked, finite_metrics, model_shapes, train_checked
from vnetsim.scenario.settings_file import learner_defaults

MakeParticipant = Callable[..., Participant]


@pytest.fixture(params=mark_all_only(sorted(registered())))
def learner_class(request):
    cls = learner_class_of(request.param)
    assert cls.name == request.param
    assert cls.task in SETTINGS, f"add the task of '{cls.name}' to tiny_rounds.SETTINGS"
    return cls


@pytest.fixture
def new(learner_class, tiny, on_tiny_roads, context):  # noqa: ARG001
    """Return a maker of learners on tiny data."""
    quick = SETTINGS[learner_class.task]

    def make(given: LearnerContext | None = None, **settings: Any) -> Any:
        return learner_class.create(given or context, learner_class.Settings(**(quick | settings)))

    return make


def met(participants: Sequence[Participant]) -> list[Participant]:
    """Return participants of whom each has exchanged with the next one, both ways."""

    count = len(participants)
    beside = [[j for j in (i - 1, i + 1) if 0 <= j < count] for i in range(count)]
    return [
        replace(one, peers=peers_of(*(participants[j] for j in near)))
        for one, near in zip(participants, beside, strict=True)
    ]


def copied(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in state.items()}


def test_conforms_to_the_protocol(learner_class, new, images):
    learner = new()
    assert isinstance(learner, Learner)
    assert learner_class.task
    assert learner_class.paper
    assert learner_class.payload
    assert learner_class.equations
    assert set(learner_defaults(learner_class)) == set(getattr(learner_class, "defaults", ()))
    settings: Any = learner_class.Settings()
    assert is_dataclass(settings)
    with pytest.raises(FrozenInstanceError, match="cannot assign"):
        setattr(settings, fields(settings)[0].name, None)
    described = learner.describe()
    assert len(described.image_shape) == 3
    assert described.silo_label_counts.shape == (6, len(described.class_names))
    assert described.silo_label_counts.sum() == len(images.train)
    assert described.parameters > 0
    assert model_of(learner), "the model stands under model.*"


PASSES = {
    "flsimco": 2, "fedavg": 2, "fedprox": 2, "scaffold": 2, "discard": 2, "fedco": 4 / 3, "cdl": 2,
    "moon-classification": 5 / 3,
}  # fmt: skip
"""Networks and views that an image passes forward and backward in a step; FedCo's key encoder, MOON's two frozen models
forward alone."""


def test_cost_is_what_a_local_training_moves_and_computes(learner_class, new):
    few, all_ = new(batch=8, steps=3), new(batch=64, steps=3)  # a silo of 16 images gives no more
    model = sum(tensor.numel() * tensor.element_size() for tensor in few._task.network.state_dict().values())
    for learner, batch in ((few, 8), (all_, 16)):
        cost = learner.cost(0)
        if learner_class.name != "fedefm":
            passes = PASSES.get(learner_class.name, 1)
            assert cost.work_flop == pytest.approx(3 * batch * 3 * passes * learner._task.flop, rel=1e-12)
        if learner_class.name in {"cdl", "dsgd"}:
            assert (cost.download_bytes, cost.upload_bytes, cost.exchange.send_bytes) == (0, 0, model)
        elif learner_class.name.startswith("scaffold"):
            assert cost.download_bytes == cost.upload_bytes == 2 * model
        elif learner_class.name != "fedco":
            assert cost.download_bytes == cost.upload_bytes == model


def test_cost_is_a_property_of_the_silo(new, participant):
    learner = new()
    before = [learner.cost(silo) for silo in range(6)]
    assert all(cost.download_bytes >= 0 and cost.upload_bytes >= 0 and cost.work_flop > 0 for cost in before)
    assert len({cost.exchange is None for cost in before}) == 1
    for cost in before:
        # a model of twice the bytes and half the operations takes the place of each copy, and of each pass
        own, other = cost.model, cost.of(2 * cost.model.bytes, cost.model.image_flop / 2)
        assert other.download_bytes - own.other_download_bytes == 2 * (cost.download_bytes - own.other_download_bytes)
        assert other.upload_bytes - own.other_upload_bytes == 2 * (cost.upload_bytes - own.other_upload_bytes)
        assert other.work_flop == cost.work_flop / 2
        assert cost.of(own.bytes, own.image_flop) == cost
    learner.aggregate(learner.train(met([participant(0, i) for i in range(3)])))
    assert [learner.cost(silo) for silo in range(6)] == before, "it does not depend on weights"


RESULTS = {
    "classification": {"accuracy", "loss", "seen_accuracy"},
    "contrastive": {"knn_accuracy", "linear_accuracy", "loss"},
    "steering": {"loss", "mae", "rmse"},
}
"""What learning is for; all other series explain a run."""
OWN_MODELS = {name: {"mae_silos", "rmse_silos"} for name in ("cdl", "dsgd")}


def test_reports_the_declared_series(learner_class, new, participant):
    learner = new()
    declared = {series.name: series for series in learner.series()}
    assert len(declared) == len(learner.series())
    assert all(series.label and series.caption for series in declared.values())
    results = {name for name, series in declared.items() if series.result}
    assert results == RESULTS[learner_class.task] | OWN_MODELS.get(learner_class.name, set())
    metrics = finite_metrics(learner, learner.evaluate(final=False), "in evaluate")
    for round_ in range(2):
        group = met([participant(round_, i) for i in range(3)])
        metrics |= aggregate_checked(learner, learner.train(group), "").metrics
    metrics |= learner.evaluate(final=True)
    assert set(metrics) == set(declared)
    for name, value in metrics.items():
        assert declared[name].unit != "%" or 0 <= value <= 1


def test_training_leaves_the_model_and_the_global_random_state(new, participant):
    rng, numpy_rng = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # type: ignore[union-attr]  # noqa: NPY002
    flags = (torch.is_grad_enabled(), torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled())
    learner = new()
    state = learner.state_dict()
    before = copied(state)
    group = met([participant(0, 1), participant(0, 2)])
    updates = train_checked(learner, group, model_shapes(state))
    assert all(update.finite and np.isfinite(update.loss) for update in updates)
    assert equal(learner.state_dict(), before)
    done = aggregate_checked(learner, updates, "")
    assert sum(done.weights) == pytest.approx(1)
    now = copied(learner.state_dict())
    learner.evaluate(final=True)
    assert equal(learner.state_dict(), now)
    assert not equal(now, before)
    assert equal(state, before), "what was returned is never changed in place"
    assert torch.equal(torch.random.get_rng_state(), rng)
    assert np.array_equal(np.random.get_state()[1], numpy_rng)  # noqa: NPY002
    assert flags == (
        torch.is_grad_enabled(),
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
    )


def test_a_participant_trains_the_same_in_any_company(new, participant):
    learner = new()
    three = met([participant(0, i) for i in range(3)])
    together = learner.train(three)
    alone = learner.train(three[1:2])[0]
    assert equal(together[1].state, alone.state)
    assert equal(together[1].kept, alone.kept)
    assert together[1].loss == alone.loss
    assert not equal(together[0].state, alone.state)
    assert equal(learner.train(three[::-1])[1].state, alone.state)
    # another vehicle draws other images
    assert learner.train([replace(three[1], vehicle_id="other")])[0].loss != alone.loss


def play(learner: Any, rounds: Sequence[int], participant: MakeParticipant) -> None:
    for r in rounds:
        speeds = (20.0, 25.0, 35.0)
        group = [participant(r, 10 * r + i, speed_mps=speed) for i, speed in enumerate(speeds)]
        if r == 2:  # one that started a round earlier
            group[0] = replace(group[0], base=ModelKey(AGGREGATOR, 1))
        learner.aggregate(learner.train(met(group)))
        learner.evaluate(final=False)


def test_a_resumed_run_gives_the_same_bits(new, new_context, participant):
    context = new_context(max_staleness=1)
    resumed(lambda: new(context), lambda learner, rounds: play(learner, rounds, participant), rounds=3, stop=2)


def test_an_empty_round_keeps_the_model(new):
    learner = new()
    before = copied(model_of(learner))
    done = aggregate_checked(learner, [], "")
    assert list(done.weights) == []
    assert "loss" not in done.metrics
    assert equal(model_of(learner), before)


def test_a_rejected_update_does_not_enter_the_model(new, participant):
    """The simulator leaves it out; those that met its vehicle are folded without it."""
    learner = new()
    updates: list[Update] = learner.train(met([participant(0, i) for i in range(3)]))
    done = aggregate_checked(learner, [updates[0], updates[2]], "")
    assert len(done.weights) == 2
    assert sum(done.weights) == pytest.approx(1)
    assert all(tensor.isfinite().all() for tensor in learner.state_dict().values())
    play(learner, [1], participant)


@pytest.mark.usefixtures("without_bounds")
def test_divergence_shows_as_an_update_that_is_not_finite(new, participant):
    learner = new(lr=1e30, steps=6)
    before = copied(model_of(learner))
    updates = train_checked(learner, [participant(0, 0)], model_shapes(learner.state_dict()))
    assert not updates[0].finite
    learner.aggregate([])
    assert equal(model_of(learner), before)


def test_sample_images(new):
    learner = new()
    channels, height, width = learner.describe().image_shape
    samples = learner.sample_images([0.0, 1.0, 4.0], 5)
    assert samples.shape == (3, 5, height, width, channels)
    assert samples.dtype == np.uint8
    evenly = learner._task._data.test[[0, 6, 12, 17, 23]].permute(0, 2, 3, 1)
    for sharp in samples[:2]:
        np.testing.assert_array_equal(sharp, evenly)
    # blur along x: differences between neighbours shrink
    assert np.diff(samples[2].astype(float), axis=2).std() < 0.6 * np.diff(samples[0].astype(float), axis=2).std()


def test_a_share_of_a_local_training_is_so_many_of_its_steps(learner_class, new, participant):
    """Half of four steps is a local training of two, to the bit; what it sends or costs does not depend on it."""
    four, two = new(steps=4), new(steps=2)
    if learner_class.name in {"fedco", "fedefm"}:
        assert four.cost(0).steps == 0, "a local training is whole: its keys are of its steps, or it exchanges"
        return
    assert (four.cost(0).steps, two.cost(0).steps) == (4, 2)
    participants = [participant(0, 0, work_share=0.5), participant(0, 1), participant(0, 2, work_share=0.01)]
    half, whole, least = four.train(participants)
    assert equal(half.state, two.train([replace(participants[0], work_share=1.0)])[0].state)
    assert equal(whole.state, four.train([participants[1]])[0].state)
    assert not equal(whole.state, two.train([participants[1]])[0].state)
    assert equal(least.state, new(steps=1).train([replace(participants[2], work_share=1.0)])[0].state)
