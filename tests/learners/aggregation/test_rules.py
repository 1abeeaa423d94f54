"""Every aggregation rule against a few lines that compute it once more, and what each of its settings changes."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from learners.aggregation.asynchronous import AflDelay, FedAsync, FedBuff
from learners.aggregation.means import FedAdam, FedAvgM, Sync
from learners.mathematics.weights import weighted_mean
from vnetsim.learning import ModelKey, Participant
from vnetsim.learning.aggregation import AGGREGATIONS, NextModel, RoundUploads, Upload

State = dict[str, Tensor]
ALL = [Sync, FedAsync, FedBuff, AflDelay, FedAvgM, FedAdam]
EXACT = {"rtol": 0, "atol": 1e-12}


def state(seed: int) -> State:
    """Parameters, a running variance and a counter, as a network with BatchNorm has them; in double precision."""
    generator = torch.Generator().manual_seed(seed)
    return {
        "weight": torch.randn(3, 2, generator=generator, dtype=torch.float64),
        "running_var": torch.rand(2, generator=generator, dtype=torch.float64) + 0.1,
        "num_batches_tracked": torch.tensor(seed),
    }


MODEL = state(0)
WEIGHTS = [0.5, 0.2, 0.3]


def uploads(
    staleness: Sequence[int] = (0, 2, 7),
    weights: Sequence[float] = WEIGHTS,
    memory: Any = None,
    model: State = MODEL,
    first: int = 1,
) -> RoundUploads:
    """Upload n has the state ``first + n``, and started from the model 100 + n."""
    given = [
        Upload(state=state(first + n), base=state(100 + n), weight=weight, staleness=tau, participant=Participant(
            round=0, base=ModelKey("single", 0), rsu_id="r", vehicle_id="v", silo=n, speed_mps=9.0, level_px=1.0,
            train_s=1.5 + n, upload_s=0.5 + n))
        for n, (tau, weight) in enumerate(zip(staleness, weights, strict=True))
    ]  # fmt: skip
    return RoundUploads(
        model=model,
        uploads=given,
        parameters=frozenset({"weight"}),
        memory=memory or {},
        mean=lambda: weighted_mean([one.state for one in given], list(weights)),
    )


def equal(found: State, expected: State) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, **EXACT)


@pytest.mark.parametrize(
    ("function", "weights"),
    [
        ("constant", {0: 1, 6: 1, 7: 1, 100: 1}),
        ("hinge", {0: 1, 4: 1, 5: 1 / 11, 6: 1 / 21, 14: 1 / 101}),
        ("polynomial", {0: 1, 3: 0.5, 8: 1 / 3, 99: 0.1}),
    ],
)
def test_staleness_functions_at_their_knees(function, weights):
    for tau, expected in weights.items():
        assert FedAsync(staleness=function).staleness_weight(tau) == pytest.approx(expected, rel=1e-12)


def test_sync_is_the_mean_to_the_bit():
    given = uploads()
    found = Sync().aggregate(given)
    assert all(torch.equal(found.state[name], tensor) for name, tensor in given.mean().items())
    assert list(found.shares) == WEIGHTS


def test_fedasync_mixes_upload_by_upload():
    w, var, count = MODEL["weight"], MODEL["running_var"], 0.0
    for n, tau in enumerate((0, 2, 7)):
        a, one = 0.7 / math.sqrt(1 + tau), state(1 + n)
        w, var = (1 - a) * w + a * one["weight"], (1 - a) * var + a * one["running_var"]
        count = round((1 - a) * count + a * (1 + n))  # whole after every upload
    found = FedAsync(mixing=0.7).aggregate(uploads())
    equal(found.state, {"weight": w, "running_var": var, "num_batches_tracked": torch.tensor(int(count))})
    a = [0.7, 0.7 / math.sqrt(3), 0.7 / math.sqrt(8)]
    parts = [a[0] * (1 - a[1]) * (1 - a[2]), a[1] * (1 - a[2]), a[2]]
    assert found.shares == pytest.approx([part / sum(parts) for part in parts], rel=1e-12)
    assert FedAsync(mixing=0.0).aggregate(uploads()).shares == [0, 0, 0], "the model is kept"


def test_fedbuff_adds_the_mean_change():
    s = [1.0, 1 / math.sqrt(3), 1 / math.sqrt(8)]
    changes = [state(1 + n)["weight"] - state(100 + n)["weight"] for n in range(3)]
    moved = 0.8 * sum(p * scale * change for p, scale, change in zip(WEIGHTS, s, changes, strict=True))
    found = FedBuff(learning_rate=0.8).aggregate(uploads())
    torch.testing.assert_close(found.state["weight"], MODEL["weight"] + moved, **EXACT)
    # statistics: a mixture with the weighted mean, so that a variance stays one
    share = 0.8 * sum(p * scale for p, scale in zip(WEIGHTS, s, strict=True))
    mean = sum(p * state(1 + n)["running_var"] for n, p in enumerate(WEIGHTS))
    torch.testing.assert_close(found.state["running_var"], (1 - share) * MODEL["running_var"] + share * mean, **EXACT)
    assert not found.memory
    beyond = FedBuff(learning_rate=2.0).aggregate(uploads((0, 0, 0)))
    torch.testing.assert_close(beyond.state["running_var"], mean, **EXACT)


def test_fedbuff_across_rounds_is_one_buffer_of_them_all():
    whole = FedBuff().aggregate(uploads((1, 2, 3, 4), [0.25] * 4))
    rule, memory = FedBuff(buffer=4), None
    for n, tau in enumerate((1, 2, 3, 4)):
        one = uploads((tau,), [1.0], memory, first=1 + n)
        one = dataclasses.replace(one, uploads=[dataclasses.replace(one.uploads[0], base=state(100 + n))])
        found = rule.aggregate(one)
        assert (not found.state) == (n < 3)
        memory = found.memory
    equal(found.state, whole.state)
    assert not memory


def test_afl_delay():
    w, var = MODEL["weight"], MODEL["running_var"]
    for n in range(3):
        one, a = state(1 + n), 0.7 * 0.9 ** (0.5 + n) * 0.9 ** (n - 0.5)
        w = (1 - a) * w + a * one["weight"]
        var = (1 - a) * var + a * one["running_var"]
    found = AflDelay(mixing=0.7).aggregate(uploads())
    torch.testing.assert_close(found.state["weight"], w, **EXACT)
    torch.testing.assert_close(found.state["running_var"], var, **EXACT)
    upload = uploads().uploads[0]
    quick = dataclasses.replace(upload, participant=dataclasses.replace(upload.participant, train_s=0.5))
    assert AflDelay(mixing=1.0).share(quick) == 1, "and not above"


def test_fedavgm_and_fedadam_over_three_rounds():
    momentum, adam = FedAvgM(learning_rate=0.7, momentum=0.8), FedAdam(learning_rate=0.3, tau=0.02)
    w_m = w_a = MODEL["weight"]
    v = m = torch.zeros(3, 2, dtype=torch.float64)
    second = torch.full_like(m, 0.02**2)
    model_m, model_a, memory_m, memory_a = dict(MODEL), dict(MODEL), None, None
    for r in range(3):
        mean = sum(p * state(10 * r + 1 + n)["weight"] for n, p in enumerate(WEIGHTS))
        v = 0.8 * v + (w_m - mean)
        w_m = w_m - 0.7 * v
        m, second = 0.9 * m + 0.1 * (w_a - mean), 0.99 * second + 0.01 * (w_a - mean) ** 2
        w_a = w_a - 0.3 * m / (second.sqrt() + 0.02)
        done = momentum.aggregate(uploads(memory=memory_m, model=model_m, first=10 * r + 1))
        model_m, memory_m = dict(done.state), done.memory
        done = adam.aggregate(uploads(memory=memory_a, model=model_a, first=10 * r + 1))
        model_a, memory_a = dict(done.state), done.memory
    torch.testing.assert_close(model_m["weight"], w_m, **EXACT)
    torch.testing.assert_close(model_a["weight"], w_a, **EXACT)
    # statistics are averaged, and have no momentum
    mean = sum(p * state(21 + n)["running_var"] for n, p in enumerate(WEIGHTS))
    torch.testing.assert_close(model_m["running_var"], mean, **EXACT)
    assert {name.rpartition(".")[2] for name in (*memory_m, *memory_a)} == {"weight"}


@pytest.mark.parametrize("kind", ALL)
def test_what_holds_for_all(kind):
    given = uploads()
    before = {name: tensor.clone() for name, tensor in MODEL.items()}
    found: NextModel = kind().aggregate(given)
    assert sum(found.shares) == pytest.approx(1, abs=1e-12)
    assert min(found.shares) > 0
    assert all(torch.equal(MODEL[name], tensor) for name, tensor in before.items()), "the old model stays"
    for name, tensor in MODEL.items():
        assert (found.state[name].dtype, found.state[name].shape) == (tensor.dtype, tensor.shape)
    assert bool((found.state["running_var"] > 0).all())
    again = kind().aggregate(uploads())
    assert all(torch.equal(found.state[name], again.state[name]) for name in MODEL)
    # uploads that equal the model, which they started from, leave it as it is
    kept = [dataclasses.replace(one, state=MODEL, base=MODEL) for one in given.uploads]
    same = dataclasses.replace(given, uploads=kept, mean=lambda: weighted_mean([MODEL] * 3, WEIGHTS))
    for name, tensor in kind().aggregate(same).state.items():
        assert torch.equal(tensor, MODEL[name]), name


def test_the_entry_points_are_these():
    assert {AGGREGATIONS.find(name) for name in AGGREGATIONS.names()} >= set(ALL)
    assert all(kind.name in AGGREGATIONS.names() and kind.equations and kind.source for kind in ALL)
