"""The settings of averaging act alike in every registered learner: models are what numpy and scipy make of uploads."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from device_checks import learner_class, registered
from learner_checks import mark_all_only, model_of
from scipy.stats import trim_mean

from learners.mathematics.robust import AveragingSettings
from vnetsim.experiment import ExchangeSettings

RULES: list[dict[str, Any]] = [
    {},
    {"aggregation": "median"},
    {"aggregation": "trimmed-mean"},
    {"aggregation": "trimmed-mean", "trim": 0.4},
    {"aggregation": "krum"},
    {"clip_norm": 0.05},
    {"aggregation": "median", "clip_norm": 0.1},
]
"""Of five uploads ``trim`` cuts one at each end by default, and two, all but the median, at 0.4."""


def test_every_setting_is_looked_at():
    in_a_file_of_its_own = {"dp"}
    looked_at = {name for rule in RULES for name in rule} | in_a_file_of_its_own
    assert {one.name for one in fields(AveragingSettings)} == looked_at


@pytest.fixture(params=mark_all_only(sorted(registered()), ["flsimco", "cdl"]))
def averaging(request, tiny, on_tiny_roads, new_context):  # noqa: ARG001
    """Return a maker of one learner, whose RSU averages."""
    cls: Any = learner_class(request.param)
    assert issubclass(cls.Settings, AveragingSettings)
    context = new_context(exchange=ExchangeSettings(topology="star"))
    return lambda **rule: cls.create(context, cls.Settings(**{"batch": 6, "steps": 1, "engine": "sequential", **rule}))


def expected(
    uploads: list[dict[str, np.ndarray]],
    base: dict[str, np.ndarray],
    weights: list[float],
    *,
    aggregation: str = "mean",
    trim: float = 0.1,
    clip_norm: float = 0.0,
) -> dict[str, np.ndarray]:
    """Return the model that a rule makes of uploads, by numpy and scipy alone."""
    pulled = []
    for upload in uploads:
        distance = np.sqrt(sum(np.square(upload[name] - base[name]).sum() for name in base))
        share = min(1.0, clip_norm / distance) if clip_norm else 1.0
        pulled.append({name: base[name] + share * (upload[name] - base[name]) for name in base})
    stacks = {name: np.stack([one[name] for one in pulled]) for name in base}
    if aggregation == "median":
        return {name: np.median(stack, axis=0) for name, stack in stacks.items()}
    if aggregation == "trimmed-mean":
        cut = np.ceil(trim * len(uploads) - 1e-9) / len(uploads)
        return {name: trim_mean(stack, cut, axis=0) for name, stack in stacks.items()}
    return {name: np.average(stack, axis=0, weights=weights) for name, stack in stacks.items()}


def test_the_model_is_what_the_settings_say(averaging, participant):
    vehicles = [participant(0, i, speed_mps=14.0 + 3 * i) for i in range(5)]
    trained = averaging().train(vehicles)
    for rule in RULES:
        learner = averaging(**rule)
        base = {name: t.double().numpy() for name, t in model_of(learner).items() if t.is_floating_point()}
        uploads = [{name: update.state[name].double().numpy() for name in base} for update in trained]
        done = learner.aggregate(trained)
        assert sum(done.weights) == pytest.approx(1)
        assert (0 in done.weights) == (rule.get("aggregation") == "krum"), "what it did not take is recorded so"
        model = model_of(learner)
        for name, values in expected(uploads, base, list(done.weights), **rule).items():
            if learner.name.startswith("feddyn") and not name.endswith(("running_mean", "running_var")):
                # minus h / alpha: the changes over the number of silos, whatever the average
                values = values + sum(upload[name] - base[name] for upload in uploads) / 6  # noqa: PLW2901
            np.testing.assert_allclose(model[name].numpy(), values, rtol=2e-6, atol=1e-7, err_msg=f"{rule} {name}")


@pytest.mark.parametrize("name", ["fedavg", "fedavg-classification", "fedavg-steering"])
def test_fedavg_weighs_by_images_or_equally(name, tiny, on_tiny_roads, new_context, participant):  # noqa: ARG001
    cls: Any = learner_class(name)

    def weights(**settings: str) -> list[float]:
        learner = cls.create(new_context(), cls.Settings(batch=4, steps=1, **settings))
        sizes = learner._task.silos.sizes
        # as label skew makes them: each silo has as many images as its number and 4
        learner._task.silos._indices = [rows[: 4 + silo] for silo, rows in enumerate(learner._task.silos._indices)]
        assert min(sizes) >= 7
        updates = learner.train([participant(0, silo) for silo in range(4)])
        return list(learner.aggregate(updates).weights)

    by_images = [n / 22 for n in (4, 5, 6, 7)]
    assert weights(weights="images") == pytest.approx(by_images)
    assert weights(weights="equal") == [0.25] * 4
    # FLSimCo's baseline is the one whose paper says equal
    assert weights() == (pytest.approx([0.25] * 4) if name == "fedavg" else pytest.approx(by_images))
