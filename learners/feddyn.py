"""FedDyn: a linear term that silos remember makes local minima agree with the global one.

Acar et al. (2021), Federated learning based on dynamic regularization, arXiv:2111.04263. A small alpha makes local
training FedAvg's, but not the server: h / alpha, the sum of all past changes over N silos, does not shrink with alpha.
As in Algorithm 1 alpha is the same for all silos; the authors' code divides it by a silo's share of the images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor, nn

from learners.averaging import averaging_server, refuse_several_servers
from learners.classification_fedavg import ClassificationAveragingSettings
from learners.engines.programs import State, Tensors
from learners.federated import WITHOUT_STATE, FederatedLearner, Parts
from learners.local_training import LocalSteps, Start
from learners.state.silos import SiloStates
from learners.tasks.classification import DEFAULTS, SCALES, ClassificationTask
from vnetsim.errors.bounds import TRAINS, Within
from vnetsim.learning import LearnerContext, Update

GRADIENT, H = "gradient.", "h."  # prefixes of g_k in a silo and in a batch, and of h in the server's state


@dataclass(frozen=True, kw_only=True)
class FedDynSettings(ClassificationAveragingSettings):
    """Settings of classification, of the average, and of the dynamic regulariser.

    Args:
        alpha: strength of the regulariser. The paper chooses among 0.001, 0.01 and 0.1.
        weights: ``equal``: 1 / N, as in the paper; ``images``: n_k / n. The server's h always counts silos equally.
    """

    alpha: Annotated[float, Within(1e-9, 1e6, "", "h is divided by it; a model held harder does not move"), TRAINS] = (
        0.01
    )
    weights: Annotated[Literal["images", "equal"], TRAINS] = "equal"


class FedDyn(FederatedLearner):
    """Dynamic regularisation on labelled images; silos keep a gradient, the server keeps h.

    BatchNorm's statistics are averaged. The change of an upload counts from the model that its vehicle downloaded.
    ``aggregation`` and ``clip_norm`` act on the mean, not on h.
    """

    name, task, Settings = "feddyn-classification", "classification", FedDynSettings
    paper = "Acar et al. (2021): Federated learning based on dynamic regularization, ICLR, arXiv:2111.04263"
    equations = (
        "loss of a step: L_k(w) - <g_k, w> + alpha / 2 |w - x|^2, x the downloaded model; the run reports L_k",
        "silo: g_k <- g_k - alpha (w_k - x), 0 at first  (Algorithm 1)",
        "server: h <- h - alpha / N sum_(k in P) (w_k - x), N silos;  x <- mean of w_k - h / alpha  (Algorithm 1)",
    )
    defaults, scales = DEFAULTS, SCALES
    takes_aggregation_rule = False

    @staticmethod
    def parts(context: LearnerContext, settings: FedDynSettings) -> Parts:
        """Return the classification task, regularised local steps, and an RSU that averages and keeps h."""
        refuse_several_servers(context, "the server's h")
        task, alpha, silos = ClassificationTask(context, settings), settings.alpha, context.experiment.silos.count
        first = task.initial_state()
        names = [name for name, _ in task.network.named_parameters()]
        zero = {name: torch.zeros_like(first[name]) for name in names}

        def loss(model: nn.Module, batch: Tensors, base: Tensors) -> tuple[Tensor, Tensor]:
            """Return L_k with both terms of the regulariser, to minimise, and L_k, to report."""
            found = task.loss(model, batch, base)
            terms = [
                alpha / 2 * (w - base[name]).square().sum() - (batch[GRADIENT + name] * w).sum()
                for name, w in model.named_parameters()
            ]
            return found + torch.stack(terms).sum(), found

        def given(start: Start) -> Tensors:
            """Return the silo's g_k, 0 before its first training."""
            return start.own or {GRADIENT + name: tensor for name, tensor in zero.items()}

        def after(start: Start, w: State) -> tuple[State, State]:
            """Return nothing to send besides the model, and g_k - alpha (w_k - x) to keep."""
            g = given(start)
            return {}, {GRADIENT + n: g[GRADIENT + n] - alpha * (w[n] - start.base[n]) for n in names}

        def next_h(state: State, updates: Sequence[Update], version: int) -> State:  # noqa: ARG001
            """Return the next h and, if there are updates, the next model: the mean in ``state`` minus h / alpha."""
            last = {update.participant.silo: update for update in updates}.values()  # whose g_k the silos keep
            changes = [(update.state, server.base(update.participant)) for update in last]
            h = {name: state[H + name] - alpha / silos * sum(w[name] - x[name] for w, x in changes) for name in names}
            model = {name: state[name] - h[name] / alpha for name in names} if updates else {}
            return {**{H + name: tensor for name, tensor in h.items()}, **model}

        server = averaging_server(
            context, settings, task, {**first, **{H + name: one for name, one in zero.items()}}, not_of_model=(H,),
            beside=next_h, sent=lambda state: task.sent({n: t for n, t in state.items() if not n.startswith(H)}),
        )  # fmt: skip
        local = LocalSteps(task, loss, given=given, after=after)
        series = (*task.series(), WITHOUT_STATE)
        return Parts(task=task, local=local, server=server, silos=SiloStates(own=True), series=series)
