"""Each selection policy against an independent reference of a few lines, on hand-made candidates."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from vnetsim.errors import InputError
from vnetsim.simulation.selection import SELECTIONS


def policy(policy_name: str, **settings: Any) -> Any:
    found = SELECTIONS.find(policy_name)
    return found.create(found.Settings(**settings))


def names(chosen: Any) -> list[str]:
    return [candidate.vehicle_id for candidate in chosen]


def ended(silo: int, round_index: int = 0, outcome: str = "committed", took_s: float = 6.0) -> Any:
    return SimpleNamespace(silo=silo, round=round_index, outcome=outcome, start_s=10.0, end_s=10.0 + took_s)


def crowd(make: Any, seed: int, count: int = 7, **given: Any) -> list[Any]:
    draw = np.random.default_rng(seed)
    return [
        make.figures(
            vehicle_id=f"v{i}",
            silo=i,
            download_s=float(draw.uniform(0.5, 5)),
            train_s=float(draw.uniform(1, 20)),
            upload_s=float(draw.uniform(0.5, 8)),
            images=int(draw.integers(10, 500)),
            loss=float(draw.uniform(0.1, 5)),
            loss_round=int(draw.integers(0, 9)),
            **given,
        )
        for i in range(count)
    ]


def test_fastest(make: Any) -> None:
    times = {"a": (1, 9, 1), "b": (5, 1, 1), "c": (1, 1, 8), "d": (2, 4, 1)}
    crowd = [make.figures(vehicle_id=name, download_s=d, train_s=t, upload_s=u) for name, (d, t, u) in times.items()]
    assert names(policy("fastest").select(crowd, 1, make.context())) == ["b", "d", "c", "a"]


def test_feasible(make: Any) -> None:
    remaining = {"a": 7.0, "b": 6.0 * 1.2, "c": 100.0, "d": 8.0, "e": math.inf}
    crowd = [
        make.figures(
            vehicle_id=name, remaining={"straight": time_s, "history": 110.0 - time_s if time_s < 111 else 0.0}
        )
        for name, time_s in remaining.items()
    ]  # 6 s each
    assert names(policy("feasible").select(crowd, 1, make.context())) == ["b", "d", "c", "e"]
    assert names(policy("feasible", first="most").select(crowd, 1, make.context())) == ["e", "c", "d", "b"]
    assert names(policy("feasible", margin=0).select(crowd, 1, make.context())) == ["a", "b", "d", "c", "e"]
    assert names(policy("feasible", predictor="history").select(crowd, 1, make.context())) == ["c", "d", "b", "a"]
    with pytest.raises(InputError, match=r"selection\.margin must be between 0 and 1000"):
        policy("feasible", margin=-0.1)


def test_age(make: Any) -> None:
    crowd = [make.figures(vehicle_id=f"v{silo}", silo=silo) for silo in (1, 2, 3, 1)]
    age = policy("age")
    age.after_round([ended(1, 0), ended(2, 0), ended(3, 0, "stale")])
    age.after_round([ended(1, 1), ended(2, 1, "left_upload")])
    assert names(age.select(crowd, 1, make.context(round=2))) == ["v3", "v2", "v1", "v1"]


def test_sharpest(make: Any) -> None:
    crowd = [make.figures(vehicle_id=name, level_px=level) for name, level in (("a", 3.0), ("b", 0.5), ("c", 2.0))]
    assert names(policy("sharpest").select(crowd, 1, make.context())) == ["b", "c", "a"]


@pytest.mark.parametrize("seed", range(5))
def test_power_of_choice_keeps_the_largest_losses_of_those_drawn(make: Any, seed: int) -> None:
    waiting = crowd(make, seed)
    waiting[4].loss = None
    generator = np.random.default_rng(seed)
    sizes = np.array([c.images for c in waiting], float)
    drawn = [waiting[i] for i in generator.choice(7, 4, replace=False, p=sizes / sizes.sum())]
    expected = sorted(drawn, key=lambda c: math.inf if c.loss is None else c.loss, reverse=True)
    moment = make.context(generator=np.random.default_rng(seed))
    assert names(policy("power-of-choice", drawn=4).select(waiting, 2, moment)) == names(expected)


def test_power_of_choice_draws_by_size_and_never_fewer_than_places(make: Any) -> None:
    waiting = [make.figures(vehicle_id=f"v{i}", images=size) for i, size in enumerate((900, 100, 0, None))]
    assert len(policy("power-of-choice", drawn=1).select(waiting, 3, make.context())) == 3
    assert len(policy("power-of-choice", drawn=9).select(waiting, 1, make.context())) == 4
    generator = np.random.default_rng(1)
    one = policy("power-of-choice", drawn=1)
    first = [one.select(waiting, 1, make.context(generator=generator))[0].vehicle_id for _ in range(2000)]
    assert first.count("v0") / 2000 == pytest.approx(900 / 1002, abs=0.03)


def oort_utility(candidate: Any, clip: float, round_index: int, preferred_s: float, alpha: float) -> float:
    statistical = min(candidate.images * abs(candidate.loss), clip)
    whole = statistical + math.sqrt(0.1 * math.log(round_index + 1) / (candidate.loss_round + 1))
    penalty = 1.0 if candidate.duration_s <= preferred_s else (preferred_s / candidate.duration_s) ** alpha
    return whole * penalty


@pytest.mark.parametrize("seed", range(5))
def test_oort_scores(make: Any, seed: int) -> None:
    waiting = crowd(make, seed)
    oort = policy("oort", preferred_s=12.0, alpha=1.5, clip=0.8, explored=0.0, explored_least=0.0)
    clip = float(np.percentile([c.images * c.loss for c in waiting], 80))
    expected = [oort_utility(c, clip, 9, 12.0, 1.5) for c in waiting]
    assert oort.utilities(waiting, [one.loss_and_round for one in waiting], 9) == pytest.approx(expected, rel=1e-12)
    best = [name for _, name in sorted(zip(expected, names(waiting), strict=True), reverse=True)]
    assert names(oort.select(waiting, 2, make.context(round=9))) == best


def test_oort_explores_a_share_that_falls_and_prefers_fast_ones(make: Any) -> None:
    fresh = [make.figures(vehicle_id="slow", train_s=27.0), make.figures(vehicle_id="fast", train_s=0.0)]
    waiting = [make.figures(vehicle_id="known", loss=1.0, loss_round=0), *fresh]
    generator, oort = np.random.default_rng(3), policy("oort")

    def shares(round_index: int) -> dict[str, float]:
        moment = make.context(round=round_index, generator=generator)
        first = [next(iter(oort.select(waiting, 1, moment))).vehicle_id for _ in range(3000)]
        return {name: first.count(name) / 3000 for name in ("known", "slow", "fast")}

    begin, late = shares(0), shares(200)
    assert begin["known"] == pytest.approx(0.1, abs=0.03)
    assert shares(10)["known"] == pytest.approx(1 - 0.9 * 0.95**10, abs=0.04)
    assert late["known"] == pytest.approx(0.8, abs=0.03)
    assert begin["fast"] / begin["slow"] == pytest.approx(10, rel=0.3), "3 s against 30 s"
    assert sorted(names(oort.select(waiting, 1, make.context()))) == ["fast", "known", "slow"]


def length_s(chosen: Any) -> float:
    """Return how long a FedCS round of ``chosen`` lasts, in that order."""
    theta = 0.0
    for candidate in chosen:
        theta += candidate.upload_s + max(0.0, candidate.train_s - theta)
    return max((c.download_s for c in chosen), default=0.0) + theta


@pytest.mark.parametrize("seed", range(8))
def test_fedcs_adds_what_lengthens_the_round_least(make: Any, seed: int) -> None:
    waiting, deadline_s = crowd(make, seed), 22.0
    chosen: list[Any] = []
    left = list(waiting)
    while left:  # by the length of the whole round, tried with each
        best = min(left, key=lambda c: length_s([*chosen, c]))
        left.remove(best)
        if length_s([*chosen, best]) <= deadline_s:
            chosen.append(best)
    found = list(policy("fedcs").select(waiting, 3, make.context(now_s=70.0, deadline_s=70.0 + deadline_s)))
    assert names(found) == names(chosen)
    assert 0 < len(found) < len(waiting)
    assert length_s(found) <= deadline_s


@pytest.mark.parametrize("seed", range(5))
def test_fedcs_is_the_largest_set_where_only_uploads_differ(make: Any, seed: int) -> None:
    draw = np.random.default_rng(seed)
    waiting = [
        make.figures(vehicle_id=f"v{i}", download_s=1.0, train_s=0.0, upload_s=float(draw.uniform(1, 9)))
        for i in range(7)
    ]
    subsets = (some for size in range(8) for some in itertools.combinations(waiting, size))
    largest = max(len(some) for some in subsets if length_s(some) <= 20.0)
    assert len(list(policy("fedcs").select(waiting, 7, make.context(deadline_s=20.0)))) == largest


def test_bandit(make: Any) -> None:
    bandit = policy("bandit", c=0.7, scale_s=40.0)
    rounds = [[ended(0), ended(1, took_s=30.0)], [ended(0, outcome="left_upload"), ended(1), ended(2, took_s=50.0)]]
    for records in rounds:
        bandit.after_round([*records, ended(5, outcome="not_selected")])
    rewards = {0: [1 - 6 / 40, 0.0], 1: [1 - 30 / 40, 1 - 6 / 40], 2: [0.0]}
    for silo, told in rewards.items():
        expected = np.mean(told) + 0.7 * math.sqrt(math.log(5) / len(told))
        assert bandit.bound(silo) == pytest.approx(expected, rel=1e-12)
    waiting = [make.figures(vehicle_id=f"v{silo}", silo=silo) for silo in (0, 1, 2, 5)]
    assert names(bandit.select(waiting, 1, make.context())) == ["v5", "v1", "v0", "v2"]


@pytest.mark.parametrize("seed", range(5))
def test_variability_has_the_least_dice_overlap_of_all_choices(make: Any, seed: int) -> None:
    draw = np.random.default_rng(seed)
    variability = policy("variability", recent=3)
    recent = [{int(silo) for silo in draw.choice(7, draw.integers(1, 5), replace=False)} for _ in range(5)]
    for silos in recent:
        variability.after_round([*(ended(silo) for silo in silos), ended(6, outcome="stale")])

    def overlap(chosen: Any) -> float:
        silos = {candidate.silo for candidate in chosen}
        return sum(2 * len(silos & past) / (len(silos) + len(past)) for past in recent[-3:])

    waiting = crowd(make, seed)
    chosen = variability.select(waiting, 3, make.context())[:3]
    least = min(overlap(some) for some in itertools.combinations(waiting, 3))
    assert overlap(chosen) == pytest.approx(least, rel=1e-12)
    assert len(variability.select(waiting, 3, make.context())) == 7


def test_variability_weighs_a_round_by_the_size_of_both(make: Any) -> None:
    variability = policy("variability")
    for silos in ((0, 5, 6), (0, 7, 8), (1,)):
        variability.after_round([ended(silo) for silo in silos])
    waiting = [make.figures(vehicle_id=f"v{silo}", silo=silo) for silo in (0, 1)]
    assert names(variability.select(waiting, 3, make.context())) == ["v1", "v0"], "2 / 4 against 2 * 2 / 6"
    assert names(variability.select(waiting, 1, make.context())) == ["v0", "v1"], "2 / 2 against 2 * 2 / 4, as entered"


def test_those_that_look_at_losses_say_so() -> None:
    says = {name for name in SELECTIONS.names() if getattr(SELECTIONS.find(name), "uses_losses", False)}
    assert says == {"oort", "power-of-choice"}
