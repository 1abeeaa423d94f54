"""What selection policies ask of updates, and weights of one over the chance: oracles and the law of no bias."""

import math
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from learners.aggregation.asynchronous import FedBuff
from learners.aggregation.means import Sync
from learners.classification_fedavg import ClassificationFedAvg
from learners.mathematics.robust import AveragingSettings
from learners.state.models import Models
from learners.state.server import Server
from learners.steering_baselines import DecentralisedSgd
from vnetsim.errors import InputError, RunError
from vnetsim.experiment import ExchangeSettings
from vnetsim.learning import AGGREGATOR, GRADIENT_NORM, SIMILARITY, ModelKey, Participant, Update
from vnetsim.simulation.selection import SelectionContext
from vnetsim.simulation.selection.mach import MachSelection, inclusion
from vnetsim.simulation.selection.middle import LeastSimilarSelection

NORMS = [0.2, 1.0, 1.5, 2.0, 4.0, 30.0]


def waiting(figures: list[Any]) -> list[Any]:
    return [SimpleNamespace(vehicle_id=f"v{i}", figures=one) for i, one in enumerate(figures)]


def moment(seed: int = 0, cloud_round: int = 0) -> SelectionContext:
    return SelectionContext(
        now_s=0.0,
        round=9,
        open_s=0.0,
        deadline_s=60.0,
        in_flight=0,
        generator=np.random.default_rng(seed),
        cloud_round=cloud_round,
    )


def server(model: Any = (0.5, -2.0), *, aggregators: tuple[str, ...] = (AGGREGATOR,), **given: Any) -> Server:
    """A server of a model of some parameters "w" and a statistic "mean"."""
    models = Models({"w": torch.tensor(model, dtype=torch.float64), "mean": torch.zeros(1)}, max_staleness=0,
                    aggregators=aggregators)  # fmt: skip
    given = {"settings": AveragingSettings(), "rule": Sync(), **given}
    return Server(models, given.pop("settings"), given.pop("rule"), parameters=["w"], **given)


def update(place: int, value: Any, chance: float = 1.0, aggregator: str = AGGREGATOR) -> Update:
    who = Participant(
        round=0, base=ModelKey(aggregator, 0), vehicle_id=f"v{place}", rsu_id="r", silo=place, speed_mps=1.0,
        level_px=0.0, chance=chance,
    )  # fmt: skip
    state = {"w": torch.tensor(value, dtype=torch.float64), "mean": torch.full((1,), float(place))}
    return Update(participant=who, state=state, loss=0.0, finite=True)


@pytest.mark.parametrize("places", [1, 2, 3, 5, 6])
def test_chances_are_proportional_but_for_those_at_1_and_sum_to_the_places(places):
    chances = inclusion(np.array(NORMS), places)
    assert chances.sum() == pytest.approx(places, rel=1e-12)
    below = chances < 1
    factors = chances[below] / np.array(NORMS)[below]
    assert factors == pytest.approx(factors[:1].repeat(len(factors)), rel=1e-12)
    assert all(factor * norm >= 1 for factor in factors[:1] for norm in np.array(NORMS)[~below])
    assert inclusion(np.array([0.0, 0.0, 3.0]), 2) == pytest.approx([0.5, 0.5, 1.0])


def test_vehicles_are_drawn_with_these_chances_always_as_many_as_there_are_places():
    rules, context, drawn, draws = MachSelection(exploration=0.0), moment(), Counter[str](), 5000
    for _ in range(draws):
        chosen = [one.vehicle_id for one in rules.select(waiting([[(norm, 8)] for norm in NORMS]), 3, context)]
        assert len({*chosen}) == 3
        drawn.update(chosen)
    expected = inclusion(np.array(NORMS), 3)
    assert [drawn[f"v{i}"] / draws for i in range(6)] == pytest.approx(expected, abs=0.024)
    assert [context.chances[f"v{i}"] for i in range(6)] == pytest.approx(expected)


def test_the_bound_is_of_updates_since_the_cloud_and_the_untried_have_the_greatest():
    candidates = waiting([[(9.0, 3), (1.0, 4), (2.0, 6)], [(4.0, 5)], [], [(50.0, 1)]])
    known = [1.5 + 0.5 * 4 * math.sqrt(2 * math.log(3) / 2), 4 + 0.5 * 4 * math.sqrt(2 * math.log(3))]
    assert MachSelection(exploration=0.5).bounds(candidates, 4) == pytest.approx([*known, known[1], known[1]])
    assert MachSelection().bounds(candidates, 7) == pytest.approx([1, 1, 1, 1]), "nobody is known"


@pytest.mark.parametrize("places", [2, pytest.param(3, marks=pytest.mark.all_only)])
def test_the_expected_aggregate_is_that_of_full_participation(places):
    """Within four standard errors, whereas weights that sum to 1 in each draw, or equal ones, are off by far more."""
    values = np.array([3.0, -1.0, 0.5, 2.0, -4.0, 10.0])
    rules, context = MachSelection(exploration=0.0), moment(3)
    crowd = waiting([[(norm, 8)] for norm in NORMS])
    made, equal = [], []
    for _ in range(1500):
        chosen = [one.vehicle_id for one in rules.select(crowd, places, context)]
        who = [int(name[1:]) for name in chosen]
        updates = [update(i, [values[i], 1.0], context.chances[f"v{i}"] * len(crowd) / places) for i in who]
        folded = server().fold(updates)
        assert folded.weights.sum() == pytest.approx(1)
        made.append(float(folded.state["w"][0]))
        equal.append(values[who].mean())
    error = np.std(made) / math.sqrt(len(made))
    assert np.mean(made) == pytest.approx(values.mean(), abs=4 * error)
    assert abs(np.mean(equal) - values.mean()) > 5 * error


def test_what_weights_lack_to_1_is_the_models_and_statistics_are_a_mean(monkeypatch):
    """By hand: p / chance = 1/2 / 2 and 1/2 / 0.8, together .875."""
    told: list[float] = []
    aggregate = Sync.aggregate
    monkeypatch.setattr(
        Sync, "aggregate", lambda self, given: told.extend(u.weight for u in given.uploads) or aggregate(self, given)
    )
    folded = server((4.0, 0.0)).fold([update(1, [8.0, 0.0], 2.0), update(2, [0.0, 8.0], 0.8)])
    assert folded.state["w"].tolist() == pytest.approx([0.25 * 8 + 0.125 * 4, 0.625 * 8])
    assert folded.weights.tolist() == told == pytest.approx([0.25 / 0.875, 0.625 / 0.875])
    assert float(folded.state["mean"]) == pytest.approx((0.25 * 1 + 0.625 * 2) / 0.875)
    twice = server((4.0, 0.0)).fold([update(1, [5.0, 2.0], 0.5)])
    assert twice.state["w"].tolist() == pytest.approx([4 + 2 * 1, 0 + 2 * 2]), "one that was unlikely counts double"
    nothing = server((4.0, 0.0), weigh=lambda _: np.zeros(1)).fold([update(1, [5.0, 2.0], 0.5)])
    assert (nothing.state["w"].tolist(), nothing.weights.tolist()) == ([4.0, 0.0], [0.0])
    for wrong in ({"rule": FedBuff()}, {"settings": AveragingSettings(aggregation="median")}):
        with pytest.raises(RunError, match=r"selection\.name: its policy has updates weigh 1 / q"):
            server(**wrong).fold([update(1, [8.0, 0.0], 2.0)])


def test_figures_are_those_of_the_papers():
    one = update(1, [3.5, 2.0])
    cosine = (0.5 * 3 + -2 * 4) / (math.sqrt(0.25 + 4) * 5)
    assert server(figure=SIMILARITY).figure_of(one.participant, one.state) == max(0, cosine) == 0
    assert server((1.0, 0.0), figure=SIMILARITY).figure_of(one.participant, one.state) == pytest.approx(
        2.5 / math.hypot(2.5, 2)
    )
    assert server(figure=GRADIENT_NORM, travel=lambda _: 0.1).figure_of(one.participant, one.state) == pytest.approx(50)
    assert server().figure_of(one.participant, one.state) is None
    under = server(aggregators=("r", "cloud"), figure=SIMILARITY)
    under.models.put({"w": torch.tensor([1.0, 0.0], dtype=torch.float64), "mean": torch.zeros(1)}, ModelKey("cloud", 1))
    whose = replace(one.participant, base=ModelKey("r", 0))
    assert under.figure_of(whose, one.state) == pytest.approx(2.5 / math.hypot(2.5, 2)), "the cloud's newest"
    with pytest.raises(InputError, match=r"selection\.name: its policy asks for 'norm' of every update"):
        server(figure="norm")


def test_least_similar_first_and_who_never_took_part_like_one_that_changed_nothing():
    crowd = waiting([[(0.0, 1), (0.7, 2)], [(0.9, 2), (0.1, 3)], [], [(0.0, 2)]])
    orders = [[one.vehicle_id for one in LeastSimilarSelection().select(crowd, 1, moment(seed))] for seed in range(40)]
    assert {tuple(order) for order in orders} == {("v2", "v3", "v1", "v0"), ("v3", "v2", "v1", "v0")}


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("figure", [SIMILARITY, GRADIENT_NORM])
def test_a_learner_tells_the_figure_of_every_update_also_where_they_are_averaged_as_they_come(
    figure, new_context, participant, monkeypatch
):
    quick = ClassificationFedAvg.Settings(batch=4, steps=2)
    learner = ClassificationFedAvg.create(new_context(figure=figure), quick)
    who = [participant(0, 0), participant(0, 1), participant(0, 2)]
    updates = learner.train(who)
    held = [one.figure for one in updates]
    if figure == GRADIENT_NORM:  # of two steps of 0.05
        names, start = [name for name, _ in learner._task.network.named_parameters()], learner._models.newest()
        moved = [float((updates[0].state[name].double() - start[name]).norm()) for name in names]
        assert held[0] == pytest.approx(math.hypot(*moved) / (2 * 0.05))
    assert len({*held}) == (3 if figure == GRADIENT_NORM else 1), "U is 0 where a change points away from the model"
    assert all(value is not None and value >= 0 for value in held)
    monkeypatch.setattr("learners.local_training.HELD_BYTES", 1)
    streamed = learner.train(who)
    assert not any(one.state for one in streamed)
    assert [one.figure for one in streamed] == held
    plain = ClassificationFedAvg.create(new_context(), quick)
    assert [one.figure for one in plain.train(who)] == [None, None, None]


@pytest.mark.usefixtures("on_tiny_roads")
def test_neighbours_that_mix_have_no_such_figure(new_context):
    context = new_context(figure=SIMILARITY, exchange=ExchangeSettings(topology="ring"))
    with pytest.raises(InputError, match=r"selection\.name: its policy chooses by the 'similarity' of updates"):
        DecentralisedSgd.create(context, DecentralisedSgd.Settings(batch=4, steps=1))
