"""CDL: decentralised steering with a contrastive divergence loss between what a silo knew and what it receives.

Beside the network that steers and is mixed, the backbone theta_b, every silo holds a sub-network theta_s of the same
shape that never leaves it. Both are compared by their features on the silo's own frames: the backbone is kept from
drifting away with the models of others, the sub-network follows slowly.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from torch import Tensor, nn

from learners.global_model import State
from learners.losses import divergence_rows
from learners.optimizers import Optimizer, Rate, Together
from learners.resnet8 import ResNet8
from learners.steering import BESIDE, SteeringLearner, Visited
from learners.steering_settings import SteeringSettings
from learners.steering_task import on_cpu
from learners.training import Job, Tensors, Trained, below, under
from learners.training_settings import in_unit_interval, positive
from vnetsim.errors import InputError
from vnetsim.learning import LearnerContext, Participant, Series

BACKBONE_OPTIMIZER = "backbone_optimizer."
SUB_OPTIMIZER = "sub_optimizer."
OPTIMIZERS = (BACKBONE_OPTIMIZER, SUB_OPTIMIZER)
BACKBONE, SUB = "backbone.", "sub."
VISITS = "visits"


@dataclass(frozen=True, kw_only=True)
class CdlSettings(SteeringSettings):
    """Settings of CDL: the task's, and those of the divergence.

    Args:
        coupling: how the two terms act. ``unit``: the backbone descends KL(b || s), the sub-network KL(s || b), each
            with the other held fixed, as in the published update equations. ``beta``: the same with the weights
            ``beta`` and 1 - ``beta`` of the published L_cd. ``joint``: both networks descend the whole of
            beta KL(b || s) + (1 - beta) KL(s || b), nothing held fixed.
        beta: see ``coupling``, in [0, 1].
        divergence: factor of both terms beside the steering error, >= 0; at 0 the steering network trains as in
            decentralised SGD.
        tau: temperature of the softmax over the features, > 0. None is published. At 1 the divergence outweighs the
            steering error on the built-in roads, and 20 rounds learn little.
        compare: ``features``, the input of the linear layer. ``output``, the steering angle, is refused: it is one
            number, whose softmax is 1 whatever the networks do.
        variant: ``described``, or ``released``, the loss of the authors' published code for comparison. That code feeds
            sigmoids of the two networks' angles to a function that expects a logarithm: with P = sigmoid(y_b) and
            S = sigmoid(y_s) its term is beta S (log S - P) + (1 - beta) P (log P - S), gradients through both. It is
            no divergence: it falls as P and S grow, so that both angles are pulled up; a constant target of 0 ends at
            +0.10 for ``beta`` 0.5. It also sends and mixes the sub-network, which doubles the payload. Not imitated
            are that code's common first layer of both networks, its ReLU on the scaled image, its rounding of angles,
            and its copy of the backbone to the sub-network in the last silo alone. ``coupling``, ``tau`` and
            ``compare`` have no effect.
    """

    coupling: Literal["unit", "beta", "joint"] = "unit"
    beta: float = 0.5
    divergence: float = 1.0
    tau: float = 4.0
    compare: Literal["features", "output"] = "features"
    variant: Literal["described", "released"] = "described"

    def __post_init__(self) -> None:
        """Refuse values without meaning.

        Raises:
            InputError: naming the key.
        """
        super().__post_init__()
        in_unit_interval(self, "beta", with_one=True)
        if not (math.isfinite(self.divergence) and self.divergence >= 0):
            raise InputError(f"learning.divergence must be at least 0 and finite, got {self.divergence}.")
        positive(self, "tau")


def contrastive_divergence(z_b: Tensor, z_s: Tensor, *, settings: CdlSettings) -> Tensor:
    """Return what both networks descend besides the steering error, the mean over the frames.

    Args:
        z_b: features of the backbone, shape (B, d), d > 1.
        z_s: features of the sub-network, same shape.
        settings: ``coupling``, ``beta`` and ``tau``.
    """
    beta, tau = settings.beta, settings.tau
    if settings.coupling == "joint":
        rows = beta * divergence_rows(z_b, z_s, tau=tau) + (1 - beta) * divergence_rows(z_s, z_b, tau=tau)
        return rows.mean()
    of_backbone, of_sub = (1.0, 1.0) if settings.coupling == "unit" else (beta, 1 - beta)
    # each term reaches one network alone, so one backward pass is the two steps of the update equations
    rows = of_backbone * divergence_rows(z_b, z_s.detach(), tau=tau)
    return (rows + of_sub * divergence_rows(z_s, z_b.detach(), tau=tau)).mean()


def released_divergence(y_b: Tensor, y_s: Tensor, *, beta: float) -> Tensor:
    """Return the published code's term, the mean over the frames; see ``CdlSettings.variant`` for what is wrong.

    Args:
        y_b: steering angles of the backbone, shape (B,).
        y_s: those of the sub-network, same shape.
        beta: weight of the first of its two parts.
    """
    p, s = y_b.sigmoid(), y_s.sigmoid()
    return (beta * s * (s.log() - p) + (1 - beta) * p * (p.log() - s)).mean()


class Pair(nn.Module):
    """Backbone and sub-network.

    Args:
        network: copied for both.
    """

    def __init__(self, network: ResNet8) -> None:
        super().__init__()
        self.backbone = copy.deepcopy(network)
        self.sub = copy.deepcopy(network)


@final
class Cdl(SteeringLearner):
    """Contrastive divergence between backbone and sub-network; implements ``vnetsim.learning.Learner``.

    A silo's first visit trains the backbone alone; at its end, before any mixing, the sub-network becomes its copy.
    From the second visit on both learn: the mixed backbone against what the silo knew before.

    Args:
        context: what the simulator gives every learner.
        settings: the method's settings.

    Raises:
        InputError: when there are fewer than two features to compare.
    """

    name: ClassVar[str] = "cdl"
    paper: ClassVar[str] = (
        "Do, Nguyen, Tran et al. (2023): Reducing non-IID effects in federated autonomous driving with contrastive "
        "divergence loss, arXiv:2303.06305"
    )
    Settings: ClassVar[type] = CdlSettings
    payload: ClassVar[str] = (
        "the backbone to every neighbour, never the sub-network; under the topology star the backbone down and up"
    )
    equations: ClassVar[tuple[str, ...]] = (
        "b = softmax(z_b / tau), s = softmax(z_s / tau): features of backbone and sub-network on the same frames",
        "theta_b descends (y_b - y)^2 + beta_b KL(b || stopgrad s); theta_s descends beta_s KL(s || stopgrad b)",
        "theta_b_i <- sum_j A_ij theta_b_j over the neighbours whose exchange completed, all at once, after u steps",
        "A_ij = 1 / (1 + max(d_i, d_j)), A_ii = 1 - sum_j A_ij  (Metropolis-Hastings; d: number of neighbours)",
        "first visit of a silo: no divergence; theta_s <- theta_b at its end",
    )
    networks_trained: ClassVar[int] = 2
    _settings: CdlSettings
    own_series: ClassVar[tuple[Series, ...]] = (
        Series(
            name="kl_b_s",
            label="KL(b || s)",
            unit="nat",
            caption="Divergence between the features of backbone b and sub-network s on the training frames, mean over "
            "the steps of the round's vehicles; silos in their first round have none.",
        ),
        Series(
            name="kl_s_b",
            label="KL(s || b)",
            unit="nat",
            caption="Divergence between the features of backbone b and sub-network s on the training frames, mean over "
            "the steps of the round's vehicles; silos in their first round have none.",
        ),
    )

    def __init__(self, context: LearnerContext, settings: CdlSettings) -> None:
        self._released = settings.variant == "released"
        super().__init__(context, settings)
        compared = self._task.network.width if settings.compare == "features" else 1
        if compared < 2 and not self._released:
            raise InputError(
                f"learning.compare: '{settings.compare}' gives {compared} value to compare, and the softmax of one "
                "value is always 1, so that both divergences are 0: use features."
            )
        self._alone = self._task.steer(self._first_step)
        masks = 2 if self._released else 1
        self._together = self._task.steer(
            self._step, network=Pair(self._task.network), optimizer=self._optimizers, masks=masks
        )

    def job(self, participant: Participant, base: State, own: State) -> Job:
        """Return the training of the backbone and, from the second visit on, of both; see ``SteeringLearner.job``."""
        visit = self._task.visit_of(participant)
        backbone = {name: tensor for name, tensor in base.items() if not name.startswith(BESIDE)}
        if not own:
            return Job(program=self._alone, visit=visit, base=backbone)
        sub = below(BESIDE, base if self._released else own)
        return Job(
            program=self._together,
            visit=visit,
            base={**under(BACKBONE, backbone), **under(SUB, sub)},
            optimizer={name: tensor for name, tensor in own.items() if name.startswith(OPTIMIZERS)},
        )

    def visited(self, trained: Trained, own: State) -> Visited:
        """Return the backbone, and sub-network and optimizers as the silo's own; see ``SteeringLearner.visited``."""
        if own:
            backbone, sub = below(BACKBONE, trained.state), below(SUB, trained.state)
            optimizers = trained.optimizer
        else:  # the sub-network becomes a copy of the backbone
            backbone = sub = trained.state
            optimizers = under(BACKBONE_OPTIMIZER, trained.optimizer)
        beside = under(BESIDE, on_cpu(sub))
        return Visited(
            sent=on_cpu(backbone) | (beside if self._released else {}),
            own={
                VISITS: own.get(VISITS, torch.tensor(0)) + 1,
                **({} if self._released else beside),
                **on_cpu(optimizers),
            },
            loss=trained.mean("loss"),
            metrics={name: trained.mean(name) for name in trained.figures if name != "loss"},
        )

    def _first_step(self, backbone: nn.Module, batch: Tensors, _: Tensors) -> tuple[Tensor, Tensors]:
        assert isinstance(backbone, ResNet8)
        angles = backbone.head(self._task.dropout(backbone.features(batch["images"]), batch))
        loss = self._task.steering_loss(angles, batch["angles"])
        return loss, {"loss": loss}

    def _step(self, pair: nn.Module, batch: Tensors, _: Tensors) -> tuple[Tensor, Tensors]:
        assert isinstance(pair, Pair)
        z_b, z_s = pair.backbone.features(batch["images"]), pair.sub.features(batch["images"])
        angles = pair.backbone.head(self._task.dropout(z_b, batch))
        loss = self._task.steering_loss(angles, batch["angles"])
        if self._released:
            of_sub = pair.sub.head(self._task.dropout(z_s, batch, mask=1))
            divergence = released_divergence(angles, of_sub, beta=self._settings.beta)
        else:
            divergence = contrastive_divergence(z_b, z_s, settings=self._settings)
        return loss + self._settings.divergence * divergence, {"loss": loss, **self._divergences(z_b, z_s)}

    @torch.no_grad()
    def _divergences(self, z_b: Tensor, z_s: Tensor) -> dict[str, Tensor]:
        tau = self._settings.tau
        return {
            "kl_b_s": divergence_rows(z_b, z_s, tau=tau).mean(),
            "kl_s_b": divergence_rows(z_s, z_b, tau=tau).mean(),
        }

    def _optimizers(self, parameters: Mapping[str, Tensor], rate: Rate, state: Tensors) -> Optimizer:
        """Return one optimizer for each network: the sub-network's has taken fewer steps."""
        parts = {BACKBONE_OPTIMIZER: BACKBONE, SUB_OPTIMIZER: SUB}
        return Together(
            {
                prefix: self._task.optimizer(below(network, parameters), rate, below(prefix, state))
                for prefix, network in parts.items()
            }
        )

    def _first_sent(self) -> State:
        state = super()._first_sent()
        return {**state, **under(BESIDE, state)} if self._released else state

    def _own_template(self) -> State:
        moments = self._task.optimizer_template()
        return {
            VISITS: torch.tensor(0),
            **({} if self._released else under(BESIDE, self._task.initial_state())),
            **under(BACKBONE_OPTIMIZER, moments),
            **under(SUB_OPTIMIZER, moments),
        }

    def _facts(self) -> Mapping[str, str]:
        settings = self._settings
        weights = {
            "unit": "1 each, the other network held fixed",
            "beta": f"{settings.beta:g} and {1 - settings.beta:g}, the other network held fixed",
            "joint": f"{settings.beta:g} and {1 - settings.beta:g}, through both networks",
        }[settings.coupling]
        return {
            "Divergence": "the published code's term on the angles, which is none; see the setting variant"
            if self._released
            else f"KL(b || s) and KL(s || b) on {self._task.network.width} features, weights {weights}",
            "Sub-network": "sent and mixed like the model" if self._released else "never sent, never mixed",
        }
