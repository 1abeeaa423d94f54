"""Each selection policy against an independent reference of a few lines, on hand-made candidates."""

import dataclasses
import itertools
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from vnetsim.simulation.selection import SELECTIONS, oort


class Played:
    """A policy with its memory of one run."""

    def __init__(self, rules: Any) -> None:
        self.rules = rules
        self.memory = rules.begin() if hasattr(rules, "begin") else None

    def select(self, candidates: Any, free: int, context: Any) -> Any:
        return self.rules.select(candidates, free, dataclasses.replace(context, memory=self.memory))

    def after_round(self, records: Any) -> None:
        self.rules.after_round(records, self.memory)


def policy(policy_name: str, **settings: Any) -> Played:
    return Played(SELECTIONS.find(policy_name)(**settings))


def names(chosen: Any) -> list[str]:
    return [candidate.vehicle_id for candidate in chosen]


def ended(silo: int, round_index: int, outcome: str = "committed") -> Any:
    return SimpleNamespace(silo=silo, round=round_index, outcome=outcome)


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


def test_fastest(make):
    times = {"a": (1, 9, 1), "b": (5, 1, 1), "c": (1, 1, 8), "d": (2, 4, 1)}
    crowd = [make.figures(vehicle_id=name, download_s=d, train_s=t, upload_s=u) for name, (d, t, u) in times.items()]
    assert names(policy("fastest").select(crowd, 1, make.context())) == ["b", "d", "c", "a"]


def test_feasible(make):
    remaining = {"a": 7.0, "b": 6.0 * 1.2, "c": 100.0, "d": 8.0, "e": math.inf}
    crowd = [
        make.figures(
            vehicle_id=name, remaining={"straight": time_s, "history": 110.0 - time_s if time_s < 111 else 0.0}
        )
        for name, time_s in remaining.items()
    ]  # 6 s each
    assert names(policy("feasible").select(crowd, 1, make.context())) == ["b", "d", "c", "e"]
    assert names(policy("feasible", margin=0).select(crowd, 1, make.context())) == ["a", "b", "d", "c", "e"]
    assert names(policy("feasible", predictor="history").select(crowd, 1, make.context())) == ["c", "d", "b", "a"]
    short = make.figures(vehicle_id="short", train_s=0.01, remaining={"straight": 5.0})
    assert names(policy("feasible").select([short], 1, make.context())) == ["short"]


def test_feasible_counts_the_transfers_that_share_the_airtime(make):
    """Alone it takes 3 s of training and 3 s of airtime, which is shared with what is under way and begins with it."""
    have_s = {"a": 8.0, "b": 11.0, "c": 14.0, "d": 17.0}
    moments = {(0, 1): "abcd", (1, 1): "bcd", (0, 2): "bcd", (0, 3): "bc", (1, 2): "cd", (1, 4): "cd", (9, 1): ""}
    for (transfers, free), expected in moments.items():
        crowd = [
            make.figures(vehicle_id=name, remaining={"straight": time_s}, transfers=transfers)
            for name, time_s in have_s.items()
        ]
        chosen = names(policy("feasible", margin=0).select(crowd, free, make.context()))
        assert "".join(chosen) == expected, (transfers, free)


def test_age(make):
    crowd = [make.figures(vehicle_id=f"v{silo}", silo=silo) for silo in (1, 2, 3, 1)]
    age = policy("age")
    age.after_round([ended(1, 0), ended(2, 0), ended(3, 0, "stale")])
    age.after_round([ended(1, 1), ended(2, 1, "left_upload")])
    assert names(age.select(crowd, 1, make.context(round=2))) == ["v3", "v2", "v1", "v1"]


def test_sharpest(make):
    crowd = [make.figures(vehicle_id=name, level_px=level) for name, level in (("a", 3.0), ("b", 0.5), ("c", 2.0))]
    assert names(policy("sharpest").select(crowd, 1, make.context())) == ["b", "c", "a"]


@pytest.mark.parametrize("name", sorted({*SELECTIONS.names()} - {"arrival"}))
def test_equals_are_drawn_and_so_nobody_is_arrival_while_nobody_has_a_history(make, name):
    """Of four alike each goes first as often; in order of entry the first would always."""
    alike = [make.figures(vehicle_id=f"v{i}", silo=i, remaining={"straight": math.inf}) for i in range(4)]
    generator, chosen = np.random.default_rng(5), policy(name)
    first = [next(iter(chosen.select(alike, 1, make.context(generator=generator)))).vehicle_id for _ in range(2000)]
    assert [first.count(f"v{i}") / 2000 for i in range(4)] == pytest.approx([0.25] * 4, abs=0.04)
    again = [names(policy(name).select(alike, 4, make.context())) for _ in range(2)]
    assert again[0] == again[1], "from the selection's own stream alone"


def test_one_place_goes_to_the_fastest_by_fedcs_too(make):
    """What both pages say; with several places the next is not the second fastest."""
    alone = policy("fedcs").select([make.figures(vehicle_id="a")], 1, make.context(deadline_s=6.0))
    assert names(alone) == ["a"], "1 + 3 + 2 s end with the deadline"
    others = 0
    for seed in range(300):
        waiting = crowd(make, seed)
        fastest = names(policy("fastest").select(waiting, 2, make.context()))
        fedcs = names(policy("fedcs").select(waiting, 2, make.context(deadline_s=1e3)))
        assert fedcs[0] == fastest[0]
        others += fedcs[1] != fastest[1]
    assert others > 50


@pytest.mark.parametrize("seed", range(5))
def test_power_of_choice_keeps_the_largest_losses_of_those_drawn(make, seed):
    waiting = crowd(make, seed)
    waiting[4].loss = None
    chosen = policy("power-of-choice", drawn=4).select(waiting, 2, make.context(generator=np.random.default_rng(seed)))
    assert len({candidate.vehicle_id for candidate in chosen}) == 4
    losses = [math.inf if candidate.loss is None else candidate.loss for candidate in chosen]
    assert losses == sorted(losses, reverse=True)


def test_power_of_choice_draws_by_size_without_replacement(make):
    sizes = (60, 30, 10)
    waiting = [make.figures(vehicle_id=f"v{i}", images=size) for i, size in enumerate(sizes)]
    generator, chosen = np.random.default_rng(2), policy("power-of-choice", drawn=2)
    pairs = [tuple(names(chosen.select(waiting, 1, make.context(generator=generator)))) for _ in range(4000)]
    for one, other in itertools.permutations(range(3), 2):  # without a loss, in the order in which they were drawn
        expected = sizes[one] / 100 * sizes[other] / (100 - sizes[one])
        assert pairs.count((f"v{one}", f"v{other}")) / 4000 == pytest.approx(expected, abs=0.025)


def test_power_of_choice_draws_never_fewer_than_places_also_silos_of_no_known_size(make):
    waiting = [make.figures(vehicle_id=f"v{i}", images=size) for i, size in enumerate((900, 100, 0, None))]
    assert len(policy("power-of-choice", drawn=1).select(waiting, 3, make.context())) == 3
    assert len(policy("power-of-choice", drawn=9).select(waiting, 1, make.context())) == 4


@pytest.fixture
def unexplored(monkeypatch):
    """Every place is exploited: what a draw among utilities does can be counted."""
    for name in ("EXPLORED", "EXPLORED_LEAST"):
        monkeypatch.setattr(oort, name, 0.0)


def oort_utilities(waiting: Any, round_index: int, percentile: int, alpha: float) -> Any:
    """Scaled, clipped, with the temporal term and the penalty, each over all candidates as an array."""
    v = np.array([c.images * c.loss for c in waiting])
    reported = np.array([c.loss_round + 1 for c in waiting])
    durations = np.array([c.duration_s for c in waiting])
    preferred = np.sort(durations)[min(len(v) * percentile // 100, len(v) - 1)]
    clip = np.sort(v)[min(len(v) * 95 // 100, len(v) - 1)]
    scaled = (np.minimum(v, clip) - 0.999 * v.min()) / (v.max() - 0.999 * v.min())
    whole = scaled + np.sqrt(0.1 * np.log(round_index + 1) / reported)
    return whole * np.where(durations > preferred, (preferred / durations) ** alpha, 1.0)


@pytest.mark.usefixtures("unexplored")
@pytest.mark.parametrize("seed", range(5))
def test_oort_scores_and_draws_among_the_greatest(make, seed):
    waiting = crowd(make, seed, count=30)
    chooser = policy("oort", alpha=1.5)
    expected = oort_utilities(waiting, 9, 30, 1.5)
    for some in (waiting, waiting[:9]):  # of so few the quantile is the greatest
        found = chooser.rules.utilities(some, oort.percentile_s([c.duration_s for c in some], 30), 9, chooser.memory)
        assert found == pytest.approx(oort_utilities(some, 9, 30, 1.5), rel=1e-12)
    generator = np.random.default_rng(seed)
    first = [
        next(chooser.select(waiting, 3, make.context(round=9, generator=generator))).vehicle_id for _ in range(3000)
    ]
    pool = np.where(expected >= 0.95 * np.sort(expected)[-3], expected, 0.0)
    shares = [first.count(f"v{i}") / 3000 for i in range(30)]
    assert shares == pytest.approx((pool / pool.sum()).tolist(), abs=0.04)
    assert sorted(names(chooser.select(waiting, 3, make.context(round=9)))) == sorted(names(waiting)), "each once"


def test_oort_explores_a_share_that_falls_and_prefers_fast_ones(make):
    fresh = [make.figures(vehicle_id="slow", train_s=27.0), make.figures(vehicle_id="fast", train_s=0.0)]
    waiting = [make.figures(vehicle_id="known", loss=1.0, loss_round=0), *fresh]
    generator, chooser = np.random.default_rng(3), policy("oort")

    def shares(round_index: int) -> dict[str, float]:
        moment = make.context(round=round_index, generator=generator)
        first = [next(iter(chooser.select(waiting, 1, moment))).vehicle_id for _ in range(3000)]
        return {name: first.count(name) / 3000 for name in ("known", "slow", "fast")}

    begin, late = shares(0), shares(200)
    assert begin["known"] == pytest.approx(0.1, abs=0.03)
    assert shares(30)["known"] == pytest.approx(1 - 0.9 * 0.98**30, abs=0.04)
    assert late["known"] == pytest.approx(0.8, abs=0.03)
    assert begin["fast"] / begin["slow"] == pytest.approx(10, rel=0.3), "3 s against 30 s"
    assert sorted(names(chooser.select(waiting, 1, make.context()))) == ["fast", "known", "slow"]


@pytest.mark.usefixtures("unexplored")
def test_the_pacer_of_oort_allows_more_time_where_nothing_is_gained_and_less_where_much_is(make):
    """Against the sums by hand: windows of 20 rounds, over what was exploited and committed alone."""
    chooser = policy("oort")

    def play(loss: float, rounds: int, exploited: str) -> None:
        for _ in range(rounds):
            known = [make.figures(vehicle_id=who, images=10, loss=1.0, loss_round=0) for who in exploited]
            assert sorted(names(chooser.select(known, 1, make.context()))) == [*exploited]
            ended_now = [(who, "committed", loss) for who in exploited]
            ended_now += [("c", "committed", 1e6), ("d", "left_upload", None)]
            chooser.after_round(
                [SimpleNamespace(vehicle_id=who, silo=0, outcome=how, loss=value) for who, how, value in ended_now]
            )

    seen = []
    for loss in (0.0, 0.0, 1.0, 1.05, 1.19, 7.0, 42.0):
        play(loss, 20, "ab" if loss == 1.05 else "a")
        seen.append(chooser.memory.percentile)
    play(42.0, 19, "a")
    seen.append(chooser.memory.percentile)
    assert seen[:4] == [30, 35, 30, 35], "none before two windows; nothing either time; sharp; flat, of two in the mean"
    assert seen[4:] == [35, 35, 30, 30], "a little; not yet sharp; sharp; not before the window's end"
    play(42.0, 1, "a")
    assert chooser.memory.percentile == 35
    durations = [float(n) for n in range(1, 11)]
    assert oort.percentile_s(durations, 35) == 4.0
    assert oort.percentile_s(durations, 100) == math.inf


def test_a_silo_that_oort_tried_in_vain_is_taken_for_the_rounds_mean_and_is_untried_no_more(make):
    chooser = policy("oort")
    waiting = [make.figures(vehicle_id=f"v{silo}", silo=silo, images=20 * silo or None) for silo in range(3)]
    assert len(names(chooser.select(waiting, 3, make.context()))) == 3
    outcomes = [("v0", 0, "committed", 2.0), ("v1", 1, "committed", 3.0), ("v2", 2, "rejected", 9.0)]
    chooser.after_round(
        [SimpleNamespace(vehicle_id=who, silo=silo, outcome=how, loss=loss) for who, silo, how, loss in outcomes]
    )
    assert chooser.memory.reported(waiting[2]) == ((1 * 2.0 + 20 * 3.0) / 2, 0), "unknown images count as one"
    assert chooser.memory.achieved == [0.0], "all were explored"
    assert chooser.memory.reported(waiting[0]) is None, "its loss is what the RSU knows of it"
    assert names(chooser.select([waiting[2]], 1, make.context(round=1))) == ["v2"]
    chooser.after_round([SimpleNamespace(vehicle_id="v2", silo=2, outcome="committed", loss=1.0)])
    assert chooser.memory.reported(waiting[2]) is None


def test_the_highest_draw_of_mach_is_the_last_who_waits(make):
    generator = SimpleNamespace(permutation=np.arange, random=lambda: math.nextafter(1, 0))
    waiting = [make.figures(vehicle_id=f"v{i}") for i in range(4)]
    assert names(policy("mach").select(waiting, 3, make.context(generator=generator))) == ["v1", "v2", "v3"]


def length_s(chosen: Any) -> float:
    """Return how long a FedCS round of ``chosen`` lasts, in that order."""
    theta = 0.0
    for candidate in chosen:
        theta += candidate.upload_s + max(0.0, candidate.train_s - theta)
    return max((c.download_s for c in chosen), default=0.0) + theta


@pytest.mark.parametrize("seed", range(8))
def test_fedcs_adds_what_lengthens_the_round_least(make, seed):
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


def test_those_that_look_at_losses_say_so():
    says = {name for name in SELECTIONS.names() if getattr(SELECTIONS.find(name), "uses_losses", False)}
    assert says == {"oort", "power-of-choice", "least-similar", "mach"}
