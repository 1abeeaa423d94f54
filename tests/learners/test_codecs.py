"""Codecs: bytes, laws of rounding, error feedback, and their place between local training and averaging."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from learner_checks import equal, of, resumed
from torch import Tensor

from learners.classification_fedavg import ClassificationFedAvg
from learners.codecs import Float16, Float32, Int8, Qsgd, TopK
from learners.fedco import FedCo
from learners.flsimco import FLSimCo
from learners.scaffold import ScaffoldClassification
from vnetsim.errors import InputError, NotFiniteError, RunError
from vnetsim.learner_facts import Cost, ModelCost
from vnetsim.learning import Participant
from vnetsim.learning.codecs import Sent, with_codec_bytes

MakeParticipant = Callable[..., Participant]
QUICK = {"batch": 4, "steps": 2}
DRAWS = 4_000


def change(count: int = 48, seed: int = 3) -> dict[str, Tensor]:
    """Two tensors of very different sizes of values, and zeros."""
    generator = torch.Generator().manual_seed(seed)
    row = torch.randn(count, generator=generator)
    return {"a": row.view(-1, 4), "b": row[:7].sign() * 0.1, "zero": torch.zeros(3)}


def sent(codec: Any, tensors: dict[str, Tensor], seed: int = 0) -> dict[str, Tensor]:
    return dict(codec.send(tensors, {}, torch.Generator().manual_seed(seed)).tensors)


@pytest.mark.parametrize(
    ("codec", "count", "expected"),
    [
        (Float32(), 1000, 4000),
        (Float16(), 1000, 2000),
        (Int8(), 1000, 1004),
        (Qsgd(levels=1, bucket=100), 1000, 2 * 1000 / 8 + 4 * 10),  # three levels: two bits
        (Qsgd(levels=7, bucket=512), 1000, 4 * 1000 / 8 + 4 * 2),
        (Qsgd(levels=8, bucket=512), 1000, 5 * 1000 / 8 + 4 * 2),
        (TopK(share=0.01), 1000, 80),  # ten values and ten places
        (TopK(share=0.05), 1000, 4 * 50 + 125),  # a bit for every value is shorter
        (TopK(share=1.0), 1000, 4 * 1000 + 125),
        (TopK(share=1e-6), 1000, 8),
    ],
)
def test_bytes(codec, count, expected):
    assert codec.bytes_of(count) == expected


@pytest.mark.parametrize("codec", [Int8(), Qsgd(levels=1, bucket=10), Qsgd(levels=7, bucket=16)])
def test_random_rounding_is_unbiased_and_within_its_variance(codec):
    tensors = change()
    rows = torch.stack([torch.cat([t.flatten() for t in sent(codec, tensors, i).values()]) for i in range(DRAWS)])
    true = torch.cat([tensor.flatten() for tensor in tensors.values()])
    error = (rows.double().mean(dim=0) - true).abs()
    assert bool((error <= 5 * rows.double().std(dim=0) / math.sqrt(DRAWS) + 1e-9).all())
    if isinstance(codec, Qsgd):
        d, s = codec.bucket, codec.levels
        bound = sum(min(d / s**2, math.sqrt(d) / s) * float(part.square().sum()) for part in true.split(d))
        assert float((rows - true).square().sum(dim=1).double().mean()) <= bound
        assert bool((sent(codec, tensors)["zero"] == 0).all())


def test_rounding_ends_at_the_levels():
    tensors = change()
    quarters = sent(Int8(), tensors)["a"] / (tensors["a"].abs().max() / 127)
    assert torch.allclose(quarters, quarters.round(), atol=1e-3)
    assert float(quarters.abs().max()) <= 127.001
    half = sent(Float16(), {"a": tensors["a"], "big": torch.tensor([1e6, -1e6, 2.0**-14])})
    assert bool(((half["a"] - tensors["a"]).abs() <= tensors["a"].abs() * 2**-11 + 2**-25).all())
    assert half["big"].tolist() == [65504, -65504, 2.0**-14]


def test_what_top_k_does_not_send_is_sent_later():
    codec, memory, total, given = TopK(share=0.1), {}, 0.0, 0.0
    for seed in range(20):
        tensors = change(seed=seed)
        done = codec.send(tensors, memory, torch.Generator())
        row = torch.cat([tensor.flatten() for tensor in done.tensors.values()])
        assert int((row != 0).sum()) == math.ceil(0.1 * len(row))
        total, memory = total + row.double(), done.memory
        given = given + torch.cat([tensor.flatten() for tensor in tensors.values()]).double()
    assert torch.allclose(total + memory["error"], given, atol=1e-5)
    assert equal(sent(TopK(share=1.0), change()), change())


def test_bytes_follow_from_the_timed_model_and_leave_the_rest():
    model = ModelCost(bytes=400, image_flop=1.0, other_download_bytes=50, other_upload_bytes=7)
    cost = Cost(download_bytes=450, upload_bytes=2 * 400 + 7, work_flop=1.0, model=model)
    made = with_codec_bytes(cost, 1000, upload=Int8(), download=Float16())
    assert (made.download_bytes, made.upload_bytes) == (2000 + 50, 2 * 1004 + 7)
    assert with_codec_bytes(cost, None, upload=Float16(), download=None) == dataclasses.replace(
        cost, upload_bytes=2 * 200 + 7
    )
    with pytest.raises(InputError, match=r"codec\.name: the learner does not say of what model"):
        with_codec_bytes(dataclasses.replace(cost, model=None), 1, upload=Int8(), download=None)


def play(learner: Any, participant: MakeParticipant, rounds: range) -> None:
    """Rounds of two uploads, the second of which is stale where that can be."""
    for r in rounds:
        learner.aggregate(learner.train([participant(r, 2 * r), participant(r, 2 * r + 1, base_round=max(0, r - 1))]))


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(
    ("kind", "codec"),
    [(ClassificationFedAvg, Qsgd()), (ClassificationFedAvg, TopK(share=0.2)), (FedCo, TopK(share=0.2))],
)
def test_a_resumed_run_has_the_bits_of_the_uninterrupted_one(kind, codec, new_context, participant):
    def new() -> Any:
        context = new_context(max_staleness=1, codec=codec, download_codec=Int8())
        return kind.create(context, kind.Settings(**QUICK))

    saved = resumed(new, lambda learner, rounds: play(learner, participant, rounds), rounds=3, stop=2)
    assert any(".own.codec." in name for name in saved) == codec.remembers
    assert any(".own.codec." not in name and ".own." in name for name in saved) == (kind is FedCo)


@pytest.mark.usefixtures("tiny")
def test_the_decoded_change_is_averaged_and_statistics_pass(new_context, participant):
    def update(**changes: Any) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        learner = FLSimCo.create(new_context(**changes), FLSimCo.Settings(**QUICK))
        base = of(learner.state_dict(), "model.")
        return base, dict(learner.train([participant(0, 1)])[0].state)

    base, plain = update()
    _, same = update(codec=Float32())
    _, few = update(codec=TopK(share=0.01))
    assert all(torch.allclose(same[name], plain[name], atol=1e-6) for name in plain)
    changed = {name for name in few if not torch.equal(few[name], base[name])}
    statistics = {name for name in plain if "running" in name or "num_batches" in name}
    assert statistics
    assert all(torch.equal(few[name], plain[name]) for name in statistics)
    count = sum(int((few[name] != base[name]).sum()) for name in changed - statistics)
    assert 0 < count <= math.ceil(0.01 * sum(plain[name].numel() for name in plain.keys() - statistics))


@pytest.mark.usefixtures("tiny")
def test_a_change_is_relative_to_the_decoded_download(new_context, participant):
    class Zero(Float32):
        """A download of nothing: vehicles train from zeros."""

        def send(self, tensors: Any, memory: Any, draws: Any) -> Sent:  # noqa: ARG002
            return Sent(tensors={name: torch.zeros_like(tensor) for name, tensor in tensors.items()})

    context = new_context(download_codec=Zero())
    learner = ClassificationFedAvg.create(context, ClassificationFedAvg.Settings(**QUICK, lr=1e-6))
    base = of(learner.state_dict(), "model.")
    (update,) = learner.train([participant(0, 1)])
    weights = [name for name, tensor in base.items() if tensor.ndim > 1]
    assert all(torch.allclose(update.state[name], base[name], atol=1e-4) for name in weights)


@pytest.mark.usefixtures("tiny")
def test_each_transfer_has_draws_of_its_own(new_context, participant):
    seeds: list[int] = []

    class Seen(Float32):
        """Notes the seeds of its draws."""

        def send(self, tensors: Any, memory: Any, draws: Any) -> Sent:
            seeds.append(draws.initial_seed())
            return super().send(tensors, memory, draws)

    learner = ClassificationFedAvg.create(
        new_context(max_staleness=1, codec=Seen(), download_codec=Seen()), ClassificationFedAvg.Settings(**QUICK)
    )
    play(learner, participant, range(2))
    once = sorted(set(seeds))
    assert len(once) == 2 * 2 * 2, "rounds, vehicles and directions; a download is decoded again for the change"
    play(
        ClassificationFedAvg.create(new_context(max_staleness=1, codec=Seen()), learner.Settings(**QUICK)),
        participant,
        range(2),
    )
    assert sorted(set(seeds)) == once, "the same for the same seed"


def broken(result: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> Any:
    class Mine(Float32):
        name = "mine"

        def send(self, tensors: Any, memory: Any, draws: Any) -> Sent:  # noqa: ARG002
            return Sent(tensors=result(dict(tensors)))

    return Mine()


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(
    ("result", "error", "words"),
    [
        (lambda t: {name: one * math.nan for name, one in t.items()}, NotFiniteError, "has values that are not finite"),
        (lambda t: {name: one.flatten() for name, one in t.items()}, RunError, "expected torch.float32 of shape"),
        (lambda _: {}, RunError, "it returned other tensors than it was given"),
        (lambda _: 1 / 0, RunError, "ZeroDivisionError"),
    ],
)
def test_what_a_codec_returns_wrongly_is_named(result, error, words, new_context, participant):
    learner = ClassificationFedAvg.create(new_context(codec=broken(result)), ClassificationFedAvg.Settings(**QUICK))
    with pytest.raises(error, match=r"^codec 'mine' failed in send in round 0 at vehicle 'vehicle 1': ") as caught:
        learner.train([participant(0, 1)])
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("tiny")
def test_a_codec_is_refused_where_no_server_averages(new_context, new_fedefm):
    with pytest.raises(InputError, match=r"codec\.name.* are for an RSU that averages"):
        new_fedefm({"codec": Int8()}, server="none")
    with pytest.raises(InputError, match=r"handover\.policy: with 'multi'"):
        ClassificationFedAvg.create(new_context(codec=Int8(), joint=True), ClassificationFedAvg.Settings(**QUICK))


@pytest.mark.usefixtures("tiny")
def test_what_is_sent_besides_the_model_is_no_codecs(new_context, participant):
    learner = ScaffoldClassification.create(
        new_context(codec=Int8()), ScaffoldClassification.Settings(**QUICK, momentum=0.0)
    )
    with pytest.raises(RunError, match=r"codec\.name, conduct\.name: the learner sends 'change\.control\.\S+' besides"):
        learner.train([participant(0, 1)])


@pytest.mark.usefixtures("tiny")
def test_the_error_of_a_silo_is_sent_once_in_a_round(new_context, participant):
    """Two vehicles of one silo: what was decoded, and the error that is left, add up to what they learned."""
    learner = ClassificationFedAvg.create(new_context(codec=TopK(share=0.05)), ClassificationFedAvg.Settings(**QUICK))
    plain = ClassificationFedAvg.create(new_context(), ClassificationFedAvg.Settings(**QUICK))
    weights = [name for name, _ in plain._task.network.named_parameters()]
    total = torch.zeros(sum(plain._task.network.state_dict()[name].numel() for name in weights), dtype=torch.float64)
    for number in range(2):
        base = of(learner.state_dict(), "model.")
        plain.load_state_dict({**plain.state_dict(), **{f"model.{name}": t for name, t in base.items()}})
        who = [dataclasses.replace(participant(number, 1), vehicle_id=name) for name in ("a", "b")]
        decoded, learned = learner.train(who), plain.train(who)
        for ours, theirs in zip(decoded, learned, strict=True):
            total += torch.cat([(theirs.state[name] - ours.state[name]).flatten() for name in weights]).double()
        learner.aggregate(decoded)
        plain.aggregate(learned)
    (left,) = [
        t for name, t in learner.state_dict().items() if name.startswith("silo.") and name.endswith("codec.error")
    ]
    torch.testing.assert_close(left.double(), total, rtol=0, atol=1e-4)
