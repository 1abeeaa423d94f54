"""``learning.dp``: the private mean, what it accounts for, and who refuses it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from device_checks import learner_class, registered
from learner_checks import FEW, mark_all_only
from torch import Tensor

from learners.mathematics.robust import AveragingSettings, PrivacySettings
from learners.state.privacy import PrivateMean
from vnetsim.errors import InputError
from vnetsim.experiment import ExchangeSettings
from vnetsim.learner_facts import PRIVACY, epsilon, privacy_facts
from vnetsim.learning import ModelKey
from vnetsim.random_streams import Streams

State = dict[str, Tensor]
KEY = ModelKey("single", 3)


def private(clip: float, noise: float, uploads: int = 4, seed: int = 0) -> PrivateMean:
    settings = PrivacySettings(clip=clip, noise_multiplier=noise)
    return PrivateMean(settings=settings, uploads=uploads, streams=Streams(seed=seed))


def states(count: int) -> list[State]:
    generator = torch.Generator().manual_seed(1)
    return [
        {
            "w": torch.randn(6, 3, generator=generator),
            "running_var": torch.rand(5, generator=generator),
            "n": torch.tensor(10 + place),
        }
        for place in range(count)
    ]


def flat(state: State) -> Any:
    return np.concatenate([t.double().numpy().ravel() for t in state.values() if t.is_floating_point()])


def test_it_is_the_clipped_sum_over_a_fixed_number():
    base, *uploads = states(4)
    found = private(0.5, 0.0, uploads=7).mean(uploads, [base] * 3, base, KEY)
    changes = [flat(one) - flat(base) for one in uploads]
    clipped = [change * min(1, 0.5 / np.linalg.norm(change)) for change in changes]
    np.testing.assert_allclose(flat(found), flat(base) + sum(clipped) / 7, rtol=1e-5, atol=1e-6)
    assert found["n"] == 12, "counters are averaged"


def test_one_upload_moves_it_by_at_most_its_share():
    base, *uploads = states(4)
    uploads[1] = {name: t * 1e6 if t.is_floating_point() else t for name, t in uploads[1].items()}
    with_it, without = (private(0.5, 0.0).mean(some, [base] * len(some), base, KEY) for some in (uploads, uploads[::2]))
    assert np.linalg.norm(flat(with_it) - flat(without)) == pytest.approx(0.5 / 4, rel=1e-4)


def test_the_noise_has_its_deviation_and_is_drawn_by_aggregator_and_version():
    base = {"w": torch.zeros(200, 200), "bn.running_var": torch.full((999,), 1e-3)}

    def drawn(key: ModelKey, seed: int = 0) -> State:
        return private(2.0, 1.5, seed=seed).mean([base], [base], base, key)

    once = drawn(KEY)
    assert float(once["w"].std()) == pytest.approx(1.5 * 2.0 / 4, rel=0.02)
    assert (once["bn.running_var"] >= 0).all()
    assert all(torch.equal(one, other) for one, other in zip(once.values(), drawn(KEY).values(), strict=True))
    for other in (drawn(ModelKey("single", 4)), drawn(ModelKey("r", 3)), drawn(KEY, seed=1)):
        assert not torch.equal(once["w"], other["w"])


def test_epsilon_is_that_of_bun_and_steinke():
    assert epsilon(1, 1.0) == pytest.approx(0.5 + 2 * math.sqrt(0.5 * math.log(1e5)))
    assert epsilon(8, 2.0) == pytest.approx(epsilon(2, 1.0)), "rho = k / (2 z^2)"
    assert (epsilon(0, 1.0), epsilon(3, 0.0)) == (0, math.inf)
    # the exact trade-off of a Gaussian (Balle and Wang 2018) is at least as good
    for times, noise in ((1, 1.0), (9, 4.0), (30, 0.7)):
        mu, eps = math.sqrt(times) / noise, epsilon(times, noise)

        def phi(x: float) -> float:
            return 0.5 * math.erfc(-x / math.sqrt(2))

        assert phi(mu / 2 - eps / mu) - math.exp(eps) * phi(-mu / 2 - eps / mu) <= 1e-5


EXACT = {(1, 1.0): 4.377178, (10, 1.0): 17.856587, (10, 4.0): 3.341409, (100, 2.0): 33.103732}
"""Exact epsilon by uses and noise multiplier, at delta = 1e-5: ``get_epsilon_gaussian`` of dp-accounting 0.6.0."""


def test_epsilon_is_a_bound_a_little_above_the_exact_one():
    for (times, noise), exact in EXACT.items():
        assert exact < epsilon(times, noise) < 1.25 * exact


def test_the_exact_epsilons_are_those_of_dp_accounting():
    accounting = pytest.importorskip("dp_accounting")
    for (times, noise), exact in EXACT.items():
        assert accounting.get_epsilon_gaussian(noise / math.sqrt(times), 1e-5) == pytest.approx(exact, abs=1e-6)


def test_the_fact_counts_whose_data_were_used_most_often():
    took_part = [("a", 0, 1), ("b", 0, 2), ("c", 0, 3), ("a", 1, 4)]
    assert privacy_facts({"dp": {"clip": 0.0}}, took_part) == privacy_facts({}, took_part) == {}
    fact = privacy_facts({"dp": {"clip": 1.0, "noise_multiplier": 2.0}}, took_part)[PRIVACY]
    assert f"{epsilon(2, 2.0):.4g} (used 2 times) if each vehicle" in fact
    assert f"{epsilon(3, 2.0):.4g} (used 3 times) if each silo" in fact
    assert "delta = 1e-05" in fact
    assert "with and without these data; for other data in their place uses count four times" in fact
    twice = privacy_facts({"dp": {"clip": 1.0, "noise_multiplier": 2.0}}, [("a", 0, 1), ("b", 0, 1)])[PRIVACY]
    assert f"{epsilon(4, 2.0):.4g} (used 4 times) if each silo" in twice, "two uploads in one mean move it twice as far"
    assert "inf (used 2 times)" in privacy_facts({"dp": {"clip": 1.0}}, took_part)[PRIVACY]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"dp": PrivacySettings(noise_multiplier=1.0)}, "set learning.dp.clip"),
        ({"dp": PrivacySettings(clip=1.0), "aggregation": "krum"}, "not for a krum"),
        ({"dp": PrivacySettings(clip=-1.0)}, r"learning\.dp\.clip must be between 0 and"),
        ({"dp": PrivacySettings(clip=1.0, noise_multiplier=math.nan)}, r"learning\.dp\.noise_multiplier must be"),
    ],
)
def test_bad_settings_are_refused(given, said):
    with pytest.raises(InputError, match=said):
        AveragingSettings(**given)


REFUSED = {
    "fedco", "fedefm", "feddyn-classification", "fednova-classification", "scaffold", "scaffold-classification",
    "scaffold-steering",
}  # fmt: skip
"""Their servers make more of the uploads than a mean, or their vehicles send each other models."""


@pytest.mark.parametrize("name", mark_all_only(sorted(registered()), {*FEW, *REFUSED}))
def test_every_learner_is_private_or_refuses(name, tiny, on_tiny_roads, new_context, participant):  # noqa: ARG001
    cls: Any = learner_class(name)
    context = new_context(exchange=ExchangeSettings(topology="star"))
    rounds = replace(context.experiment.round, quorum=3)
    context = replace(context, experiment=replace(context.experiment, round=rounds, learner=name))
    plain = {"batch": 6, "steps": 1, "engine": "sequential"}
    settings = cls.Settings(**plain, dp=PrivacySettings(clip=1e9))
    if name in REFUSED:
        with pytest.raises(InputError, match=rf"^learning\.dp: only .*{name}"):
            cls.create(context, settings)
        return
    learner = cls.create(context, settings)
    vehicles = [participant(0, i, speed_mps=20.0) for i in range(3)]
    same = cls.create(context, cls.Settings(**plain))
    updates = same.train(vehicles)
    assert learner.aggregate(updates).weights == pytest.approx([1 / 3] * 3)
    same.aggregate(updates)
    private, mean = learner.state_dict(), same.state_dict()
    for key, tensor in mean.items():
        if key.startswith("model."):
            torch.testing.assert_close(private[key], tensor, rtol=1e-5, atol=1e-6, msg=key)
