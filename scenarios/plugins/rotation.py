"""A learner with a task of its own: which way up an image is (RotNet), learned by federated averaging."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from vnetsim.learners.encoders import create_classifier
from vnetsim.learners.federated import FederatedLearner, Parts, federated_averaging
from vnetsim.learners.tasks.own import Examples, OwnTask, OwnTaskSettings
from vnetsim.learners.tasks.task import labelled_silos

from vnetsim.learning import LearnerContext, Series

CAPTION = "Share of the test images, which no vehicle holds, whose quarter turn the model tells."


def turned(images: Tensor) -> tuple[Tensor, Tensor]:
    """Return square images (N, C, H, W), the i-th turned by i mod 4 quarters, and these turns (N,)."""
    turns = torch.arange(len(images)) % 4
    return torch.stack([image.rot90(int(t), (1, 2)) for image, t in zip(images, turns, strict=True)]), turns


class Rotation(OwnTask):
    """The images that ``data.name`` names, each by some quarter turns, which a classifier is to tell."""

    metrics = (Series(name="rotation_accuracy", label="Rotation accuracy", unit="%", caption=CAPTION),)

    def data(self, context: LearnerContext) -> Examples:
        """Return turned images; silos as the experiment deals them."""
        images, silos = labelled_silos(context)
        (train, targets), (test, test_targets) = turned(images.train), turned(images.test)
        return Examples(train=train, targets=targets, test=test, test_targets=test_targets, silos=silos)

    def model(self, examples: Examples) -> nn.Module:  # noqa: ARG002 - the same for all images
        """Return the small residual network with four outputs."""
        return create_classifier("small", classes=4, seed=torch.random.initial_seed())

    def loss(self, model: nn.Module, batch: Mapping[str, Tensor], base: Mapping[str, Tensor]) -> Tensor:  # noqa: ARG002
        """Return the cross-entropy of the four turns."""
        return cross_entropy(model(batch["images"]), batch["targets"])

    def measure(self, outputs: Tensor, targets: Tensor) -> Mapping[str, float]:
        """Return the share that is classified correctly."""
        return {"rotation_accuracy": float((outputs.argmax(dim=1) == targets).double().mean())}


class RotNet(FederatedLearner):
    """Federated averaging of RotNet."""

    name, task, Settings = "rotnet", "rotation", OwnTaskSettings
    paper = "Gidaris, Singh, Komodakis (2018): Unsupervised representation learning by predicting image rotations"

    @staticmethod
    def parts(context: LearnerContext, settings: OwnTaskSettings) -> Parts:
        """Return federated averaging on the task."""
        return federated_averaging(context, settings, Rotation(context, settings))
