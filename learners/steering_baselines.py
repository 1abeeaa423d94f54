"""CDL's baselines: the same steering task without the divergence of two networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, final

from torch import Tensor, nn

from learners.data.moving import moved
from learners.encoders.resnet8 import ResNet8
from learners.engines.programs import Tensors, Trained, TrainingJob, prefixed, unprefixed
from learners.frame import require_option, scalar
from learners.state.global_model import State
from learners.steering import LocalResult, SteeringLearner
from learners.tasks.steering_settings import SteeringSettings
from vnetsim.learning import LearnerContext, Participant, Series

OPTIMIZER = "optimizer."


class PlainSteering(SteeringLearner):
    """Local steps on the steering error, or on the ``loss`` of a method's own."""

    Settings: ClassVar[type] = SteeringSettings

    def __init__(self, context: LearnerContext, settings: SteeringSettings) -> None:
        if settings.dropout > 0:
            require_option(self, "kept", "learning.dropout", "leave it at 0")
        super().__init__(context, settings)
        self._program = self._task.steer(self._step)
        # what the shipped loss does not read is not handed to the engine
        self._compares = type(self).loss is not PlainSteering.loss

    def loss(
        self,
        model: nn.Module,
        images: Tensor,
        angles: Tensor,
        base: State,  # noqa: ARG002 - for methods that compare with it
        kept: Tensor | None = None,
    ) -> Tensor:
        """Return the loss of a local step: the steering error that the settings name, mean over the frames.

        A function of its arguments alone: it is called for several vehicles at once, from several threads.

        Args:
            model: the steering network as the steps before have left it; gradients flow to its parameters.
            images: a batch of the silo's frames in [0, 1], shape (B, C, H, W).
            angles: their steering angles in [-1, 1], shape (B,).
            base: the state that the local training started from, tensors by name; not to be changed.
            kept: which features the linear layer sees, shape (B, d), where ``learning.dropout`` asks for it. A method
                that does not take it refuses that setting.
        """
        assert isinstance(model, ResNet8)
        features = self._task.dropout(model.features(images), {} if kept is None else {"kept0": kept})
        return self._task.steering_loss(model.head(features), angles)

    @final
    def job(self, participant: Participant, base: State, own: State) -> TrainingJob:
        """Return the training of the model ``base`` on the silo's frames; see ``SteeringLearner.job``."""
        return TrainingJob(
            program=self._program,
            training=self._task.local_training_of(participant),
            base=base,
            given=moved(base, self._task.device) if self._compares else {},
            optimizer=unprefixed(OPTIMIZER, own),
        )

    @final
    def local_result(self, trained: Trained, own: State) -> LocalResult:  # noqa: ARG002  the base class's
        """Return the model, and the optimizer where the silo keeps it; see ``SteeringLearner.local_result``."""
        return LocalResult(
            sent=trained.state,
            own=prefixed(OPTIMIZER, self._task.kept(trained.optimizer)),
            loss=trained.mean("loss"),
        )

    @final
    def measured(self, jobs: Sequence[TrainingJob]) -> Sequence[Mapping[str, float]]:
        """Return no figures; see ``SteeringLearner.measured``."""
        return super().measured(jobs)

    @final
    def own_series(self) -> tuple[Series, ...]:
        """Return nothing; see ``SteeringLearner.own_series``."""
        return super().own_series()

    def _step(self, network: nn.Module, batch: Tensors, base: Tensors) -> tuple[Tensor, Tensors]:
        more = {"kept": batch["kept0"]} if "kept0" in batch else {}
        loss = scalar(self.loss(network, batch["images"], batch["angles"], base, **more), self.loss)
        return loss, {"loss": loss}

    @final
    def _own_template(self) -> State:
        return prefixed(OPTIMIZER, self._task.optimizer_template())


class DecentralisedSgd(PlainSteering):
    """Every silo trains its own model; neighbours mix theirs. CDL without its divergence and its second network."""

    name: ClassVar[str] = "dsgd"
    paper: ClassVar[str] = (
        "Lian et al. (2017): Can decentralized algorithms outperform centralized algorithms? A case study for "
        "decentralized parallel stochastic gradient descent, arXiv:1705.09056; as baseline of CDL"
    )
    payload: ClassVar[str] = "the model to every neighbour; under the topology star the model down and up"
    equations: ClassVar[tuple[str, ...]] = (
        "u local steps of Adam on the steering error of theta_i",
        "theta_i <- sum_j A_ij theta_j over the neighbours whose exchange completed, all at once",
        "A_ij = 1 / (1 + max(d_i, d_j)), A_ii = 1 - sum_j A_ij  (Metropolis-Hastings; d: number of neighbours)",
    )


class FedAvgSteering(PlainSteering):
    """The RSU sends its model and averages what comes back, with equal weights."""

    name: ClassVar[str] = "fedavg-steering"
    paper: ClassVar[str] = (
        "McMahan et al. (2017): Communication-efficient learning of deep networks from decentralized data; "
        "as baseline of CDL"
    )
    payload: ClassVar[str] = "the model down and up"
    equations: ClassVar[tuple[str, ...]] = (
        "theta_n <- u local steps of Adam on the steering error from theta",
        "theta <- (1 / N) sum_n theta_n at the RSU",
    )
    always_star: ClassVar[bool] = True
