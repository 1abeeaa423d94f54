"""Federated contrastive learning among vehicles: everything that FLSimCo and its baselines have in common.

Per round, every vehicle that commits downloads theta^r, takes a few SGD steps on its own images with the
dual-temperature loss, and uploads theta_n; the RSU averages. A method is a subclass that names itself and gives
``weights``, and ``loss`` where its own is another; nothing else is overridden.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor, nn

from learners.averaging import AveragingLearner
from learners.frame import require_option
from learners.state.global_model import State
from learners.tasks.contrastive import DualTemperatureTask
from learners.tasks.contrastive_settings import ContrastiveSettings
from vnetsim.learning import LearnerContext

DUAL_TEMPERATURE = (
    "similarities: s_ij = q_i . k_j,  p_i(t) = exp(s_ii / t) / sum_j exp(s_ij / t),  W_i(t) = 1 - p_i(t)",
    "loss: L_i = stopgrad[ W_i(t_beta) / W_i(t_alpha) ] * ( -log p_i(t_alpha) )  (Eq. 6-8)",
    "mean of L_i over the images (Eq. 9), and over (q, k) and (k, q) as in the published code",
)
"""FLSimCo's loss, as ``vnetsim learners NAME`` shows it."""
NEGATIVES = {
    "second-view": "the other images' second views, as in the published code",
    "plain": "the other images without augmentation, as Eq. 5 is printed",
}


class ContrastiveLearner(AveragingLearner):
    """The RSU and its vehicles; implements ``vnetsim.learning.Learner`` but for the names.

    Args:
        context: what the simulator gives every learner.
        settings: the method's settings.
    """

    task: ClassVar[str] = "contrastive"
    Task: ClassVar[type[Any]] = DualTemperatureTask
    _settings: ContrastiveSettings
    _task: DualTemperatureTask

    def __init__(self, context: LearnerContext, settings: ContrastiveSettings) -> None:
        if settings.negatives == "plain":
            require_option(self, "plain", "learning.negatives", "leave it at 'second-view'")
        super().__init__(context, settings)

    def loss(self, model: nn.Module, first: Tensor, second: Tensor, base: State, plain: Tensor | None = None) -> Tensor:
        """Return the loss of a local step: FLSimCo's dual-temperature loss on two random views.

        A function of its arguments alone: it is called for several vehicles at once, from several threads.

        Args:
            model: the encoder as the steps before have left it; gradients flow to its parameters.
            first: first random views of a batch of the vehicle's images, normalised, shape (B, C, H, W).
            second: second random views of the same images.
            base: the state that the vehicle downloaded, tensors by name; not to be changed.
            plain: the same images without augmentation, where ``learning.negatives`` asks for them. A method that does
                not take them refuses that setting.
        """
        return self._task.loss(model, first, second, base, plain)

    def _facts(self) -> Mapping[str, str]:
        return {"Negatives": NEGATIVES[self._settings.negatives]}
