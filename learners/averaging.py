"""Federated averaging on any task: the vehicles of a round train the RSU's model, and the RSU averages the uploads.

A method is a subclass that names itself and its task, and may have two hooks of its own, the same on every task:
``weights``, what each upload counts, and ``loss``, what a local step descends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, final

from torch import Tensor, nn

from learners.engines.programs import Tensors, TrainingJob
from learners.frame import TaskLearner, scalar
from learners.mathematics.aggregation import Weights, equal_weights
from learners.state.global_model import State
from learners.state.rules import rule_of
from learners.state.server import Server, mean_loss
from learners.state.streaming import averages_as_they_come, trained_and_averaged
from learners.tasks.task import AveragedTask, payload_bytes
from vnetsim.learning import Aggregation, Cost, Description, LearnerContext, Participant, Series, Update


class AveragingLearner(TaskLearner):
    """Vehicles and their RSU; implements ``vnetsim.learning.Learner`` but for the names.

    Class attributes besides the protocol's: ``Task``, the task, built from context and settings.

    Args:
        context: what the simulator gives every learner.
        settings: the method's settings.

    Raises:
        InputError: when data and settings do not fit, or a setting asks for what the method's loss does not take.
    """

    Task: ClassVar[type[Any]]
    payload: ClassVar[str] = "the model down, the model up"
    takes_aggregation_rule: ClassVar[bool] = True
    _task: AveragedTask
    _global: Server

    def __init__(self, context: LearnerContext, settings: Any) -> None:
        self._settings = settings
        self._task = self.Task(context, settings)
        self._rule = rule_of(context)
        self._global = Server(
            self._task.initial_state(),
            max_staleness=context.max_staleness,
            settings=settings,
            weigh=self.weights,
            rule=self._rule,
            parameters=[name for name, _ in self._task.network.named_parameters()],
        )
        self._program = self._task.local(self._step)

    def weights(self, participants: Sequence[Participant]) -> Weights:
        """Return the aggregation weight of every participant: summing to 1, or all 0 to keep the global model.

        1 / N for each of the N participants, unless a method says otherwise.
        """
        return equal_weights(len(participants))

    def loss(self, model: nn.Module, first: Tensor, second: Tensor, base: State) -> Tensor:
        """Return the loss of a local step: the task's, unless a method has its own.

        A function of its arguments alone: it is called for several vehicles at once, from several threads.

        Args:
            model: the network as the steps before have left it; gradients flow to its parameters.
            first: what the network is given; see ``inputs`` of the task.
            second: the targets, or whatever else the task gives.
            base: the state that the vehicle downloaded, tensors by name; not to be changed.
        """
        return self._task.loss(model, first, second, base)

    @final
    def describe(self) -> Description:
        """Return network, data distribution and what else the record says."""
        return self._task.describe(self._facts())

    @final
    def series(self) -> Sequence[Series]:
        """Return the metrics of ``aggregate`` and ``evaluate``."""
        return self._task.series()

    @final
    def cost(self, silo: int) -> Cost:
        """Return the model's bytes each way, and the work of all steps, forward and backward."""
        model = payload_bytes(self._task.sent(self._global.current))
        work_flop = self._task.training_flop(self._task.images_per_training(silo) * self._task.passes)
        return Cost(download_bytes=model, upload_bytes=model, work_flop=work_flop, steps=self._task.steps)

    @final
    def train(self, participants: Sequence[Participant]) -> Sequence[Update]:
        """Train every participant from its ``base``, a global model; see ``vnetsim.learning.Learner``."""
        jobs = [self._job(participant) for participant in participants]
        if not self._rule.needs_uploads and averages_as_they_come(jobs, self._settings):
            return self._averaged_as_they_come(participants, jobs)
        trained = self._task.engine.train(jobs)
        return [self._update(*one) for one in zip(participants, jobs, trained, strict=True)]

    @final
    def aggregate(self, updates: Sequence[Update]) -> Aggregation:
        """Fold the updates into the global model and end the round; see ``vnetsim.learning.Learner``."""
        rate = self._task.learning_rate(self._global.round)
        weights, state = self._global.fold(updates)
        self._global.advance(state)
        figures = [self._figures(update) for update in updates]
        told = self._task.round_figures(figures, weights) if updates else {}
        metrics = {"learning_rate": rate, **mean_loss(updates), **told}
        return Aggregation(weights=weights.tolist(), metrics=metrics)

    @final
    def evaluate(self, *, final: bool) -> Mapping[str, float]:
        """Return the task's metrics of the global model."""
        return self._task.evaluate(self._global.current, final=final)

    def _averaged_as_they_come(self, participants: Sequence[Participant], jobs: Sequence[TrainingJob]) -> list[Update]:
        """Return updates without states; the server keeps their mean."""
        figures: dict[int, Mapping[str, float]] = {}

        def look(place: int, state: State) -> None:
            figures[place] = self._task.upload_figures(state, participants[place].silo)

        results, finite, averaged = trained_and_averaged(
            jobs,
            self._task.engine,
            weigh=lambda places: self.weights([participants[i] for i in places]),
            sent=self._task.sent,
            look=look,
            settings=self._settings,
        )
        self._global.averaged = [participants[i] for i in averaged.places], averaged.state
        updates = [self._update(*one) for one in zip(participants, jobs, results, strict=True)]
        return [
            replace(update, finite=fine, metrics={**update.metrics, **figures.get(place, {})})
            for place, (update, fine) in enumerate(zip(updates, finite, strict=True))
        ]

    def _figures(self, update: Update) -> Mapping[str, float]:
        """Return what an upload is worth by itself: looked at now, or when it was averaged."""
        if not update.state:
            return update.metrics
        return self._task.upload_figures(update.state, update.participant.silo)

    def _facts(self) -> Mapping[str, str]:
        """Return lines for the record."""
        return {}

    def _job(self, participant: Participant) -> TrainingJob:
        base = self._global.base(participant)
        return TrainingJob(
            program=self._program, training=self._task.local_training_of(participant), base=base, given=base
        )

    def _step(self, model: nn.Module, batch: Tensors, base: Tensors) -> tuple[Tensor, Tensors]:
        first, second = (batch[name] for name in self._task.inputs)
        more = {parameter: batch[name] for parameter, name in self._task.options.items() if name in batch}
        loss = scalar(self.loss(model, first, second, base, **more), self.loss)
        return loss, {"loss": loss}
