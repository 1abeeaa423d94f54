"""What hostile vehicles send, by the papers' formulas; who they are; and what reaches the server."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from learner_checks import equal, of, resumed
from torch import Tensor

from learners.classification_fedavg import ClassificationFedAvg
from learners.codecs import Int8
from learners.conducts import (
    Alie,
    FreeRider,
    Honest,
    Ipm,
    LabelFlip,
    Noise,
    Replay,
    Scaling,
    SignFlip,
    alie_deviations,
)
from learners.engines.programs import draw_first
from learners.flsimco import FLSimCo
from vnetsim.errors import InputError, NotFiniteError, RunError
from vnetsim.experiment import HostileSettings
from vnetsim.learning import Participant
from vnetsim.learning.conduct import Hostile, HostileRound, Sends, is_hostile
from vnetsim.random_streams import Streams

MakeContext = Callable[..., Any]
MakeParticipant = Callable[..., Participant]
QUICK = {"batch": 4, "steps": 2}


def a_round(hostile: int = 2, honest: int = 5, count: int = 4) -> HostileRound:
    rows = torch.randn(hostile + honest, count, generator=torch.Generator().manual_seed(2))
    who = [
        Hostile(vehicle_id=f"v{i}", change={"a": row}, memory={}, draws=torch.Generator().manual_seed(i))
        for i, row in enumerate(rows[:hostile])
    ]
    return HostileRound(hostile=who, honest=[{"a": row} for row in rows[hostile:]])


def rows_of(sent: Sequence[Sends]) -> Any:
    return np.stack([one.change["a"].numpy() for one in sent]).astype(float)


def test_each_sends_what_its_formula_says() -> None:
    given = a_round()
    own = np.stack([one.change["a"].numpy() for one in given.hostile]).astype(float)
    honest = np.stack([one["a"].numpy() for one in given.honest]).astype(float)
    # n = 7, f = 2: s = floor(4.5) - 2 = 2 supporters, Phi(z) = (7 - 2 - 2) / 5 = .6
    z = 0.2533471
    expected = {
        Honest(): own,
        LabelFlip(): own,
        SignFlip(factor=2.0): -2 * own,
        Scaling(factor=3.0): 3 * own,
        FreeRider(): 0 * own,
        Replay(): own,
        Alie(): [honest.mean(axis=0) - z * honest.std(axis=0)] * 2,
        Alie(knows="own", deviations=1.5): [own.mean(axis=0) - 1.5 * own.std(axis=0)] * 2,
        Ipm(factor=0.25): [-0.25 * honest.mean(axis=0)] * 2,
    }
    for conduct, wanted in expected.items():
        np.testing.assert_allclose(rows_of(conduct.send(given)), wanted, rtol=1e-5, atol=1e-6, err_msg=conduct.name)


@pytest.mark.parametrize(
    ("uploads", "hostile", "share"), [(50, 12, 24 / 38), (50, 5, 24 / 45), (10, 2, 4 / 8), (3, 1, 0.5), (4, 3, 0)]
)
def test_alie_hides_behind_as_many_as_a_majority_lacks(uploads: int, hostile: int, share: float) -> None:
    z = alie_deviations(uploads, hostile)
    assert 0.5 * math.erfc(-z / math.sqrt(2)) == pytest.approx(max(share, 0.5))


def test_noise_has_its_deviation_and_a_replay_its_first_change() -> None:
    given = a_round(hostile=2, count=20_000)
    for conduct, own in ((Noise(deviation=0.5), 1), (FreeRider(deviation=0.5), 0)):
        noise = rows_of(conduct.send(a_round(hostile=2, count=20_000))) - own * rows_of(Honest().send(given))
        assert noise.std() == pytest.approx(0.5, rel=0.02)
        assert abs(np.corrcoef(noise)[0, 1]) < 0.05
    first = Replay().send(given)
    later = HostileRound(
        hostile=[
            Hostile(vehicle_id="v", change={"a": torch.ones(20_000)}, memory=one.memory, draws=torch.Generator())
            for one in first
        ],
        honest=[],
    )
    np.testing.assert_array_equal(rows_of(Replay().send(later)), rows_of(first))


def test_the_vehicles_of_a_share_are_among_those_of_a_larger_one() -> None:
    streams = Streams(seed=4).child("learner")
    ids = [f"car.{i}" for i in range(2000)]
    found = [
        {one for one in ids if is_hostile(one, HostileSettings(share=share), streams)} for share in (0, 0.1, 0.3, 1)
    ]
    assert all(few < many for few, many in itertools.pairwise(found))
    assert [len(one) for one in found] == [0, pytest.approx(200, abs=50), pytest.approx(600, abs=80), 2000]
    for names in (("car.7", "car.9"), ("*.[79]",), ("car.7", "c?r.9")):
        named = HostileSettings(vehicles=names)
        assert {one for one in ids if is_hostile(one, named, streams)} == {"car.7", "car.9"}
    assert is_hostile("flow[1].0", HostileSettings(vehicles=("flow[1].0",)), streams)


def new(new_context: MakeContext, conduct: Any, *, kind: Any = ClassificationFedAvg, **changes: Any) -> Any:
    hostile = HostileSettings(vehicles=("vehicle 1", "vehicle 3"))
    context = new_context(conduct=conduct, hostile=hostile, **changes)
    return kind.create(context, kind.Settings(**QUICK))


def states(learner: Any, participant: MakeParticipant, count: int = 4) -> list[dict[str, Tensor]]:
    return [dict(one.state) for one in learner.train([participant(0, i) for i in range(count)])]


@pytest.mark.usefixtures("tiny")
def test_honest_vehicles_send_the_same_bits_whoever_is_hostile(
    new_context: MakeContext, participant: MakeParticipant
) -> None:
    plain = new(new_context, None)
    base, honest = of(plain.state_dict(), "model."), states(plain, participant)
    for conduct in (LabelFlip(), SignFlip(), Ipm()):
        found = states(new(new_context, conduct), participant)
        assert [equal(a, b) for a, b in zip(found, honest, strict=True)] == [True, False, True, False]
    flipped = states(new(new_context, SignFlip()), participant)[1]
    assert all(torch.allclose(flipped[n] + honest[1][n], 2 * base[n], atol=1e-5) for n in base if n.endswith("weight"))
    assert equal(states(new(new_context, FreeRider()), participant)[3], base)


@pytest.mark.usefixtures("tiny")
def test_flipped_labels_are_mirrored(new_context: MakeContext, participant: MakeParticipant) -> None:
    found = {}
    for conduct in (None, LabelFlip()):
        learner = new(new_context, conduct)
        task = learner._task
        program = task.training(lambda *_: None)
        training = task.local_training_of(participant(0, 1))
        drawn = draw_first(program, training, torch.Generator().manual_seed(0))
        found[conduct is None] = program.prepare(drawn)["labels"]
    assert torch.equal(found[False], 2 - found[True])


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("codec", [pytest.param(None, marks=pytest.mark.all_only), Int8()])
def test_a_resumed_run_has_the_bits_of_the_uninterrupted_one(
    codec: Any, new_context: MakeContext, participant: MakeParticipant
) -> None:
    def play(learner: Any, rounds: range) -> None:
        for r in rounds:
            learner.aggregate(learner.train([participant(r, i) for i in range(3)]))

    saved = resumed(lambda: new(new_context, Replay(), codec=codec), play, rounds=3, stop=2)
    assert {name.split(".")[1] for name in saved if ".own.conduct." in name} == {"1"}


@pytest.mark.usefixtures("tiny")
def test_what_is_wrong_is_named(new_context: MakeContext, participant: MakeParticipant) -> None:
    with pytest.raises(InputError, match=r"conduct\.name: 'label-flip' flips labels, and this learner trains without"):
        new(new_context, LabelFlip(), kind=FLSimCo)
    nan = {"a": torch.tensor(math.nan)}
    for result, error, words in (
        (lambda _: [], RunError, "it returned 0 results for 2 vehicles"),
        (lambda given: [Sends(change={}) for _ in given.hostile], RunError, "it returned other tensors"),
        (lambda given: [Sends(change=one.change, memory=nan) for one in given.hostile], NotFiniteError, "not finite"),
    ):
        conduct = SimpleNamespace(name="mine", flips_labels=False, send=result)
        with pytest.raises(
            error, match=r"^conduct 'mine' failed in send in round 0 at vehicle 'vehicle 1': "
        ) as caught:
            states(new(new_context, conduct), participant)
        assert words in str(caught.value)
