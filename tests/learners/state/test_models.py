"""Which models of an aggregator are kept, and that saving and restoring loses nothing."""

import pytest
import torch
from safetensors.torch import load, save

from learners.state.models import Models, split_by_aggregator
from vnetsim.learning import AGGREGATOR, ModelKey


def model(value: float) -> dict[str, torch.Tensor]:
    return {"layer.weight": torch.full((2, 2), value), "layer.count": torch.tensor(int(value))}


def key(version: int) -> ModelKey:
    return ModelKey(AGGREGATOR, version)


def history(rounds: int, max_staleness: int) -> Models:
    models = Models(model(0), max_staleness=max_staleness)
    for r in range(rounds):
        models.add(model(r + 1))
    return models


@pytest.mark.parametrize("max_staleness", [0, 2])
def test_keeps_what_staleness_needs(max_staleness):
    models = history(5, max_staleness)
    for base_round in range(5 - max_staleness, 6):
        assert models[key(base_round)]["layer.count"].item() == base_round
    assert models.newest() is models[key(5)]
    for version in (2, 6):
        with pytest.raises(KeyError):
            models[key(version)]


def test_restores_what_it_saved_through_safetensors():
    models = history(3, 1)
    models.add(models.newest())  # a kept model is the same object twice; the file must not share memory
    saved = load(save(models.state_dict()))
    assert {key.rsplit(".", 2)[0] for key in saved} == {"round", "model", "snapshot.3"}
    restored = Models(model(0), max_staleness=1)
    restored.load_state_dict({AGGREGATOR: saved})
    for tensor in saved.values():
        tensor.zero_()  # it is the caller's
    assert restored.versions() == [3, 4]
    for r in (3, 4):
        assert restored[key(r)].keys() == models[key(r)].keys()
        assert all(torch.equal(restored[key(r)][name], tensor) for name, tensor in models[key(r)].items())


@pytest.mark.parametrize(
    "change",
    [
        {"model.layer.weight": torch.zeros(3, 2)},
        {"model.layer.weight": torch.zeros(2, 2, dtype=torch.float64)},
        {"model.other": torch.zeros(1)},
        {"snapshot.0.layer.weight": torch.zeros(2, 2)},
        {"snapshot.x.layer.weight": torch.zeros(2, 2)},
        {"model.layer.weight": None},
        {"round": None},
    ],
)
def test_refuses_another_model(change):
    models = history(1, 0)
    saved = {key: tensor for key, tensor in (models.state_dict() | change).items() if tensor is not None}
    with pytest.raises((KeyError, ValueError)):  # which a run reports as a checkpoint of another learner
        models.load_state_dict({AGGREGATOR: saved})
    assert models.versions() == [1]
    assert models.newest()["layer.weight"].eq(1).all()


def test_aggregators_have_versions_of_their_own():
    names = [AGGREGATOR, "RSU 2", "new"]
    models, restored = (Models(model(0), max_staleness=1, aggregators=names) for _ in range(2))
    for r in range(3):
        models.add(model(r + 1))
    models.add(model(7), "RSU 2")
    assert models.aggregators == names
    assert (models.versions(), models.versions("RSU 2"), models.versions("new")) == ([2, 3], [0, 1], [0])
    assert models[ModelKey("RSU 2", 0)] is models[ModelKey("new", 0)] is models.initial
    saved = load(save(models.state_dict()))
    assert saved.keys() >= {"model.layer.weight", "RSU 2/model.layer.weight", "RSU 2/snapshot.0.layer.weight"}
    with pytest.raises(ValueError, match="'RSU 2/round' is of no aggregator"):
        split_by_aggregator({"RSU 2/round": saved["RSU 2/round"]}, ["RSU 1"])
    restored.load_state_dict(split_by_aggregator(saved, names))
    assert restored.newest("RSU 2")["layer.count"].item() == 7
    assert restored.newest()["layer.count"].item() == 3
    assert restored.versions("RSU 2") == [0, 1]
