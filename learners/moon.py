"""MOON: local features are drawn to the downloaded model's and away from the silo's previous model's.

Li, He and Song (2021), Model-contrastive federated learning, arXiv:2103.16257. Where paper and code (QinbinLi/MOON)
leave a choice: the features are those before the classifier's last layer, so that network and payload are FedAvg's (the
authors add a projection head of two layers); both frozen models use their BatchNorm statistics, as in the code; a silo
without a previous model takes the downloaded one, whose contrast has no gradient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, softplus

from learners.averaging import averaging_server
from learners.classification_fedavg import ClassificationAveragingSettings
from learners.encoders import Classifier
from learners.engines.programs import State, Tensors, add_prefix, call_with_state, remove_prefix
from learners.federated import WITHOUT_STATE, FederatedLearner, Parts
from learners.local_training import LocalSteps, Start
from learners.state.silos import SiloStates
from learners.tasks.classification import DEFAULTS, SCALES, ClassificationTask
from learners.tasks.settings import Temperature
from vnetsim.errors.bounds import TRAINS, Within
from vnetsim.learning import LearnerContext

PREVIOUS = "previous."  # prefix of the silo's previous model, in the silo and in a batch


@dataclass(frozen=True, kw_only=True)
class MoonSettings(ClassificationAveragingSettings):
    """Settings of classification, of the average, and of the contrast of models.

    Args:
        mu: weight of the contrast; 0 for FedAvg. The paper chooses among 0.1, 1, 5 and 10.
        temperature: of the contrast, > 0.
    """

    mu: Annotated[float, Within(0, 1e6, "", "the labels then count for nothing"), TRAINS] = 1.0
    temperature: Temperature = 0.5


def model_contrast(z: Tensor, z_glob: Tensor, z_prev: Tensor, temperature: float) -> Tensor:
    """Return -log [e^(s(z, z_glob) / t) / (e^(s(z, z_glob) / t) + e^(s(z, z_prev) / t))], mean over the rows, shape ().

    s is the cosine similarity; all features have the shape (N, D).
    """
    nearer = cosine_similarity(z, z_prev, dim=1) - cosine_similarity(z, z_glob, dim=1)
    return softplus(nearer / temperature).mean()


class Moon(FederatedLearner):
    """FedAvg on labelled images with a contrast of models in the local loss; silos keep their last trained model."""

    name, task, Settings = "moon-classification", "classification", MoonSettings
    paper = "Li, He, Song (2021): Model-contrastive federated learning, CVPR, arXiv:2103.16257"
    equations = (
        "l_con = -log [ e^(s(z, z_glob) / t) / (e^(s(z, z_glob) / t) + e^(s(z, z_prev) / t)) ], s cosine similarity",
        "loss of a step: CE(Q, y) + mu l_con; the run reports CE alone",
        "z, z_glob, z_prev: features of the trained, the downloaded, and the silo's previous model",
        "average: Theta = sum_i n_i / n theta_i, or 1 / N sum_i theta_i  (learning.weights), as FedAvg",
    )
    defaults, scales = DEFAULTS, SCALES

    @staticmethod
    def parts(context: LearnerContext, settings: MoonSettings) -> Parts:
        """Return the classification task, local steps with the contrast, and an RSU that averages."""
        task = ClassificationTask(context, settings)

        def frozen(model: nn.Module, state: Tensors, images: Tensor) -> Tensor:
            """Return the features of images by ``state``, in evaluation mode, no gradients; end in training mode."""
            model.eval()
            with torch.no_grad():
                dense, _ = call_with_state(model, state, images, with_dense=True)
            model.train()
            return Classifier.pooled(dense)

        def loss(model: nn.Module, batch: Tensors, base: Tensors) -> tuple[Tensor, Tensor]:
            """Return the cross-entropy plus the contrast, to minimise, and the cross-entropy, to report."""
            images = batch["images"]
            dense, logits = model(images, with_dense=True)
            found = task.loss(model, {**batch, "outputs": logits}, base)
            z_glob, z_prev = frozen(model, base, images), frozen(model, remove_prefix(PREVIOUS, batch), images)
            z = Classifier.pooled(dense)
            return found + settings.mu * model_contrast(z, z_glob, z_prev, settings.temperature), found

        def given(start: Start) -> Tensors:
            """Return the silo's previous model; the downloaded one before its first training."""
            return start.own or add_prefix(PREVIOUS, start.base)

        def after(start: Start, state: State) -> tuple[State, State]:  # noqa: ARG001
            """Return nothing to send besides the model, and the trained model to keep."""
            return {}, add_prefix(PREVIOUS, state)

        server = averaging_server(context, settings, task, task.initial_state())
        local = LocalSteps(task, loss, given=given, after=after, forward_passes=2)
        series = (*task.series(), WITHOUT_STATE)
        return Parts(task=task, local=local, server=server, silos=SiloStates(own=True), series=series)
