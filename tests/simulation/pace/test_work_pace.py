"""A pace that plans rounds and ends training early: what it answers is checked, and whom it does not suit refused."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from vnetsim.errors import InputError, RunError
from vnetsim.experiment import RoundSettings
from vnetsim.learning import Cost, Exchange
from vnetsim.simulation.invitations import Invitations
from vnetsim.simulation.pace import PlannedRound, RoundState
from vnetsim.simulation.plugins import simulation_plugins
from vnetsim.simulation.selection.rules import ArrivalSelection

STATE = RoundState(
    round=3, open_s=10.0, now_s=12.0, invited=0, in_flight=0, committed=0, close_s=70.0, rules=RoundSettings(),
    planned_share=1.0,
)  # fmt: skip


def invitations(**answers: Any) -> tuple[Invitations, Any]:
    """Return what asks a pace of these answers, and a window of a vehicle of 8 steps."""

    class Mine:
        name = "mine"

    for name, answer in answers.items():
        setattr(Mine, name, lambda *_, answer=answer: answer)
    steps = answers.get("steps", 8)
    world = SimpleNamespace(cost=lambda _: SimpleNamespace(steps=steps))
    state: Any = SimpleNamespace(advance=lambda *_: None, world=world)
    window: Any = SimpleNamespace(vehicle=SimpleNamespace(silo=0), path=None)
    pace: Any = Mine()
    return Invitations(
        policy=ArrivalSelection(), generator=np.random.default_rng(0), pace=pace, selection_state=state
    ), window


@pytest.mark.parametrize(
    ("given", "share"),
    [(1.0, 1.0), (0.0, 1 / 8), (0.3, 2 / 8), (3 / 8, 3 / 8), (0.1 + 0.2 + 0.075, 3 / 8), (0.99, 7 / 8)],
)
def test_a_share_is_of_whole_steps_and_at_least_one(given, share):
    made, window = invitations(share=given)
    assert made.share(window, STATE) == share
    made, window = invitations(share=given, steps=0)
    assert made.share(window, STATE) == 1


def test_without_answers_of_its_own_it_changes_nothing():
    made, window = invitations()
    assert (made.share(window, STATE), made.plan_length_s(STATE), [*made.select(1, STATE)]) == (1.0, None, [])
    made, _ = invitations(plan=PlannedRound(length_s=5.0))
    assert (made.plan_length_s(STATE), made.planned_share) == (5.0, 1.0)


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        (
            {"share": math.nan},
            "pace 'mine' failed in share in round 3: it returned nan, expected a finite number between",
        ),
        ({"share": 1.5}, "it returned 1.5, expected a finite number between 0 and 1"),
        ({"share": None}, "it returned None, expected a finite number"),
        (
            {"plan": PlannedRound(length_s=0.0)},
            "failed in plan in round 3: it returned 0.0, expected a finite number between 1e-9",
        ),
        ({"plan": "soon"}, "it returned 'soon', expected PlannedRound"),
        (
            {"plan": PlannedRound(length_s=1.0, share=7)},
            "in plan in round 3: it returned 7, expected a finite number between",
        ),
    ],
)
def test_an_answer_outside_its_bounds_is_told_by_name(answers, words):
    made, window = invitations(**answers)
    with pytest.raises(RunError) as error:
        _ = (made.share(window, STATE), made.plan_length_s(STATE), [*made.select(1, STATE)])
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("rules", "cost", "words"),
    [
        ({"pace": "early-upload"}, {}, "pace.name: 'early-upload' ends the training after some of"),
        ({"pace": "mob-fl"}, {}, "and that of toy cannot be divided (its cost names no steps)"),
        ({"pace": "mob-fl"}, {"steps": 4, "exchange": True}, "'mob-fl' has no place for the exchange of toy"),
        ({"pace": "coverage"}, {"exchange": True}, "'coverage' has no place for the exchange of toy"),
        ({"handover": {"policy": "carry"}}, {"exchange": True}, "handover.policy: vehicles of toy exchange with each"),
        ({"pace": "early-upload"}, {"steps": 4}, ""),
        ({"handover": {"policy": "carry"}}, {}, ""),
        ({}, {"exchange": True}, ""),
    ],
)
def test_a_learner_that_does_not_suit_is_refused_by_name(rules, cost, words, scene):
    settings = scene.experiment(**rules)
    exchange = Exchange(before_training=True, mutual=False, send_bytes=1) if cost.get("exchange") else None
    asked = Cost(download_bytes=1, upload_bytes=1, work_flop=1.0, steps=cost.get("steps", 0), exchange=exchange)
    if not words:
        simulation_plugins(settings).check_learner("toy", asked, settings.handover)
        return
    with pytest.raises(InputError) as error:
        simulation_plugins(settings).check_learner("toy", asked, settings.handover)
    assert words in str(error.value)
