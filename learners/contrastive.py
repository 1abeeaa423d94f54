"""Federated contrastive learning among vehicles: everything that FLSimCo and its baselines have in common.

Per round, every vehicle that commits downloads theta^r, takes a few SGD steps on its own images with the
dual-temperature loss, and uploads theta_n; the RSU averages. A method is a subclass that names itself and gives
``weights``, and ``loss`` where its own is another; nothing else is overridden.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from learners.aggregation import Weights
from learners.contrastive_settings import SERIES, ContrastiveSettings, reported
from learners.contrastive_task import ContrastiveTask
from learners.global_model import GlobalModel, State
from learners.losses import dual_temperature_loss
from learners.robust import combine, used_weights
from learners.task import payload_bytes
from learners.training import Job, Tensors, Trained
from vnetsim.learning import Aggregation, Cost, Description, LearnerContext, Participant, Series, Update

VIEWS = 2

DUAL_TEMPERATURE = (
    "similarities: s_ij = q_i . k_j,  p_i(t) = exp(s_ii / t) / sum_j exp(s_ij / t),  W_i(t) = 1 - p_i(t)",
    "loss: L_i = stopgrad[ W_i(t_beta) / W_i(t_alpha) ] * ( -log p_i(t_alpha) ); mean over i, qk and kq  (Eq. 6-8)",
)
"""FLSimCo's loss, as ``vnetsim learners NAME`` shows it."""


class ContrastiveLearner(ABC):
    """The RSU and its vehicles; implements ``vnetsim.learning.Learner`` but for the names and the weights.

    Args:
        context: what the simulator gives every learner.
        settings: the method's settings.
    """

    name: ClassVar[str]
    task: ClassVar[str] = "contrastive"
    paper: ClassVar[str]
    payload: ClassVar[str] = "the model down, the model up"
    Settings: ClassVar[type]

    def __init__(self, context: LearnerContext, settings: ContrastiveSettings) -> None:
        self._settings = settings
        self._task = ContrastiveTask(context, settings)
        self._global = GlobalModel(self._task.initial_state(), max_staleness=context.max_staleness)
        self._program = self._task.contrast(self._step)

    @abstractmethod
    def weights(self, participants: Sequence[Participant]) -> Weights:
        """Return the aggregation weight of every participant: summing to 1, or all 0 to keep the global model."""

    def loss(
        self,
        model: nn.Module,
        first: Tensor,
        second: Tensor,
        base: State,  # noqa: ARG002 - for methods that compare with it
    ) -> Tensor:
        """Return the loss of a local step: FLSimCo's dual-temperature loss on two random views.

        A function of its arguments alone: it is called for several vehicles at once, from several threads.

        Args:
            model: the encoder as the steps before have left it; gradients flow to its parameters.
            first: first random views of a batch of the vehicle's images, normalised, shape (B, C, H, W).
            second: second random views of the same images.
            base: the state that the vehicle downloaded, tensors by name; not to be changed.
        """
        return dual_temperature_loss(
            model(first), model(second), t_alpha=self._settings.t_alpha, t_beta=self._settings.t_beta
        )

    @classmethod
    @final
    def create(cls, context: LearnerContext, settings: Any) -> Self:
        """Build the learner; see ``vnetsim.learning.Learner``."""
        return cls(context, settings)

    @final
    def describe(self) -> Description:
        """Return encoder, data distribution and what else the record says."""
        return self._task.describe({})

    @final
    def series(self) -> Sequence[Series]:
        """Return the metrics of ``aggregate`` and ``evaluate``."""
        return reported(SERIES, self._settings)

    @final
    def cost(self, silo: int) -> Cost:
        """Return the model's bytes each way, and the work of all steps on both views, forward and backward."""
        images = self._task.images_per_visit(silo)
        model = payload_bytes(self._task.sent(self._global.current))
        return Cost(
            download_bytes=model,
            upload_bytes=model,
            work_flop=self._task.training_flop(images * VIEWS),
        )

    @final
    def train(self, participants: Sequence[Participant]) -> Sequence[Update]:
        """Train every participant from the global model of its ``base_round``; see ``vnetsim.learning.Learner``."""
        jobs = [self._job(participant) for participant in participants]
        trained = self._task.engine.train(jobs)
        return [self._update(*one) for one in zip(participants, jobs, trained, strict=True)]

    @final
    def aggregate(self, updates: Sequence[Update]) -> Aggregation:
        """Fold the finite updates into the global model and end the round; see ``vnetsim.learning.Learner``."""
        finite = [update for update in updates if update.finite]
        weights = used_weights(self.weights([update.participant for update in finite]), self._settings)
        state = dict(self._global.current)
        if weights.any():
            state.update(combine([update.state for update in finite], weights, self._global.current, self._settings))
        metrics = {"learning_rate": self._task.cosine_rate(self._global.round)}
        if finite:
            metrics["loss"] = sum(update.loss for update in finite) / len(finite)
            if weights.any():
                metrics["weight_deviation"] = float(np.sqrt(np.mean((weights * len(finite) - 1) ** 2)))
        self._global.advance(state)
        of_finite = iter(weights.tolist())
        return Aggregation(weights=[next(of_finite) if update.finite else 0.0 for update in updates], metrics=metrics)

    @final
    def evaluate(self, *, final: bool) -> Mapping[str, float]:
        """Return kNN accuracy, and the linear probe's when it is due."""
        return self._task.evaluate(self._global.current, final=final)

    @final
    def state_dict(self) -> dict[str, Any]:
        """Return the global models and the round; every random draw follows from seed, round and vehicle."""
        return dict(self._global.state_dict())

    @final
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        self._global.load_state_dict(state)

    @final
    def sample_images(self, kernels_px: Sequence[float], count: int) -> NDArray[np.uint8]:
        """Return test images blurred with each kernel length, shape (len(kernels_px), count, H, W, C)."""
        return self._task.sample_images(kernels_px, count)

    def _step(self, model: nn.Module, batch: Tensors, base: Tensors) -> tuple[Tensor, Tensors]:
        loss = self.loss(model, batch["first"], batch["second"], base)
        return loss, {"loss": loss}

    def _job(self, participant: Participant) -> Job:
        base = self._global.at(participant.base_round)
        return Job(program=self._program, visit=self._task.visit_of(participant), base=base, given=base)

    def _update(self, participant: Participant, job: Job, trained: Trained) -> Update:
        return Update(
            participant=participant,
            state=self._task.sent(trained.state),
            loss=trained.mean("loss"),
            finite=trained.finite,
            metrics={"kernel_px": job.visit.kernel_px},
        )
