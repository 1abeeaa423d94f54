"""CDL's baselines: the same steering task without the divergence of two networks."""

from __future__ import annotations

from typing import ClassVar, final

from torch import Tensor

from learners.global_model import State
from learners.steering import SteeringLearner, Visited
from learners.steering_settings import SteeringSettings
from learners.steering_task import Batch, below, on_cpu, under
from vnetsim.learning import Participant

OPTIMIZER = "optimizer."


class PlainSteering(SteeringLearner):
    """Local steps on the steering error alone.

    Class attribute ``keeps_optimizer``: whether a silo's optimizer goes on where its last visit ended.
    """

    Settings: ClassVar[type] = SteeringSettings
    keeps_optimizer: ClassVar[bool]

    @final
    def visit(self, participant: Participant, base: State, own: State) -> Visited:
        """Train the model ``base`` on the silo's frames; see ``SteeringLearner.visit``."""
        task = self._task
        network = task.network
        network.load_state_dict(base)
        network.train()
        optimizer = task.optimizer(network, below(OPTIMIZER, own))

        def objective(batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
            features = task.dropout(network.features(batch.images), batch.generator)
            loss = task.steering_loss(network.head(features), batch.angles)
            return loss, {"loss": loss}

        figures = task.descend(participant, [optimizer], objective)
        return Visited(
            sent=on_cpu(network.state_dict()),
            own=under(OPTIMIZER, task.optimizer_state(optimizer)) if self.keeps_optimizer else {},
            loss=figures["loss"],
        )

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
