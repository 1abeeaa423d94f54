"""FedAvg on the classification task: the baseline of FedEFM, and the base of one's own variants of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor, nn

from learners.averaging import AveragingLearner
from learners.state.global_model import State
from learners.tasks.classification import ClassificationTask
from learners.tasks.classification_settings import DEFAULTS, ClassificationSettings


class ClassificationFedAvg(AveragingLearner):
    """Local SGD on the cross-entropy, all uploads averaged alike.

    A subclass may have a ``loss`` or ``weights`` of its own.

    Args:
        context: what the simulator gives every learner.
        settings: the method's settings.
    """

    name: ClassVar[str] = "fedavg-classification"
    task: ClassVar[str] = "classification"
    paper: ClassVar[str] = (
        "McMahan et al. (2017): Communication-efficient learning of deep networks from decentralized data; "
        "as baseline of FedEFM"
    )
    equations: ClassVar[tuple[str, ...]] = (
        "loss: L_i = CE(Q, y) over the union of labels, steps of SGD from Theta",
        "average: Theta = 1 / N sum_i theta_i  (McMahan et al., Algorithm 1, with silos of one size)",
    )
    defaults: ClassVar[Mapping[str, object]] = DEFAULTS
    Settings: ClassVar[type] = ClassificationSettings
    Task: ClassVar[type[Any]] = ClassificationTask

    def loss(self, model: nn.Module, images: Tensor, labels: Tensor, base: State) -> Tensor:
        """Return the loss of a local step: the cross-entropy over the union of labels, mean over the images.

        A function of its arguments alone: it is called for several vehicles at once, from several threads.

        Args:
            model: the classifier as the steps before have left it; gradients flow to its parameters.
            images: a batch of the vehicle's images, normalised, shape (B, C, H, W).
            labels: their labels, int64, shape (B,).
            base: the state that the vehicle downloaded, tensors by name; not to be changed.
        """
        return self._task.loss(model, images, labels, base)
