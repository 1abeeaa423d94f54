"""What is checked of a learner's updates, without one."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from vnetsim.errors import RunError
from vnetsim.learning import AGGREGATOR, Aggregation, ModelKey, Participant, Update
from vnetsim.learning.device import OUT_OF_MEMORY, all_finite
from vnetsim.learning.faults import aggregate_checked, train_checked


def participants(count: int) -> list[Participant]:
    return [
        Participant(
            round=2, base=ModelKey(AGGREGATOR, 2), vehicle_id=f"v{i}", rsu_id="r", silo=i, speed_mps=10.0, level_px=1.0
        )
        for i in range(count)
    ]


class Given:
    """A learner that uploads states given to it, or fails."""

    name = "given"

    def __init__(self, *states: dict[str, torch.Tensor], error: Exception | None = None) -> None:
        self.states, self.error = states, error

    def train(self, participants: list[Participant]) -> list[Update]:
        if self.error is not None:
            raise self.error
        pairs = zip(participants, self.states, strict=True)
        return [Update(participant=who, state=state, loss=1.0, finite=True) for who, state in pairs]


@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError("x"), *map(RuntimeError, OUT_OF_MEMORY)])
def test_where_memory_did_not_suffice_a_hint_is_given(error):
    given: Any = Given(error=error)
    told = (
        r"^learner 'given' failed in train in round 2: .* Lower learning\.batch or take a smaller learning\.encoder\.$"
    )
    with pytest.raises(RunError, match=told):
        train_checked(given, participants(3), {})


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_an_update_that_is_not_finite_is_marked_so(value):
    def state(bad: float = 1.0) -> dict[str, torch.Tensor]:
        return {
            "weights": torch.tensor([[3e38, -3e38], [0.0, bad]]),
            "count": torch.tensor(2**62),
            "none": torch.zeros(0, 4),
            "lower": torch.ones(2, dtype=torch.bfloat16),
        }

    learner: Any = Given(state(), state(value), {name: tensor.clone() for name, tensor in state().items()})
    assert [update.finite for update in train_checked(learner, participants(3), {})] == [True, False, True]


def test_an_update_may_weigh_nothing():
    made = Aggregation(weights=[0.0, 1.0], metrics={})
    learner: Any = SimpleNamespace(name="given", aggregate=lambda _: made)
    updates = [Update(participant=who, state={}, loss=1.0, finite=True) for who in participants(2)]
    assert aggregate_checked(learner, updates, "in aggregate in round 2") is made


def test_all_values_are_looked_at_and_groups_without_numbers_are_finite():
    assert all_finite([]) == []
    assert all_finite([[], [torch.zeros(0)], [torch.tensor(3)]]) == [True] * 3
    fine = [torch.full((3, 2), -1e38), torch.tensor([1e308], dtype=torch.float64), torch.ones(2, dtype=torch.complex64)]
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64):
        for value in (torch.inf, -torch.inf, torch.nan):
            wrong = torch.ones(5, dtype=dtype)
            wrong[3] = complex(1, value) if dtype.is_complex else value
            assert all_finite([fine, [*fine, wrong], [wrong, *fine], fine]) == [True, False, False, True], (
                dtype,
                value,
            )
