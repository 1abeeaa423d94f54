"""Every setting of every learner changes something: an upload, what is kept, the model, a measurement, or the cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import pytest
from device_checks import learner_class, registered
from torch import Tensor

from learners.mathematics.robust import AveragingSettings
from vnetsim.errors.bounds import TRAINS, acts_of

QUICK: dict[str, dict[str, Any]] = {
    "contrastive": {"batch": 6, "steps": 2, "bank": 40},
    "classification": {"batch": 8, "steps": 2},
    "steering": {"batch": 8, "steps": 2, "lr": 1e-2},
}
OTHERS: dict[str, Any] = {
    "batch": 4, "steps": 3, "lr": 0.02, "momentum": 0.0, "weight_decay": 0.5, "optimizer": "sgd", "dropout": 0.25,
    "schedule": "cosine",
    "batchnorm": "local", "linear_probe": "never", "t_alpha": 0.2, "t_beta": 0.5, "negatives": "plain",
    "limit_kmh": 70.0,
    "queue": 20, "key_encoder": "rsu",
    "local_test": 7, "overseas_steps": 3, "max_teachers": 1, "similarity": "step", "server": "none",
    "variant": "guest-average",
    "test_frames": 5, "coupling": "beta", "beta": 0.9, "divergence_schedule": "linear", "temperature": 1.5,
    "mu": 0.5, "alpha": 0.3,
}  # fmt: skip
"""Another value of each setting."""
BESIDE: dict[tuple[str, str], dict[str, Any]] = {("cdl", "beta"): {"coupling": "beta"}}
"""Other settings without which one has no effect."""
ELSEWHERE = {
    *(one.name for one in fields(AveragingSettings)),  # test_averaging_settings
    "weights",  # likewise
    *("encoder", "precision", "engine", "solver"),  # test_encoders, test_precision, test_engines, test_transport
    "bank",  # test_contrastive_learners
}
CASES = {
    (learner_class(name).task, one.name): (name, one.name)
    for name in sorted(registered())
    for one in fields(learner_class(name).Settings)
    if one.name not in ELSEWHERE and (name, one.name) != ("scaffold-steering", "optimizer")  # SGD alone
}.values()
"""One learner for each setting of a task."""
BEFORE: dict[str, list[object]] = {}
"""What was observed with the other settings alone, once for all settings."""


def raw(state: Mapping[str, Tensor]) -> list[object]:
    return [(name, tensor.numpy().tobytes()) for name, tensor in sorted(state.items())]


@pytest.mark.parametrize(("name", "setting"), CASES)
def test_a_setting_changes_something(name, setting, tiny, on_tiny_roads, new_context, group):  # noqa: ARG001
    cls = learner_class(name)
    given = {"engine": "sequential", **QUICK[cls.task], **BESIDE.get((name, setting), {})}

    def observed(**changed: Any) -> list[object]:
        learner = cls.create(new_context(), cls.Settings(**given | changed))
        found: list[object] = [learner.cost(0), [series.name for series in learner.series()]]
        for round_ in range(2):
            updates = learner.train(group(round_, 2))
            found += [(update.loss, raw(update.state), raw(update.kept), update.exchanges) for update in updates]
            found += sorted(learner.aggregate(updates).metrics.items())
        return [*found, raw(learner.state_dict()), sorted(learner.evaluate(final=True).items())]

    before = BEFORE[f"{name} {given}"] = BEFORE.get(f"{name} {given}") or observed()
    after = observed(**{setting: OTHERS[setting]})
    assert before != after
    # without training a learner is known by its cost alone
    assert (before[0] == after[0]) == (TRAINS in acts_of(cls.Settings).get(setting, ()))
