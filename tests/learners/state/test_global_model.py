"""Which global models are kept, and that saving and restoring loses nothing."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load, save

from learners.state.global_model import GlobalModel
from vnetsim.errors import InputError, RunError


def model(value: float) -> dict[str, torch.Tensor]:
    return {"layer.weight": torch.full((2, 2), value), "layer.count": torch.tensor(int(value))}


def history(rounds: int, max_staleness: int) -> GlobalModel:
    models = GlobalModel(model(0), max_staleness=max_staleness)
    for r in range(rounds):
        models.advance(model(r + 1))
    return models


@pytest.mark.parametrize("max_staleness", [0, 2])
def test_keeps_what_staleness_needs(max_staleness: int) -> None:
    models = history(5, max_staleness)
    for base_round in range(5 - max_staleness, 6):
        assert models.at(base_round)["layer.count"].item() == base_round
    assert models.current is models.at(5)
    with pytest.raises(RunError, match="no global model of round 2"):
        models.at(4 - max_staleness if max_staleness else 2)
    with pytest.raises(RunError, match="no global model of round 6"):
        models.at(6)


def test_restores_what_it_saved_through_safetensors() -> None:
    models = history(3, 1)
    models.advance(models.current)  # a kept model is the same object twice; the file must not share memory
    saved = load(save(models.state_dict()))
    assert {key.rsplit(".", 2)[0] for key in saved} == {"round", "model", "snapshot.3"}
    restored = GlobalModel(model(0), max_staleness=1)
    restored.load_state_dict(saved)
    assert restored.round == 4
    for r in (3, 4):
        assert restored.at(r).keys() == models.at(r).keys()
        assert all(torch.equal(restored.at(r)[name], tensor) for name, tensor in models.at(r).items())


def test_saved_tensors_are_independent() -> None:
    models = history(0, 0)
    models.state_dict()["model.layer.weight"].fill_(9)
    assert models.current["layer.weight"].eq(0).all()


@pytest.mark.parametrize(
    "change",
    [
        {"model.layer.weight": torch.zeros(3, 2)},
        {"model.layer.weight": torch.zeros(2, 2, dtype=torch.float64)},
        {"model.other": torch.zeros(1)},
        {"snapshot.0.layer.weight": torch.zeros(2, 2)},
        {"snapshot.x": torch.zeros(1)},
        {"snapshot.x.layer.weight": torch.zeros(2, 2)},
        {"model.layer.weight": None},
        {"round": None},
    ],
)
def test_refuses_another_model(change: dict[str, torch.Tensor | None]) -> None:
    models = history(1, 0)
    saved = {key: tensor for key, tensor in (models.state_dict() | change).items() if tensor is not None}
    with pytest.raises(InputError, match="does not fit this learner's settings"):
        models.load_state_dict(saved)
    assert models.round == 1
    assert models.current["layer.weight"].eq(1).all()


def test_a_round_that_is_not_kept_is_told_with_those_that_are() -> None:
    models = GlobalModel(model(0), max_staleness=2)
    for round_ in range(1, 6):
        models.advance(model(round_))
    with pytest.raises(RunError, match=r"^no global model of round 2: those of rounds 3 to 5 are kept\.$"):
        models.at(2)
