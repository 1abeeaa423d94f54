"""FedProx, SCAFFOLD, FedNova, MOON, FedDyn: two rounds of a linear model by hand in float64; limits that are FedAvg."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from device_checks import learner_class
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy

from learners.encoders import Classifier
from learners.mathematics.weights import count_gradients
from learners.moon import model_contrast
from vnetsim.errors import InputError
from vnetsim.experiment import BlurSettings

Model = dict[str, Tensor]
LR, MOMENTUM, DECAY, STEPS, SILOS = 0.3, 0.9, 5e-4, 4, 6
ROUNDS = [[(0, 1.0), (1, 1.0), (2, 0.5)], [(1, 0.25), (2, 1.0), (3, 1.0)]]
"""Silo and share of the local steps of each participant: 4, 4 and 2 steps, then 1, 4 and 4."""
SETTINGS: dict[str, dict[str, float]] = {
    "fedavg": {}, "fedprox": {"mu": 0.4}, "scaffold": {}, "fednova": {}, "moon": {"mu": 2.0}, "feddyn": {"alpha": 0.3},
}  # fmt: skip


@pytest.fixture
def new(tiny, new_context, monkeypatch):  # noqa: ARG001
    """Return a maker of learners with a linear network on sharp images, silo i with 4 + 2 i of them, all in a batch."""
    monkeypatch.setattr(
        "learners.tasks.classification.create_classifier",
        lambda *_, seed, **__: (torch.manual_seed(seed), Classifier(nn.Conv2d(3, 4, 1, bias=False), 4, 3))[1],
    )

    def make(name: str, context: Mapping[str, Any] | None = None, /, **settings: Any) -> Any:
        cls = learner_class(f"{name}-classification")
        quick = {"batch": 64, "steps": STEPS, "lr": LR, "engine": "sequential"}
        learner = cls.create(
            new_context(blur=BlurSettings(fraction=0.0), **(context or {})), cls.Settings(**quick | settings)
        )
        silos = learner._task.silos
        silos._indices = [rows[: 4 + 2 * i] for i, rows in enumerate(silos._indices)]
        return learner

    return make


@pytest.fixture
def play(participant):
    """Return a player of rounds; it returns the last round's result."""

    def played(learner: Any, rounds: Sequence[Sequence[tuple[int, float]]] = ROUNDS) -> Any:
        found = None
        for number, silos in enumerate(rounds):
            who = [participant(number, silo, work_share=share) for silo, share in silos]
            found = learner.aggregate(learner.train(who))
        return found

    return played


def model_of(learner: Any) -> Model:
    return {name.removeprefix("model."): t for name, t in learner.state_dict().items() if name.startswith("model.")}


def data_of(learner: Any) -> list[tuple[Tensor, Tensor]]:
    """Return each silo's images as means over their pixels, normalised, and their labels."""
    task, found = learner._task, []
    for rows in task.silos._indices:
        means = task.silos.pool[rows].double().mean(dim=(2, 3)) / 255
        mean, std = (torch.tensor(one, dtype=torch.float64) for one in (task.mean, task.std))
        found.append(((means - mean) / std, task._labels[rows]))
    return found


def features(w: Model, x: Tensor) -> Tensor:
    return x @ w["trunk.weight"].squeeze().T


def descend(x: Model, data: tuple[Tensor, Tensor], steps: int, rate: float, more: Callable[[Model], Any]) -> Model:
    """Return a model after SGD with momentum and weight decay on the cross-entropy plus ``more``."""
    w, velocity = {n: t.clone().requires_grad_() for n, t in x.items()}, dict.fromkeys(x, 0.0)
    for _ in range(steps):
        logits = features(w, data[0]) @ w["head.weight"].T + w["head.bias"]
        value = cross_entropy(logits, data[1]) + more(w)
        for (name, tensor), gradient in zip(w.items(), torch.autograd.grad(value, [*w.values()]), strict=True):
            velocity[name] = MOMENTUM * velocity[name] + gradient + DECAY * tensor.detach()
            tensor.data -= rate * velocity[name]
    return {n: t.detach() for n, t in w.items()}


def penalty(method: str, x: Model, server: Model, own: Model | None, images: Tensor, w: Model) -> Any:
    """Return what a method adds to the loss of a step; ``own`` is what the silo kept, None before its first."""
    zero = {n: torch.zeros_like(t) for n, t in x.items()}
    far, linear = sum((w[n] - x[n]).square().sum() for n in w), own or zero
    if method == "fedprox":
        return 0.4 / 2 * far
    if method == "scaffold":
        return sum(((server[n] - linear[n]) * w[n]).sum() for n in w)
    if method == "feddyn":
        return 0.3 / 2 * far - sum((linear[n] * w[n]).sum() for n in w)
    if method == "moon" and own:
        z = features(w, images)
        near, previous = (torch.exp(cosine_similarity(z, features(one, images)) / 0.5) for one in (x, own))
        return -2.0 * torch.log(near / (near + previous)).mean()
    return 0.0 * far


def by_hand(method: str, x: Model, data: list[tuple[Tensor, Tensor]]) -> Model:
    """Return the model after ``ROUNDS``, by the equations of the method's paper."""
    zero = {n: torch.zeros_like(t) for n, t in x.items()}
    own: dict[int, Model] = {}
    server = dict(zero)
    for number, silos in enumerate(ROUNDS):
        rate, uploads, changes = LR * (1 + math.cos(math.pi * number / 4)) / 2, [], []
        taus = [round(STEPS * share) for _, share in silos]
        for (silo, _), tau in zip(silos, taus, strict=True):
            mine = own.get(silo, zero)

            more = partial(penalty, method, x, server, own.get(silo), data[silo][0])
            w = descend(x, data[silo], tau, rate, more)
            uploads.append(w)
            # the sum over steps of how often a gradient is still in the velocity
            a = sum((1 - MOMENTUM ** (tau - s)) / (1 - MOMENTUM) for s in range(tau))
            if method == "scaffold":
                own[silo] = {n: mine[n] - server[n] + (x[n] - w[n]) / (a * rate) for n in x}
                changes.append({n: own[silo][n] - mine[n] for n in x})
            elif method == "feddyn":
                own[silo] = {n: mine[n] - 0.3 * (w[n] - x[n]) for n in x}
            elif method == "moon":
                own[silo] = w
        sizes = [len(data[silo][1]) for silo, _ in silos]
        equal = method in ("scaffold", "feddyn")
        p = [1 / 3 if equal else size / sum(sizes) for size in sizes]
        mean = {n: sum(q * w[n] for q, w in zip(p, uploads, strict=True)) for n in x}
        if method == "scaffold":
            server = {n: server[n] + sum(one[n] for one in changes) / SILOS for n in x}
        elif method == "feddyn":
            server = {n: server[n] - 0.3 / SILOS * sum(w[n] - x[n] for w in uploads) for n in x}
            mean = {n: mean[n] - server[n] / 0.3 for n in x}
        elif method == "fednova":
            norms = [sum((1 - MOMENTUM ** (tau - s)) / (1 - MOMENTUM) for s in range(tau)) for tau in taus]
            tau_eff = sum(q * a for q, a in zip(p, norms, strict=True))
            mean = {
                n: x[n] - tau_eff * sum(q * (x[n] - w[n]) / a for q, w, a in zip(p, uploads, norms, strict=True))
                for n in x
            }
        x = mean
    return x


@pytest.mark.parametrize("method", sorted(SETTINGS))
def test_two_rounds_are_what_the_equations_say(method, new, play):
    learner = new(method, **SETTINGS[method])
    start, data = {n: t.double() for n, t in model_of(learner).items()}, data_of(learner)
    result = play(learner)
    expected, found = by_hand(method, start, data), model_of(learner)
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name].double(), tensor, rtol=2e-5, atol=2e-6)
    # what is reported is the cross-entropy, whatever is descended
    assert 0 < result.metrics["loss"] < 1.2
    keeps = method in ("scaffold", "moon", "feddyn")
    assert result.metrics.get("without_state") == (pytest.approx(1 / 3) if keeps else None)


@pytest.mark.parametrize(
    ("method", "settings"),
    [("fedprox", {"mu": 0.0}), ("moon", {"mu": 0.0}), ("fednova", {}), ("scaffold", {"weights": "images"})],
)
def test_at_its_limit_a_method_is_fedavg_to_the_bit(method, settings, new, play, participant):
    fedavg, learner = new("fedavg"), new(method, **settings)
    for learned in (fedavg, learner):
        play(learned, [[(silo, 1.0) for silo, _ in ROUNDS[0]]])
    if method == "scaffold":  # its control variates, kept at 0
        state = learner.state_dict()
        learner.load_state_dict({n: torch.zeros_like(t) if "control." in n else t for n, t in state.items()})
    for learned in (fedavg, learner):
        learned.aggregate(learned.train([participant(1, silo) for silo, _ in ROUNDS[1]]))
    assert all(torch.equal(model_of(fedavg)[n], t) for n, t in model_of(learner).items())


def test_scaffold_on_steering_is_fedavg_by_sgd_until_control_variates_act(new_steering, participant):
    """In its first round; then silos keep means of gradients, and the server's is their sum over all silos."""
    first, second = ([participant(number, silo) for silo in (0, 2)] for number in range(2))
    fedavg = new_steering(learner_class("fedavg-steering"), optimizer="sgd", lr=0.01)
    learner = new_steering(learner_class("scaffold-steering"), lr=0.01)
    start = model_of(learner)
    for one in (fedavg, learner):
        uploads = one.train(first)
        one.aggregate(uploads)
    assert all(torch.equal(model_of(fedavg)[n], t) for n, t in model_of(learner).items())
    state = learner.state_dict()
    for name in [name for name, _ in learner._task.network.named_parameters()]:
        own = [state[f"silo.{update.participant.silo}.own.control.{name}"] for update in uploads]
        for c, update in zip(own, uploads, strict=True):
            torch.testing.assert_close(c, (start[name] - update.state[name]) / (2 * 0.01))
        torch.testing.assert_close(state[f"control.{name}"], sum(own) / SILOS)
    for one in (fedavg, learner):
        one.aggregate(one.train(second))
    assert not all(torch.equal(model_of(fedavg)[n], t) for n, t in model_of(learner).items())


def test_a_small_alpha_makes_local_training_fedavgs_and_leaves_the_sum_of_changes(new, participant):
    who = [participant(0, silo) for silo in range(3)]
    fedavg, learner = new("fedavg"), new("feddyn", alpha=1e-9)
    start = model_of(learner)
    expected, uploads = fedavg.train(who), learner.train(who)
    for one, other in zip(expected, uploads, strict=True):
        assert all(torch.equal(one.state[n], other.state[n]) for n in start)
    learner.aggregate(uploads)
    for name, x in start.items():
        changes = [one.state[name].double() - x for one in uploads]
        mean = sum(one.state[name].double() for one in uploads) / 3
        torch.testing.assert_close(model_of(learner)[name].double(), mean + sum(changes) / SILOS, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("method", ["scaffold", "moon", "feddyn"])
def test_state_of_silos_and_server_goes_on_from_a_checkpoint(method, new, play, participant):
    learner, other = new(method), new(method)
    play(learner)
    other.load_state_dict(learner.state_dict())
    found = []
    for one in (learner, other):
        one.aggregate(one.train([participant(2, silo) for silo in (1, 3, 5)]))
        found.append(one.state_dict())
    assert found[0].keys() == found[1].keys()
    assert any(name.startswith("silo.") for name in found[0])
    assert all(torch.equal(tensor, found[1][name]) for name, tensor in found[0].items())


@pytest.mark.parametrize(
    ("method", "state"), [("scaffold", "the server's control variate"), ("feddyn", "the server's h")]
)
def test_state_of_one_server_is_refused_with_several(new, method, state):
    with pytest.raises(InputError, match=f"topology.kind: {state} belongs to one server"):
        new(method, {"aggregators": ("a", "b", "cloud")})


@pytest.mark.parametrize(
    ("method", "of_silo", "of_server"), [("scaffold", "control.", "control."), ("feddyn", "gradient.", "h.")]
)
def test_server_and_silos_agree_if_a_silo_comes_twice_in_a_round(new, play, method, of_silo, of_server):
    """c = 1/N sum c_i, and h = 1/N sum g_k (both count the change of the upload that the silo keeps)."""
    learner = new(method, momentum=0.0)
    play(learner, [[(0, 1.0), (0, 0.5), (1, 1.0)], [(1, 1.0), (0, 1.0)]])
    state = learner.state_dict()
    names = [name.removeprefix(of_server) for name in state if name.startswith(of_server)]
    assert names
    for name in names:
        own = [tensor for key, tensor in state.items() if key.startswith("silo.") and key.endswith(of_silo + name)]
        torch.testing.assert_close(state[of_server + name], sum(own) / SILOS, rtol=1e-4, atol=1e-6)


def test_an_old_upload_counts_by_its_change(new, play, participant):
    """An upload of one step from an older model moves FedNova's model by its own change, not back to that model."""
    stale = new("fednova", {"max_staleness": 1})
    play(stale, ROUNDS[:1])
    before = model_of(stale)
    old = participant(1, 3, base_round=0, work_share=1 / STEPS)
    who = [participant(1, 0), participant(1, 1)]
    base = {name: t.double() for name, t in stale._models[old.base].items()}
    uploads = stale.train([*who, old])
    stale.aggregate(uploads)
    p = np.array([4.0, 6.0, 10.0]) / 20
    a = np.array([count_gradients(n, MOMENTUM) for n in (STEPS, STEPS, 1)])
    bases = [{name: t.double() for name, t in before.items()}] * 2 + [base]
    for name in ("trunk.weight", "head.weight"):
        steps = [(x[name] - one.state[name].double()) / n for x, one, n in zip(bases, uploads, a, strict=True)]
        expected = before[name].double() - (p * a).sum() * sum(w * d for w, d in zip(p, steps, strict=True))
        torch.testing.assert_close(model_of(stale)[name].double(), expected, rtol=1e-4, atol=1e-5)


def test_moon_keeps_models_in_rounds_too_large_for_memory(new, play, monkeypatch):
    monkeypatch.setattr("learners.local_training.HELD_BYTES", 1)
    learner = new("moon")
    play(learner)
    assert any(name.startswith("silo.") for name in learner.state_dict())


def test_payload_and_work(new):
    fedavg = new("fedavg").cost(0)
    for method in SETTINGS:
        cost = new(method).cost(0)
        copies = 2 if method == "scaffold" else 1
        assert cost.download_bytes == cost.upload_bytes == copies * fedavg.download_bytes
        assert cost.work_flop == pytest.approx(fedavg.work_flop * (5 / 3 if method == "moon" else 1))
        timed = cost.of(1_000_000, 1e6)  # another model on the clock
        assert (timed.download_bytes, timed.upload_bytes) == (copies * 1_000_000,) * 2


def test_parts_of_the_equations():
    assert [count_gradients(steps, 0.0) for steps in (1, 5)] == [1, 5]
    assert count_gradients(3, 0.5) == pytest.approx(1 + 1.5 + 1.75)
    z = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    assert float(model_contrast(z, z, z, 0.5)) == pytest.approx(math.log(2))
    assert float(model_contrast(z, z, -z, 0.5)) == pytest.approx(math.log(1 + math.exp(-4)))
