"""FedAvg on the classification task: training, averaging, seen and unseen labels, cost, resumption."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from learners.classification_fedavg import ClassificationFedAvg
from learners.tasks.classification import ClassificationSettings
from vnetsim.errors import InputError
from vnetsim.experiment import DataSettings

QUICK = {"batch": 8, "steps": 3}
# silo i holds label i mod 3 alone
ONE_LABEL = {"data": DataSettings(partition="approach"), "approaches": 3}


@pytest.fixture
def new(monkeypatch, images, new_context):
    """Return a maker of learners on the tiny set; ``context`` changes theirs."""
    monkeypatch.setattr("learners.tasks.task.load_images", lambda *_, **__: images)

    def make(context: dict[str, Any] | None = None, **settings: Any) -> ClassificationFedAvg:
        return ClassificationFedAvg.create(new_context(**(context or {})), ClassificationSettings(**QUICK | settings))

    return make


def test_seen_and_unseen_labels(new, participant, images):
    learner = new(ONE_LABEL)
    assert "unseen_accuracy" in {series.name for series in learner.series()}
    update = learner.train([participant(0, 0), participant(0, 2)])
    # models that say green whatever they see
    state = dict(update[0].state)
    state["head.weight"] = torch.zeros_like(state["head.weight"])
    state["head.bias"] = torch.tensor([0.0, 1.0, 0.0])
    green = int((images.test_labels == 1).sum())
    not_red = int((images.test_labels != 0).sum())
    metrics = learner.aggregate([replace(one, state=state) for one in update]).metrics
    # one silo holds red, the other blue: green is among the labels that each lacks, and the other one is always wrong
    assert metrics["seen_accuracy"] == 0
    assert metrics["unseen_accuracy"] == pytest.approx(green / not_red)
    assert learner.evaluate(final=False)["accuracy"] == pytest.approx(green / len(images.test))
    # the silo that holds green always says the only label it holds
    metrics = learner.aggregate([replace(update[0], state=state, participant=participant(1, 1))]).metrics
    assert metrics["seen_accuracy"] == 1
    assert metrics["unseen_accuracy"] == 0


def test_a_label_of_which_a_silo_has_one_image_is_seen(monkeypatch, images, new_context):
    labels = torch.zeros_like(images.train_labels)
    labels[5] = 1
    few = replace(images, train_labels=labels)
    monkeypatch.setattr("learners.tasks.task.load_images", lambda *_, **__: few)
    learner = ClassificationFedAvg.create(new_context(), ClassificationSettings(**QUICK, local_test=0))
    assert learner.describe().facts["Labels per silo"] == "1 to 2 of 3"
    owner = int(learner._task.silos.label_counts(labels, 3)[:, 1].argmax())
    state = dict(learner._task.initial_state())
    state["head.weight"] = torch.zeros_like(state["head.weight"])
    state["head.bias"] = torch.tensor([0.0, 1.0, 0.0])  # says 1 whatever it sees
    tested = [int((images.test_labels == label).sum()) for label in range(2)]
    assert learner._task.upload_figures([(state, owner)])[0] == {
        "seen_accuracy": tested[1] / sum(tested),
        "unseen_accuracy": 0.0,
    }


def test_the_local_test_is_a_fixed_sample(new, participant):
    update = new().train([participant(0, 0)])[0]
    small, again, whole = new(local_test=7), new(local_test=7), new(local_test=0)
    assert len(small._task._local_test) == 7
    assert len(whole._task._local_test) == 24
    first = small._task.upload_figures([(update.state, 0)])
    assert again._task.upload_figures([(update.state, 0)]) == first
    assert "unseen_accuracy" not in first
    assert (
        whole._task.upload_figures([(update.state, 0)])[0]["seen_accuracy"]
        == whole._task.evaluate(update.state, final=True)["accuracy"]
    )


def test_it_learns(new, participant):
    learner = new({"rounds": 6}, steps=6, lr=0.02)
    for r in range(6):
        done = learner.aggregate(learner.train([participant(r, i) for i in range(3)]))
    assert learner.evaluate(final=True)["accuracy"] > 0.8
    rates = done.metrics["learning_rate"]
    assert rates == pytest.approx(0.01 * (1 + np.cos(np.pi * 5 / 6)))


def test_one_class_is_no_classification(monkeypatch, images, context):
    one = replace(
        images, train_labels=images.train_labels * 0, test_labels=images.test_labels * 0, class_names=("red",)
    )
    monkeypatch.setattr("learners.tasks.task.load_images", lambda *_, **__: one)
    with pytest.raises(InputError, match=r"^data.name: 'tiny' has one class; a classifier needs at least two\.$"):
        ClassificationFedAvg.create(context, ClassificationSettings())
    two = replace(one, train_labels=images.train_labels % 2, class_names=("red", "green"))
    monkeypatch.setattr("learners.tasks.task.load_images", lambda *_, **__: two)
    assert ClassificationFedAvg.create(context, ClassificationSettings()).describe().class_names == ("red", "green")
