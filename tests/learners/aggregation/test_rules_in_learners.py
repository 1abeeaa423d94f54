"""Aggregation rules in learners: what they are told and remember, who refuses them, what is nonsense."""

import dataclasses
from collections.abc import Callable
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from learner_checks import equal, resumed
from safetensors.torch import load, save

from learners.aggregation.asynchronous import FedAsync, FedBuff
from learners.aggregation.means import Sync
from learners.cdl import Cdl
from learners.classification_fedavg import ClassificationFedAvg
from learners.fedavg import Discard, FedAvg
from learners.fedco import FedCo
from learners.fedefm import FedEFM
from learners.flsimco import FLSimCo
from learners.mathematics.robust import AveragingSettings
from learners.state.models import Models
from learners.state.rules import rule_of, shares_of
from learners.state.server import Server
from learners.steering_baselines import DecentralisedSgd, FedAvgSteering
from vnetsim.errors import InputError, RunError
from vnetsim.experiment import ExchangeSettings
from vnetsim.experiment.camera import Camera
from vnetsim.learning import AGGREGATOR, ModelKey, Participant, Update
from vnetsim.learning.aggregation import AGGREGATIONS, NextModel, RoundUploads

MakeParticipant = Callable[..., Participant]
NO_FLOWER = pytest.mark.skipif(find_spec("flwr") is None, reason="flwr is not installed")
RULES = [pytest.param(name, marks=NO_FLOWER if name == "flower" else ()) for name in AGGREGATIONS.names()]
CHOSEN = {"fedbuff": {"buffer": 3}, "flower": {"strategy": "FedAdam"}}
QUICK = {"batch": 4, "steps": 1}
LEARNERS = [FedAvg, Discard, FLSimCo, FedCo, FedEFM, Cdl, DecentralisedSgd, FedAvgSteering]


def timed(participant: Participant, **seconds: float) -> Participant:
    return dataclasses.replace(participant, **{"train_s": 2.0, "upload_s": 1.5, **seconds})


def play(learner: Any, participant: MakeParticipant, rounds: range) -> None:
    """Rounds of two uploads, the second of which is stale where that can be."""
    for r in rounds:
        who = [timed(participant(r, 2 * r)), timed(participant(r, 2 * r + 1, base_round=max(0, r - 2)), train_s=4.0)]
        learner.aggregate(learner.train(who))


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("rule", RULES)
def test_a_resumed_run_has_the_bits_of_the_uninterrupted_one(rule, new_context, participant):
    settings = AGGREGATIONS.find(rule)(**CHOSEN.get(rule, {}))

    def new() -> Any:
        context = new_context(max_staleness=2, rule=rule, aggregation=settings)
        return ClassificationFedAvg.create(context, ClassificationFedAvg.Settings(**QUICK))

    saved = resumed(new, lambda learner, rounds: play(learner, participant, rounds), rounds=5, stop=3)
    remembers = any(name.startswith("aggregation.") for name in saved)
    assert remembers == (rule in {"fedbuff", "fedavgm", "fedadam", "flower"})


@pytest.mark.usefixtures("tiny", "on_tiny_roads")
@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        *(
            pytest.param(ClassificationFedAvg, *rule.values, marks=rule.marks)
            for rule in RULES
            if rule.values != ("sync",)
        ),
        *(pytest.param(kind, "fedbuff", marks=pytest.mark.all_only) for kind in LEARNERS),
    ],
)
def test_every_averaging_learner_takes_every_rule(kind, rule, new_context, participant):
    found = []
    for name in ("sync", rule):
        context = new_context(rule=name, exchange=ExchangeSettings(topology="star"))
        learner = kind.create(context, kind.Settings(**QUICK))
        updates = learner.train([timed(participant(0, i), train_s=1.0 + i) for i in range(2)])
        done = learner.aggregate(updates)
        assert sum(done.weights) == pytest.approx(1, abs=1e-9)
        state = learner.state_dict()
        assert all(bool(tensor.isfinite().all()) for tensor in state.values())
        found.append({name: tensor for name, tensor in state.items() if name.startswith("model.")})
    # fresh uploads of one round: FedBuff's mean change is FedAvg's, and FedAvgM's first step
    alike = {name for name in found[0] if torch.allclose(found[0][name], found[1][name], atol=1e-6)}
    assert (alike == found[0].keys()) == (rule in {"fedbuff", "fedavgm", "flower"})


@pytest.mark.usefixtures("tiny")
def test_a_rule_is_told_weights_staleness_times_bases_and_parameters(new_context, participant, monkeypatch):
    seen: list[RoundUploads] = []

    def aggregate(_: FedAsync, given: RoundUploads) -> NextModel:
        """Keep the model, but in round 1, where an equal one is made of it."""
        seen.append(given)
        state = given.uploads[0].state if len(seen) == 2 else {}
        return NextModel(state={name: given.model[name] for name in state}, shares=[0.0, 0.0])

    monkeypatch.setattr(FedAsync, "aggregate", aggregate)
    learner = FLSimCo.create(new_context(max_staleness=3, rule="fedasync"), FLSimCo.Settings(**QUICK))
    play(learner, participant, range(2))
    before = {name: tensor.clone() for name, tensor in learner.state_dict().items()}
    who = [
        timed(participant(2, 0, speed_mps=10.0), download_s=0.5),
        timed(participant(2, 1, base_round=0, speed_mps=20.0), train_s=7.0, upload_s=3.0),
    ]
    learner.aggregate(learner.train(who))
    given = seen[-1]
    assert [one.staleness for one in given.uploads] == [0, 1], "two rounds, and one new version of the model"
    assert [one.participant for one in given.uploads] == who
    levels = [Camera().level_px(speed) for speed in (10.0, 20.0)]
    assert [one.weight for one in given.uploads] == pytest.approx([levels[1] / sum(levels), levels[0] / sum(levels)])
    for one, name in zip(given.uploads, ("model", "snapshot.0"), strict=True):
        assert all(torch.equal(tensor, before[f"{name}.{key}"]) for key, tensor in one.base.items())
    others = given.model.keys() - given.parameters
    assert {name.rpartition(".")[2] for name in others} == {"running_mean", "running_var", "num_batches_tracked"}
    # no tensor and no shares: the model is kept
    assert all(torch.equal(learner.state_dict()[name], before[name]) for name in before if name.startswith("model."))


@pytest.mark.usefixtures("tiny")
def test_an_upload_of_weight_0_is_not_mixed_in(new_context, participant):
    learners = [Discard.create(new_context(rule="fedasync"), Discard.Settings(**QUICK)) for _ in range(2)]
    slow, fast = participant(0, 0, speed_mps=20.0), participant(0, 1, speed_mps=40.0)
    done = learners[0].aggregate(learners[0].train([slow, fast]))
    assert list(done.weights) == [1, 0]
    learners[1].aggregate(learners[1].train([slow]))
    assert equal(learners[0].state_dict(), learners[1].state_dict())
    before = learners[0].state_dict()
    late = dataclasses.replace(fast, round=1, base=ModelKey(AGGREGATOR, 1))
    done = learners[0].aggregate(learners[0].train([late]))
    assert list(done.weights) == [0]
    now = learners[0].state_dict()
    assert all(torch.equal(now[name], before[name]) for name in before.keys() - {"round", "versions"})
    assert now["versions"].tolist() == [0, 1, 1], "no change"


@pytest.mark.usefixtures("tiny")
def test_medians_go_with_rules_of_the_mean_alone(new_context, participant):
    settings = FedAvg.Settings(**QUICK, aggregation="median")
    with pytest.raises(InputError, match=r"learning\.aggregation: 'median' .* 'fedasync' takes them one by one"):
        FedAvg.create(new_context(rule="fedasync"), settings)
    learner = FedAvg.create(new_context(rule="fedavgm"), settings)
    play(learner, participant, range(1))


@pytest.mark.parametrize(
    ("rule", "step"),
    [
        # what becomes of w, given the clipped change d of an upload from the model v, which is tau versions old
        (Sync(), lambda w, v, d, tau: v + d),  # noqa: ARG005 - one signature
        (FedAsync(mixing=1.0), lambda w, v, d, tau: w + (v + d - w) / (1 + tau) ** 0.5),
        (FedBuff(), lambda w, v, d, tau: w + d / (1 + tau) ** 0.5),  # noqa: ARG005
    ],
)  # fmt: skip
def test_stale_uploads_are_clipped_around_the_model_they_started_from(rule, step):
    """Rounds of one upload each, against a line of arithmetic; some come from nobody, and make no version."""
    draw = np.random.default_rng(4)
    server = server_of(rule)
    models, versions = [0.0], [0]
    for r in range(30):
        b = int(draw.integers(max(0, r - 5), r + 1))
        moved = float(draw.normal(0, 2))
        if r % 4 == 3:  # an upload of weight 0
            server.models.add(server.fold([]).state)
            models, versions = [*models, models[-1]], [*versions, versions[-1]]
            continue
        server.models.add(server.fold([upload_of(r, b, models[b] + moved)]).state)
        models.append(step(models[-1], models[b], float(np.clip(moved, -1, 1)), versions[-1] - versions[b]))
        versions.append(versions[-1] + 1)
        assert float(server.models.newest()["w"]) == pytest.approx(models[-1], rel=1e-9)


def test_fedbuff_counts_the_models_it_made_and_not_the_uploads_it_gathered():
    """With a buffer of three, rounds of one upload, and a server restored from its state in between."""
    draw = np.random.default_rng(5)
    rule = FedBuff(buffer=3)
    server = server_of(rule)
    models, versions, gathered = [0.0], [0], []
    for r in range(40):
        b = int(draw.integers(max(0, r - 5), r + 1))
        moved = float(draw.normal(0, 2))
        server.models.add(server.fold([upload_of(r, b, models[b] + moved)]).state)
        gathered.append(float(np.clip(moved, -1, 1)) / (1 + versions[-1] - versions[b]) ** 0.5)
        full = len(gathered) == 3
        models.append(models[-1] + np.mean(gathered) if full else models[-1])
        versions.append(versions[-1] + full)
        gathered = [] if full else gathered
        assert float(server.models.newest()["w"]) == pytest.approx(models[-1], rel=1e-9)
        saved = load(save(server.state_dict()))
        server = server_of(rule)
        server.load_state_dict(saved)
    without = {name: tensor for name, tensor in saved.items() if name != "versions"}
    with pytest.raises(KeyError, match="versions"):
        server.load_state_dict(without)


def test_what_a_rule_remembers_twice_is_saved_twice():
    server = server_of(Sync())
    made = NextModel(state={}, shares=[1.0], memory=dict.fromkeys("ab", torch.ones(1)))
    server.rule = SimpleNamespace(name="mine", aggregate=lambda _: made)  # type: ignore[assignment]
    server.fold([upload_of(0, 0, 1.0)])
    saved = load(save(server.state_dict()))  # which takes no two names of one memory
    assert {name for name in saved if name.startswith("aggregation.")} == {"aggregation.a", "aggregation.b"}


def server_of(rule: Any) -> Server:
    """A server of a model of one number, whose uploads are clipped at 1."""
    models = Models({"w": torch.zeros((), dtype=torch.float64)}, max_staleness=5)
    return Server(models, AveragingSettings(clip_norm=1.0), rule, parameters=["w"])


def upload_of(round_: int, base_round: int, value: float) -> Update:
    who = Participant(
        round=round_,
        base=ModelKey(AGGREGATOR, base_round),
        vehicle_id="v",
        rsu_id="r",
        silo=0,
        speed_mps=1.0,
        level_px=0.0,
    )
    state = {"w": torch.tensor(value, dtype=torch.float64)}
    return Update(participant=who, state=state, loss=0.0, finite=True, metrics={})


@pytest.mark.usefixtures("on_tiny_roads")
def test_neighbours_that_mix_refuse_a_rule(new_context):
    context = new_context(rule="fedavgm", exchange=ExchangeSettings(topology="ring"))
    with pytest.raises(InputError, match="'fedavgm' is for an RSU that averages, and the neighbours of dsgd mix"):
        DecentralisedSgd.create(context, DecentralisedSgd.Settings(**QUICK))
    star = new_context(rule="fedavgm", exchange=ExchangeSettings(topology="star"))
    DecentralisedSgd.create(star, DecentralisedSgd.Settings(**QUICK))


NONSENSE: list[tuple[Callable[[RoundUploads], Any], str]] = [
    (lambda _: {}, "it returned a dict, expected a NextModel"),
    (lambda _: 1 / 0, "ZeroDivisionError: division by zero"),
    (
        lambda given: NextModel(
            state={**given.model, "head.bias": given.model["head.bias"] * torch.nan}, shares=[1, 1]
        ),
        "'head.bias' of its model has values that are not finite",
    ),
    (
        lambda given: NextModel(state={n: t for n, t in given.model.items() if n != "head.bias"}, shares=[1, 1]),
        "its model lacks tensor 'head.bias'",
    ),
    (
        lambda given: NextModel(state={**given.model, "head.bias": torch.zeros(7)}, shares=[1, 1]),
        r"'head.bias' of its model is torch.float32 of shape \(7,\), expected torch.float32 of shape \(3,\)",
    ),
    (lambda given: NextModel(state=given.model, shares=[1]), "it returned 1 shares for 2 uploads"),
    (lambda given: NextModel(state=given.model, shares=[1, -1]), "a share of an upload is -1"),
    (
        lambda given: NextModel(state=given.model, shares=[1, 1], memory={"m": torch.tensor(torch.inf)}),
        "'m' of its memory has values that are not finite",
    ),
]


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(("returns", "message"), NONSENSE)
def test_nonsense_is_an_error_that_names_the_rule(returns, message, new_context, participant, monkeypatch):
    monkeypatch.setattr(FedBuff, "aggregate", lambda _, given: returns(given))
    learner = ClassificationFedAvg.create(new_context(rule="fedbuff"), ClassificationFedAvg.Settings(**QUICK))
    with pytest.raises(RunError, match=f"aggregation rule 'fedbuff' failed in aggregate.*: .*{message}"):
        play(learner, participant, range(1))


def test_shares_are_brought_to_the_sum_1_and_unknown_rules_are_refused(new_context):
    with pytest.raises(InputError, match=r"unknown aggregation rule .fedasink.\. Did you mean .fedasync."):
        rule_of(new_context(rule="fedasink"))
    assert rule_of(new_context()).name == "sync"
    near = [0.25, 0.7500002]  # 1 but for rounding
    for shares, expected in (([1.0, 3.0], [0.25, 0.75]), (near, near), ([0.0, 0.0], [0.0, 0.0])):
        given: Any = SimpleNamespace(uploads=shares, model={})
        assert shares_of(NextModel(state={}, shares=shares), given, {}, name="mine", when="") == expected
