"""Laws of runs with several aggregators: merged models, vehicles that are handed over, and restarts between."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from learner_checks import FEW, equal, mark_all_only
from safetensors.torch import load, save

from learners.cdl import Cdl
from learners.classification_fedavg import ClassificationFedAvg
from learners.fedavg import Discard, FedAvg
from learners.fedco import QUEUE, FedCo
from learners.fedefm import FedEFM
from learners.flsimco import FLSimCo
from learners.mathematics.mixing import mix_on_board, similarity
from learners.steering_baselines import DecentralisedSgd, FedAvgSteering
from vnetsim.errors import InputError
from vnetsim.experiment import ExchangeSettings
from vnetsim.learning import HandoverEffects, KeepsModels, Learner, LearnerContext, ModelKey, Participant
from vnetsim.learning.aggregation import AGGREGATIONS
from vnetsim.learning.kinds import require_several_models

pytestmark = pytest.mark.usefixtures("tiny", "on_tiny_roads")

MakeParticipant = Callable[..., Participant]
MakeContext = Callable[..., LearnerContext]
STAR = ExchangeSettings(topology="star")
QUICK = {"batch": 4, "steps": 2}
NAMES = ("a", "b", "c", "cloud")
AVERAGING = [FLSimCo, FedAvg, Discard, ClassificationFedAvg, FedAvgSteering, FedCo, FedEFM, Cdl, DecentralisedSgd]
START = {name: ModelKey(name, 0) for name in NAMES}


@pytest.fixture
def new(new_context: MakeContext) -> Callable[..., Any]:
    """Return a maker of learners of four aggregators."""

    def make(kind: Any = ClassificationFedAvg, *, own: Mapping[str, Any] | None = None, **changes: Any) -> Any:
        context = new_context(**{"aggregators": NAMES, "exchange": STAR, **changes})
        return kind.create(context, kind.Settings(**QUICK | dict(own or {})))

    return make


@pytest.fixture
def at(participant: MakeParticipant) -> Callable[..., Participant]:
    """Return a maker of participants that began at an aggregator."""

    def make(aggregator: str, number: int, version: int = 0, **more: Any) -> Participant:
        one = participant(version, number, speed_mps=10.0 + number)
        effects = {name: more.pop(name) for name in ("counted_from", "carried", "mixed", "bases") if name in more}
        return replace(one, **{"base": ModelKey(aggregator, version), "handover": HandoverEffects(**effects), **more})

    return make


def newest(learner: Any, aggregator: str) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = learner._models.newest(aggregator)
    return found


def trained_names(learner: Any) -> list[str]:
    return [name for name, _ in learner._task.network.named_parameters()]


def close(ours: Mapping[str, torch.Tensor], theirs: Mapping[str, torch.Tensor], names: Sequence[str]) -> bool:
    # to rounding, 3e-8 in the first round; Adam makes 2e-4 of it in the second
    apart, whole = (
        sum(float(tensor.double().square().sum()) for tensor in tensors) ** 0.5
        for tensors in ([ours[name] - theirs[name] for name in names], [theirs[name] for name in names])
    )
    return apart <= 1e-3 * whole


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        (ClassificationFedAvg, "sync"),
        *((FedCo, rule) for rule in ("sync", "fedbuff", "fedavgm")),
        *(pytest.param(kind, "fedbuff", marks=pytest.mark.all_only) for kind in AVERAGING if kind is not FedCo),
    ],
)
def test_one_source_is_copied_and_what_is_no_model_stays(kind: Any, rule: str, new: Any, at: Any) -> None:
    learner = new(kind, rule=rule)
    assert isinstance(learner, KeepsModels)
    for name in "ab":
        learner.aggregate(learner.train([at(name, i) for i in range(2)]), name)
    before, memory = newest(learner, "b"), learner._server._memory["b"]
    learner.merge({ModelKey("a", 1): 1.0}, ModelKey("b", 1))
    mine, of_a = newest(learner, "b"), newest(learner, "a")
    for name, tensor in mine.items():
        assert torch.equal(tensor, before[name] if name.startswith(QUEUE) else of_a[name]), name
    assert not equal(mine, before)
    assert learner._server._memory["b"] is memory
    assert learner.evaluate(final=False, aggregator="b") == learner.evaluate(final=False, aggregator="a")
    learner.merge({ModelKey("a", 1): 0.25, ModelKey("b", 1): 0.75, START["a"]: 0.0}, ModelKey("cloud", 1))
    assert close(newest(learner, "cloud"), of_a, [name for name in of_a if not name.startswith(QUEUE)])


@pytest.mark.parametrize("kind", mark_all_only([FLSimCo, ClassificationFedAvg, FedAvgSteering], ["flsimco"]))
def test_a_cloud_after_every_round_makes_one_model_wherever_vehicles_commit(kind: Any, new: Any, at: Any) -> None:
    """Weighed by committed samples: as one aggregator over all. FLSimCo's weights are those of an RSU's round, Eq. 11.

    FedCo's negatives are the keys of an RSU's vehicles: for it the law would hold in the first round alone.
    """
    homes = "aabbcc"

    def played(served: str, carried: str) -> Any:
        learner = new(kind)
        for version in range(2):
            who = [at(home, i, version) for i, home in enumerate(homes)]
            learner.keep([one.base for one in who])
            samples = {}
            for name in sorted(set(served)):
                moved = [
                    replace(one, handover=HandoverEffects(carried=carried, counted_from=version))
                    if one.base.aggregator != name
                    else one
                    for one, to in zip(who, served, strict=True)
                    if to == name
                ]
                done = learner.aggregate(learner.train(moved), name)
                assert sum(done.weights) == pytest.approx(1, abs=1e-12)
                samples[ModelKey(name, version + 1)] = sum(learner._task.silos.size(one.silo) for one in moved)
            for name in set("abc") - set(served):
                learner.aggregate([], name)
            total = sum(samples.values())
            assert total == sum(learner._task.silos.sizes)
            cloud = ModelKey("cloud", version + 1)
            learner.merge({key: count / total for key, count in samples.items()}, cloud)
            for name in "abc":
                learner.merge({cloud: 1.0}, ModelKey(name, version + 1))
            assert learner.spread("abc") == 0
        return learner

    one, forwarded, *others = (
        played(*how)
        for how in (
            ("aaaaaa", "model"),
            (homes, "model"),
            ("bcabca", "model"),
            ("cccbba", "model"),
            ("bcabca", "change"),
        )
    )
    assert len(set(one._task.silos.sizes)) == 1, "else equal weights at an RSU are not those of samples above it"
    ours, names = newest(one, "cloud"), trained_names(one)
    assert close(newest(forwarded, "cloud"), ours, names) == (kind is not FLSimCo)
    for other in others:
        assert close(newest(other, "cloud"), newest(forwarded, "cloud"), names) == (kind is not FLSimCo)
    assert not close(ours, one._models.initial, names)


@pytest.mark.parametrize("rule", sorted(AGGREGATIONS.names()))
def test_every_rule_takes_what_was_carried(rule: str, new: Any, at: Any) -> None:
    """Where bases are equal, model and change are the same update, but for statistics; the rest is as by hand."""
    if rule == "flower":
        pytest.importorskip("flwr")
    learner = new(rule=rule)
    own, plain = at("a", 0), at("b", 1, counted_from=0, train_s=2.0, upload_s=2.0)

    def with_carried(carried: Any) -> Participant:
        return replace(plain, handover=HandoverEffects(counted_from=0, carried=carried))

    ends = []
    for carried in ("model", "change"):
        fresh = new(rule=rule)
        fresh.aggregate(fresh.train([own, with_carried(carried)]), "a")
        ends.append(newest(fresh, "a"))
    names = trained_names(learner)
    assert close(ends[0], ends[1], names)
    assert not equal(ends[0], ends[1]), "BatchNorm's statistics are the aggregator's own"
    # bases differ: one upload alone is w + (w_n - w_base)
    learner.aggregate(learner.train([own]), "a")
    update = learner.train([replace(with_carried("change"), round=1)])
    present, base = newest(learner, "a"), newest(learner, "b")
    learner.aggregate(update, "a")
    for name, tensor in newest(learner, "a").items() if rule == "sync" else ():
        moved = update[0].state[name] - base[name] if name in names else 0
        torch.testing.assert_close(tensor, (present[name] + moved).to(tensor.dtype), rtol=1e-5, atol=1e-6)


def test_staleness_of_what_was_carried_counts_the_versions_of_who_aggregates(
    new: Any, at: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []
    rule = AGGREGATIONS.find("fedasync")
    fold = rule.aggregate
    monkeypatch.setattr(
        rule, "aggregate", lambda self, given: told.extend(u.staleness for u in given.uploads) or fold(self, given)
    )
    learner = new(rule="fedasync", max_staleness=3)
    for version in range(3):
        learner.aggregate(learner.train([at("a", version, version)]), "a")
        learner.merge({ModelKey("a", version + 1): 0.5, ModelKey("b", 0): 0.5}, ModelKey("a", version + 1))
    learner.aggregate([], "a")
    learner.aggregate(learner.train([at("b", 4, counted_from=1), at("a", 5, 2)]), "a")
    assert told == [0, 0, 0, 2, 1], "round and merge make one version, an empty round none"
    with pytest.raises(ValueError, match="vehicle 'vehicle 4' began at 'b', and lacks counted_from"):
        learner.aggregate(learner.train([at("b", 4)]), "a")


@pytest.mark.parametrize("kind", mark_all_only(AVERAGING, {*FEW, "fedco"}))
def test_models_mixed_on_board(kind: Any, new: Any, at: Any) -> None:
    """An equal one changes no bit, at whatever step, the nearest; after the last step it is the published equation."""
    learner = new(kind)
    learner.aggregate(learner.train([at("a", i) for i in range(3)]), "a")
    other, same = ModelKey("a", 1), START["b"]
    mixings = ((), ((0.0, same),), ((1.0, other),), ((0.0, same), (1.0, other)), ((0.5, other),), ((0.9, other),))
    plain, begun, ended, both, half, nearly = learner.train([at("b", 0, mixed=mixed) for mixed in mixings])
    names = trained_names(learner)
    assert equal(begun.state, plain.state)
    assert begun.loss == plain.loss == ended.loss != half.loss
    assert equal(both.state, ended.state)
    assert equal(nearly.state, ended.state), "of so few steps 0.9 are all but a half step"
    model = {name: tensor for name, tensor in newest(learner, "a").items() if name in plain.state}
    by_hand = mix_on_board({n: t for n, t in plain.state.items() if n in model}, model, names)
    assert all(torch.equal(ended.state[name], tensor) for name, tensor in by_hand.items())
    assert not close(half.state, plain.state, names)
    assert not close(half.state, ended.state, names)


def test_mixing_weighs_by_the_cosine() -> None:
    own = {"w": torch.tensor([3.0, 4.0]), "mean": torch.tensor(1.0), "count": torch.tensor(3)}
    other = {"w": torch.tensor([4.0, 3.0]), "mean": torch.tensor(2.0), "count": torch.tensor(5)}
    assert similarity(own, other, ["w"]) == pytest.approx(0.96)
    mixed = mix_on_board(own, other, ["w"])
    assert mixed["w"].tolist() == pytest.approx([(4 + 0.96 * 3) / 1.96, (3 + 0.96 * 4) / 1.96])
    assert float(mixed["mean"]) == pytest.approx((2 + 0.96) / 1.96)
    assert mixed["count"].item() == 4
    for away in ([-4.0, -3.0], [-4.0, 3.0], [0.0, 0.0]):
        end = {**other, "w": torch.tensor(away)}
        assert equal(mix_on_board(own, end, ["w"]), end), "no weight to a model that points elsewhere"
    assert equal(mix_on_board(own, own, ["w"]), own)


def test_a_start_from_several_models_is_from_their_mean(new: Any, at: Any) -> None:
    learner = new()
    equal_bases, plain = learner.train([at("b", 0, bases=(START["b"], START["c"])), at("b", 0)])
    assert equal(equal_bases.state, plain.state)
    learner.aggregate(learner.train([at("a", i) for i in range(2)]), "a")
    several = learner.train([at("b", 0, bases=(START["b"], ModelKey("a", 1)))])[0]
    learner.merge({START["b"]: 0.5, ModelKey("a", 1): 0.5}, START["b"])
    assert [learner._server.trained(at(name, 0)) for name in "bc"] == [True, False]
    assert equal(several.state, learner.train([at("b", 0)])[0].state)


@pytest.mark.parametrize("kind", [FLSimCo, FedAvgSteering])
@pytest.mark.parametrize("rule", ["sync", "fedbuff"])
def test_one_training_is_one_update_at_every_aggregator_that_takes_it(kind: Any, rule: str, new: Any, at: Any) -> None:
    learner = new(kind, rule=rule, joint=True)
    learner.keep([ModelKey("a", 1), START["b"]])
    for version in range(2):
        learner.aggregate(learner.train([at("a", 1, version)]), "a")
    bases = ModelKey("a", 1), START["b"]
    [of_a] = learner.train([at("a", 0, 1, round=2, bases=bases)])
    folded = learner.aggregate([of_a], "a")
    [of_b] = learner.train([at("a", 0, 1, round=0, bases=bases, counted_from=0)])
    assert equal(of_a.state, of_b.state)
    assert of_a.loss == of_b.loss
    assert learner.aggregate([of_b, *learner.train([at("b", 2)])], "b").weights == [0.5, 0.5] or kind is FLSimCo
    assert folded.weights == [1.0]


def test_a_mean_of_models_leaves_the_queue_and_what_silos_keep_is_refused(new: Any, at: Any) -> None:
    learner = new(FedCo, joint=True, own={"key_encoder": "visit"})
    for name in "ab":
        learner.aggregate(learner.train([at(name, i) for i in range(2)]), name)
    base = learner._server.base(at("a", 0, 1, bases=(ModelKey("a", 1), ModelKey("b", 1))))
    for name, tensor in newest(learner, "a").items():
        assert torch.equal(base[name], tensor) == name.startswith(QUEUE) or not tensor.is_floating_point(), name
    for kind in (FedCo, Cdl):
        with pytest.raises(InputError, match=rf"handover.policy: with 'multi' .* silos of {kind.name} keep a part"):
            new(kind, joint=True)


@pytest.mark.parametrize(
    ("rule", "kind"),
    [
        ("sync", FedCo), ("fedbuff", FedEFM),
        *(
            pytest.param(rule, kind, marks=pytest.mark.all_only)
            for rule, kind in [
                ("sync", FLSimCo), ("sync", FedEFM), ("sync", FedAvgSteering), ("fedbuff", FLSimCo), ("fedavgm", FedCo),
                ("fedavgm", FedAvgSteering),
            ]
        ),
    ],
)  # fmt: skip
def test_a_run_resumed_between_merges_gives_the_same_bits(kind: Any, rule: str, new: Any, at: Any) -> None:
    """A server that remembers, a model kept for who is in flight, a cloud, and a vehicle that was carried away."""
    flight = ModelKey("c", 0)

    def make() -> Any:
        settings = AGGREGATIONS.find(rule)(**({"buffer": 3} if rule == "fedbuff" else {}))
        return new(kind, rule=rule, aggregation=settings)

    def play(learner: Any, version: int) -> None:
        for name in "ab":
            learner.keep([flight])
            late = [at("c", 5, base=flight, counted_from=version, round=version, carried="change")]
            own = [at(name, i, version) for i in range(2)]
            learner.aggregate(learner.train(own + late * (name == "a")), name)
        learner.aggregate(learner.train([at("c", 3, version)]), "c")
        keys = {ModelKey(name, version + 1): share for name, share in zip("abc", (0.5, 0.3, 0.2), strict=True)}
        learner.merge(keys, ModelKey("cloud", version + 1))
        learner.merge({ModelKey("cloud", version + 1): 1.0}, ModelKey("b", version + 1))

    whole, broken = make(), make()
    for version in range(2):
        play(whole, version)
        play(broken, version)
        saved = load(save(broken.state_dict()))
        broken = make()
        broken.load_state_dict(saved)
        assert equal(broken.state_dict(), saved)
    assert equal(whole.state_dict(), broken.state_dict())
    assert whole.spread("abc") == broken.spread("abc") > 0
    assert all(whole.evaluate(final=False, aggregator=n) == broken.evaluate(final=False, aggregator=n) for n in NAMES)


def test_models_are_kept_as_long_as_they_are_needed(new: Any, at: Any) -> None:
    learner = new()
    learner.keep([START["a"]])
    for version in range(2):
        learner.aggregate(learner.train([at("a", 0, version)]), "a")
    late = learner.train([at("a", 1)])
    assert equal(late[0].state, new().train([at("a", 1)])[0].state)
    learner.keep([])
    learner.aggregate([], "a")
    with pytest.raises(KeyError):
        learner.train([at("a", 1)])


def test_the_spread_is_the_mean_distance_from_the_mean(new: Any, at: Any) -> None:
    learner = new()
    assert learner.spread(NAMES) == learner.spread(["a"]) == 0
    learner.aggregate(learner.train([at("a", 0)]), "a")
    theirs = [newest(learner, name) for name in "ab"]
    a, b = (torch.cat([one[name].double().flatten() for name in trained_names(learner)]) for one in theirs)
    assert learner.spread("ab") == pytest.approx(float((a - b).norm() / (a + b).norm()), rel=1e-5)


@pytest.mark.parametrize(
    ("kind", "own", "setting"),
    [
        (FedEFM, {"server": "none"}, "learning.server: none"),
        (Cdl, {}, "exchange.topology: contact"),
        (DecentralisedSgd, {}, "exchange.topology: contact"),
    ],
)
def test_methods_without_a_server_refuse_several_aggregators(kind: Any, own: Any, setting: str, new: Any) -> None:
    with pytest.raises(InputError, match=rf"topology\.kind: .* neighbours of {kind.name} mix .*{setting}"):
        new(kind, own=own, exchange=ExchangeSettings())


def test_a_learner_of_one_model_is_refused_before_it_is_made() -> None:
    require_several_models(FLSimCo, "topology.kind = 'per-rsu'")
    mine = type("Mine", (Learner,), {"name": "mine"})
    with pytest.raises(
        InputError, match=r"topology\.kind = 'per-rsu' needs a learner with a model for each aggregator"
    ):
        require_several_models(mine, "topology.kind = 'per-rsu'")
