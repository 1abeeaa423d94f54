"""FedAvg on the classification task: the baseline of FedEFM, and the frame that FedEFM fills in."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from learners.aggregation import equal_weights
from learners.classification_settings import (
    ACCURACY,
    LOSS,
    SEEN_ACCURACY,
    UNSEEN_ACCURACY,
    ClassificationSettings,
)
from learners.classification_task import ClassificationTask, label_loss
from learners.contrastive_settings import LEARNING_RATE
from learners.global_model import GlobalModel
from learners.robust import combine, used_weights
from learners.task import payload_bytes
from learners.training import Job, Program, Tensors, Trained, Visit
from vnetsim.learning import Aggregation, Cost, Description, LearnerContext, Participant, Series, Update

DEFAULTS: Mapping[str, object] = {
    # silos large enough for a few hundred images each, which lack half of the labels
    "data.partition": "label-skew",
    "silos.count": 20,
    # two vehicles with the same images would have nothing to tell each other
    "round.distinct_silos": True,
}


class ClassificationFedAvg:
    """Local SGD on the cross-entropy, all uploads averaged alike; implements ``vnetsim.learning.Learner``.

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
    payload: ClassVar[str] = "the model down, the model up"
    equations: ClassVar[tuple[str, ...]] = (
        "loss: L_i = CE(Q, y) over the union of labels, steps of SGD from Theta",
        "average: Theta = 1 / N sum_i theta_i  (McMahan et al., Algorithm 1, with silos of one size)",
    )
    defaults: ClassVar[Mapping[str, object]] = DEFAULTS
    Settings: ClassVar[type] = ClassificationSettings

    def __init__(self, context: LearnerContext, settings: ClassificationSettings) -> None:
        self._context = context
        self._settings = settings
        self._task = ClassificationTask(context, settings)
        self._global = GlobalModel(self._task.initial_state(), max_staleness=context.max_staleness)
        self._plain = self._task.classify(label_loss)

    @classmethod
    def create(cls, context: LearnerContext, settings: Any) -> Self:
        """Build the learner; see ``vnetsim.learning.Learner``."""
        return cls(context, settings)

    def describe(self) -> Description:
        """Return classifier, data distribution and what else the record says."""
        return self._task.describe({})

    def series(self) -> Sequence[Series]:
        """Return the metrics of ``aggregate`` and ``evaluate``; those of unseen labels where silos lack some."""
        unseen = (UNSEEN_ACCURACY,) if self._task.lacks_labels else ()
        return (LOSS, ACCURACY, SEEN_ACCURACY, *unseen, LEARNING_RATE)

    def cost(self, silo: int) -> Cost:
        """Return the model's bytes each way, and the work of all steps, forward and backward."""
        model = self._model_bytes
        work_flop = self._task.training_flop(self._task.images_per_visit(silo))
        return Cost(download_bytes=model, upload_bytes=model, work_flop=work_flop)

    def train(self, participants: Sequence[Participant]) -> Sequence[Update]:
        """Train every participant from the global model of its ``base_round``; see ``vnetsim.learning.Learner``."""
        jobs = [self._job(self._plain, participant) for participant in participants]
        trained = self._task.engine.train(jobs)
        return [self._update(*one) for one in zip(participants, jobs, trained, strict=True)]

    def aggregate(self, updates: Sequence[Update]) -> Aggregation:
        """Average the finite updates with equal weights and end the round; with none the model is kept."""
        finite = [update for update in updates if update.finite]
        weights = used_weights(equal_weights(len(finite)), self._settings)
        metrics = {"learning_rate": self._task.cosine_rate(self._global.round)}
        state = self._global.current
        if finite:
            state = combine([update.state for update in finite], weights, state, self._settings)
            metrics["loss"] = sum(update.loss for update in finite) / len(finite)
            metrics.update(self._local_accuracies(finite))
        self._global.advance(state)
        of_finite = iter(weights.tolist())
        return Aggregation(weights=[next(of_finite) if update.finite else 0.0 for update in updates], metrics=metrics)

    def evaluate(self, *, final: bool) -> Mapping[str, float]:  # noqa: ARG002  the protocol's
        """Return the global model's accuracy on the test images."""
        return {"accuracy": self._task.accuracy(self._global.current)}

    def state_dict(self) -> dict[str, Any]:
        """Return the global models and the round; every random draw follows from seed, round and vehicle."""
        return dict(self._global.state_dict())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        self._global.load_state_dict(state)

    def sample_images(self, kernels_px: Sequence[float], count: int) -> NDArray[np.uint8]:
        """Return test images blurred with each kernel length, shape (len(kernels_px), count, H, W, C)."""
        return self._task.sample_images(kernels_px, count)

    @property
    def _model_bytes(self) -> int:
        return payload_bytes(self._global.current)

    def _visit(self, participant: Participant) -> Visit:
        """Return a participant's own training: its silo, blur, step size and seed."""
        return self._task.visit(
            participant.silo,
            speed_mps=participant.speed_mps,
            learning_rate=self._task.cosine_rate(participant.base_round),
            seed=self._context.streams.integer("training", participant.round, participant.vehicle_id),
        )

    def _job(self, program: Program, participant: Participant, given: Tensors | None = None) -> Job:
        base = self._global.at(participant.base_round)
        return Job(program=program, visit=self._visit(participant), base=base, given=given or {})

    def _update(self, participant: Participant, job: Job, trained: Trained) -> Update:
        return Update(
            participant=participant,
            state=trained.state,
            loss=trained.mean("loss"),
            finite=trained.finite,
            metrics={"kernel_px": job.visit.kernel_px},
        )

    def _local_accuracies(self, finite: Sequence[Update]) -> dict[str, float]:
        """Return what the uploads are worth by themselves; a figure of which no upload has any is left out."""
        pairs = [self._task.local_accuracies(update.state, update.participant.silo) for update in finite]
        names = ("seen_accuracy", "unseen_accuracy")
        measured = {
            name: [value for value in values if not math.isnan(value)]
            for name, values in zip(names, zip(*pairs, strict=True), strict=True)
        }
        return {name: sum(values) / len(values) for name, values in measured.items() if values}
