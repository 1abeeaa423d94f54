"""CDL's baselines: the same steering task without the divergence of two networks."""

from __future__ import annotations

from typing import ClassVar, final

from torch import Tensor, nn

from learners.global_model import State
from learners.resnet8 import ResNet8
from learners.steering import SteeringLearner, Visited
from learners.steering_settings import SteeringSettings
from learners.steering_task import on_cpu
from learners.training import Job, Tensors, Trained, below, under
from vnetsim.learning import LearnerContext, Participant

OPTIMIZER = "optimizer."


class PlainSteering(SteeringLearner):
    """Local steps on the steering error alone.

    Class attribute ``keeps_optimizer``: whether a silo's optimizer goes on where its last visit ended.
    """

    Settings: ClassVar[type] = SteeringSettings
    keeps_optimizer: ClassVar[bool]

    def __init__(self, context: LearnerContext, settings: SteeringSettings) -> None:
        super().__init__(context, settings)
        self._program = self._task.steer(self._step)

    @final
    def job(self, participant: Participant, base: State, own: State) -> Job:
        """Return the training of the model ``base`` on the silo's frames; see ``SteeringLearner.job``."""
        return Job(
            program=self._program,
            visit=self._task.visit_of(participant),
            base=base,
            optimizer=below(OPTIMIZER, own),
        )

    @final
    def visited(self, trained: Trained, own: State) -> Visited:  # noqa: ARG002  the base class's
        """Return the model, and the optimizer where the silo keeps it; see ``SteeringLearner.visited``."""
        return Visited(
            sent=on_cpu(trained.state),
            own=under(OPTIMIZER, on_cpu(trained.optimizer)) if self.keeps_optimizer else {},
            loss=trained.mean("loss"),
        )

    def _step(self, network: nn.Module, batch: Tensors, _: Tensors) -> tuple[Tensor, Tensors]:
        assert isinstance(network, ResNet8)
        features = self._task.dropout(network.features(batch["images"]), batch)
        loss = self._task.steering_loss(network.head(features), batch["angles"])
        return loss, {"loss": loss}

    @final
    def _own_template(self) -> State:
        return under(OPTIMIZER, self._task.optimizer_template()) if self.keeps_optimizer else {}


@final
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
    keeps_optimizer: ClassVar[bool] = True


@final
class FedAvgSteering(PlainSteering):
    """The RSU sends its model and averages what comes back, with equal weights."""

    name: ClassVar[str] = "fedavg-steering"
    paper: ClassVar[str] = (
        "McMahan et al. (2017): Communication-efficient learning of deep networks from decentralized data; "
        "as baseline of CDL"
    )
    payload: ClassVar[str] = "the model down and up"
    equations: ClassVar[tuple[str, ...]] = (
        "theta_n <- u local steps of Adam, new at each visit, on the steering error from theta",
        "theta <- (1 / N) sum_n theta_n at the RSU",
    )
    keeps_optimizer: ClassVar[bool] = False
    always_star: ClassVar[bool] = True
