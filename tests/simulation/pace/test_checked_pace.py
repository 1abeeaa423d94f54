"""A pace that plans rounds and ends training early: what it answers is checked, and whom it does not suit refused."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from vnetsim.errors import InputError, RunError
from vnetsim.learning import Cost, Exchange
from vnetsim.simulation.pace import RoundState, WorkPace
from vnetsim.simulation.pace.checked import CheckedPace
from vnetsim.simulation.plugins import simulation_plugins

STATE = RoundState(round=3, open_s=10.0, now_s=12.0, invited=0, in_flight=0, committed=0)
CANDIDATE: Any = SimpleNamespace(vehicle_id="a", steps=8)


def pace(**answers: Any) -> CheckedPace:
    class Mine(WorkPace):
        name = "mine"

    for name, answer in answers.items():
        setattr(Mine, name, answer if name == "planned_share" else lambda *_, answer=answer: answer)
    return CheckedPace(Mine())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "share"),
    [(1.0, 1.0), (0.0, 1 / 8), (0.3, 2 / 8), (3 / 8, 3 / 8), (0.1 + 0.2 + 0.075, 3 / 8), (0.99, 7 / 8)],
)
def test_a_share_is_of_whole_steps_and_at_least_one(given: float, share: float) -> None:
    assert pace(share=given).share(CANDIDATE, STATE) == share
    assert pace(share=given).share(SimpleNamespace(vehicle_id="a", steps=0), STATE) == 1  # type: ignore[arg-type]


def test_without_answers_of_its_own_it_changes_nothing() -> None:
    plain = pace()
    assert (plain.share(CANDIDATE, STATE), plain.plan([CANDIDATE], STATE), plain.takes(CANDIDATE, STATE)) == (
        1.0,
        None,
        True,
    )
    assert plain.planned_share == 1


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        (
            {"share": math.nan},
            "pace 'mine' gave vehicle 'a' a share of nan of the training in round 3; it must",
        ),
        ({"share": 1.5}, "gave vehicle 'a' a share of 1.5"),
        ({"share": -0.1}, "gave vehicle 'a' a share of -0.1"),
        ({"share": None}, "pace 'mine' failed in round 3: TypeError"),
        ({"plan": math.nan}, "pace 'mine' gave a deadline of nan s in round 3; it must be above 0."),
        ({"plan": 0}, "gave a deadline of 0.0 s in round 3"),
        ({"plan": "soon"}, "pace 'mine' failed in round 3: ValueError"),
        ({"planned_share": math.nan}, "pace 'mine' planned a share of nan of the training"),
        ({"planned_share": None}, "pace 'mine' failed when asked for its planned share: TypeError"),
    ],
)
def test_nonsense_is_told_by_name(answers: dict[str, Any], words: str) -> None:
    asked = pace(**answers)
    with pytest.raises(RunError) as error:
        _ = (asked.share(CANDIDATE, STATE), asked.plan([CANDIDATE], STATE), asked.planned_share)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("rules", "cost", "words"),
    [
        ({"participation": "early-upload"}, {}, "round.participation: 'early-upload' ends the training after some of"),
        ({"participation": "mob-fl"}, {}, "and that of toy cannot be divided (its cost names no steps)"),
        ({"participation": "mob-fl"}, {"steps": 4, "exchange": True}, "'mob-fl' has no place for the exchange of toy"),
        ({"participation": "coverage"}, {"exchange": True}, "'coverage' has no place for the exchange of toy"),
        ({"training_outside": True}, {"exchange": True}, "round.training_outside: vehicles of toy exchange with each"),
        ({"participation": "early-upload"}, {"steps": 4}, ""),
        ({"training_outside": True}, {}, ""),
        ({}, {"exchange": True}, ""),
    ],
)
def test_a_learner_that_does_not_suit_is_refused_by_name(
    rules: dict[str, Any], cost: dict[str, Any], words: str, scene: Any
) -> None:
    settings = scene.experiment(**rules)
    exchange = Exchange(before_training=True, mutual=False, send_bytes=1) if cost.get("exchange") else None
    asked = Cost(download_bytes=1, upload_bytes=1, work_flop=1.0, steps=cost.get("steps", 0), exchange=exchange)
    if not words:
        simulation_plugins(settings).check_learner("toy", asked, settings.round)
        return
    with pytest.raises(InputError) as error:
        simulation_plugins(settings).check_learner("toy", asked, settings.round)
    assert words in str(error.value)
