"""CDL: decentralised steering with a contrastive divergence loss between what a silo knew and what it receives.

Beside the network that steers and is mixed, the backbone theta_b, every silo holds a sub-network theta_s of the same
shape that never leaves it. Both are compared by their features on the silo's own frames: the backbone is kept from
drifting away with the models of others, the sub-network follows slowly.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from learners.cdl_settings import DIVERGENCES, GRADIENTS, INFLUENCE, CdlSettings
from learners.data.moving import moved
from learners.encoders.resnet8 import ResNet8
from learners.engines.optimizers import CombinedOptimizer, Optimizer, Rate
from learners.engines.programs import Tensors, Trained, TrainingJob, copy_state, prefixed, unprefixed
from learners.frame import BASE, require_option, scalar, takes
from learners.mathematics.losses import divergence_rows
from learners.state.global_model import State
from learners.steering import SUB_PREFIX, LocalResult, SteeringLearner
from vnetsim.learning import LearnerContext, Participant, Series

BACKBONE_OPTIMIZER = "backbone_optimizer."
SUB_OPTIMIZER = "sub_optimizer."
OPTIMIZERS = (BACKBONE_OPTIMIZER, SUB_OPTIMIZER)
BACKBONE, SUB = "backbone.", "sub."
TRAININGS, SEEN = "visits", "seen"  # of a silo's state; how often it was trained has its name from older folders


def contrastive_divergence(
    z_b: Tensor, z_s: Tensor, *, settings: CdlSettings, influence: Tensor | float = 1.0
) -> Tensor:
    """Return what both networks descend besides the steering error, the mean over the frames.

    Args:
        z_b: features of the backbone, shape (B, d), d > 1.
        z_s: features of the sub-network, same shape.
        settings: ``coupling``, ``beta`` and ``tau``.
        influence: of the sub-network on the backbone; see ``CdlSettings.divergence_schedule``.
    """
    beta, tau = settings.beta, settings.tau
    if settings.coupling == "joint":
        rows = beta * divergence_rows(z_b, z_s, tau=tau) + (1 - beta) * divergence_rows(z_s, z_b, tau=tau)
        return influence * rows.mean()
    of_backbone, of_sub = (1.0, 1.0) if settings.coupling == "unit" else (beta, 1 - beta)
    # each term reaches one network alone, so one backward pass is the two steps of the update equations
    rows = influence * of_backbone * divergence_rows(z_b, z_s.detach(), tau=tau)
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


class BackboneAndSub(nn.Module):
    """Backbone and sub-network.

    Args:
        network: copied for both.
    """

    def __init__(self, network: ResNet8) -> None:
        super().__init__()
        self.backbone = copy.deepcopy(network)
        self.sub = copy.deepcopy(network)


class Cdl(SteeringLearner):
    """Contrastive divergence between backbone and sub-network.

    At first a silo trains the backbone alone; at the end, before any mixing, the sub-network becomes its copy.
    From the second time on both learn: the mixed backbone against what the silo knew before.

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
        "first local training of a silo: no divergence; theta_s <- theta_b at its end",
    )
    networks_trained: ClassVar[int] = 2
    _settings: CdlSettings

    def __init__(self, context: LearnerContext, settings: CdlSettings) -> None:
        self._released = settings.variant == "released"
        self._rounds = context.rounds
        if settings.dropout > 0:
            require_option(self, "kept", "learning.dropout", "leave it at 0")
        # what the shipped loss does not read is not handed to the engine
        self._compares = type(self).loss is not Cdl.loss
        self._takes_outputs = takes(self.loss, "outputs")
        super().__init__(context, settings)
        self._alone = self._task.steer(self._first_step)
        masks = 2 if self._released else 1
        self._together = self._task.steer(
            self._step, network=BackboneAndSub(self._task.network), optimizer=self._optimizers, masks=masks
        )

    def loss(
        self,
        model: nn.Module,
        images: Tensor,
        angles: Tensor,
        base: State,  # noqa: ARG002 - for methods that compare with it
        kept: Tensor | None = None,
        outputs: Tensor | None = None,
    ) -> Tensor:
        """Return what the backbone descends besides the divergence: the steering error, mean over the frames.

        A function of its arguments alone: it is called for several vehicles at once, from several threads.

        Args:
            model: the backbone as the steps before have left it; gradients flow to its parameters.
            images: a batch of the silo's frames in [0, 1], shape (B, C, H, W).
            angles: their steering angles in [-1, 1], shape (B,).
            base: the backbone that the local training started from, tensors by name; not to be changed.
            kept: which features the linear layer sees, shape (B, d), where ``learning.dropout`` asks for it. A method
                that does not take it refuses that setting.
            outputs: angles that the model has made of the frames already, with gradients, shape (B,). For a method that
                does not take them the frames pass the backbone twice in steps with a divergence.
        """
        if outputs is None:
            assert isinstance(model, ResNet8)
            features = self._task.dropout(model.features(images), {} if kept is None else {"kept0": kept})
            outputs = model.head(features)
        return self._task.steering_loss(outputs, angles)

    @final
    def job(self, participant: Participant, base: State, own: State) -> TrainingJob:
        """Return the training of the backbone and, from the second time on, of both; see ``SteeringLearner.job``."""
        training = self._task.local_training_of(participant)
        backbone = {name: tensor for name, tensor in base.items() if not name.startswith(SUB_PREFIX)}
        compared = moved(prefixed(BASE, backbone), self._task.device) if self._compares else {}
        if not own:
            return TrainingJob(program=self._alone, training=training, base=backbone, given=compared)
        sub = unprefixed(SUB_PREFIX, base if self._released else own)
        influence = torch.full((), self._influence(participant, own), dtype=torch.float32, device=self._task.device)
        return TrainingJob(
            program=self._together,
            training=training,
            base={**prefixed(BACKBONE, backbone), **prefixed(SUB, sub)},
            given={INFLUENCE.name: influence, **compared},
            optimizer={name: tensor for name, tensor in own.items() if name.startswith(OPTIMIZERS)},
        )

    @final
    def local_result(self, trained: Trained, own: State) -> LocalResult:
        """Return the backbone; sub-network and optimizers as the silo's own; see ``SteeringLearner.local_result``."""
        if own:
            backbone, sub = unprefixed(BACKBONE, trained.state), unprefixed(SUB, trained.state)
            optimizers = trained.optimizer
        else:  # the sub-network becomes a copy of the backbone
            backbone, sub = trained.state, copy_state(trained.state)
            optimizers = prefixed(BACKBONE_OPTIMIZER, trained.optimizer)
        sub_network = prefixed(SUB_PREFIX, sub)
        figures = {name: trained.mean(name) for name in trained.figures if name != "loss"}
        return LocalResult(
            sent=backbone | (sub_network if self._released else {}),
            own={
                TRAININGS: own.get(TRAININGS, torch.tensor(0)) + 1,
                **({} if self._released else sub_network),
                **self._task.kept(optimizers),
                **self._seen(own, figures),
            },
            loss=trained.mean("loss"),
            metrics=figures,
        )

    @final
    def own_series(self) -> tuple[Series, ...]:
        """Return divergences, influence and gradients; see ``SteeringLearner.own_series``."""
        constant = self._settings.divergence_schedule == "constant"
        return (
            *DIVERGENCES,
            *(() if constant else (INFLUENCE,)),
            *GRADIENTS,
        )

    @final
    def measured(self, jobs: Sequence[TrainingJob]) -> Sequence[Mapping[str, float]]:
        """Return the sub-network's influence, and the gradients compared; see ``SteeringLearner.measured``."""
        compared = [i for i, job in enumerate(jobs) if job.program is self._together]
        influences = [jobs[i].given[INFLUENCE.name] for i in compared]
        told = dict(zip(compared, torch.stack(influences).tolist() if compared else [], strict=True))
        figures = [{INFLUENCE.name: told[i]} if i in told else {} for i in range(len(jobs))]
        # costs as much time as about one step, and changes no training
        calls = [partial(self._compare_gradients, jobs[i]) for i in compared]
        for i, found in zip(compared, self._task.engine.map(self._together, calls), strict=True):
            figures[i] |= found
        return figures

    def _compare_gradients(self, job: TrainingJob, networks: nn.Module) -> dict[str, float]:
        """Return |grad L_cd| / |grad L_lr| and their cosine over all of the backbone, on the batch of the first step.

        Where one of the gradients vanishes there is no cosine; without the second, and where one is not finite, there
        is nothing.
        """
        batch = job.program.prepare(job.program.draw(job.training, torch.Generator().manual_seed(job.training.seed)))
        networks.load_state_dict(moved(job.base, self._task.device))
        networks.train()
        loss, divergence, _ = self._terms(networks, batch, job.given)
        backbone = [parameter for name, parameter in networks.named_parameters() if name.startswith(BACKBONE)]
        of_loss = _flat(
            torch.autograd.grad(loss, backbone, retain_graph=True, allow_unused=True, materialize_grads=True)
        )
        of_divergence = _flat(torch.autograd.grad(divergence, backbone, allow_unused=True, materialize_grads=True))
        products = torch.stack([of_divergence.norm(), of_loss.norm(), of_divergence @ of_loss])
        *lengths, product = products.tolist()
        if not (all(map(math.isfinite, lengths)) and lengths[1] > 0):
            return {}
        figures = {"gradient_ratio": lengths[0] / lengths[1]}
        if lengths[0] > 0:
            figures["gradient_cosine"] = product / (lengths[0] * lengths[1])
        return figures

    def _influence(self, participant: Participant, own: State) -> float:
        """Return the sub-network's influence on a silo's backbone; see ``CdlSettings.divergence_schedule``."""
        schedule = self._settings.divergence_schedule
        if schedule == "linear":
            return max(0.0, 1 - participant.base.version / self._rounds)
        if schedule == "measured" and SEEN in own:
            last, largest = own[SEEN].tolist()
            return last / largest if largest > 0 else 1.0
        return 1.0

    def _seen(self, own: State, figures: Mapping[str, float]) -> dict[str, Tensor]:
        """Return KL(b || s) of a local training and the largest so far, where the schedule asks for them."""
        if self._settings.divergence_schedule != "measured" or "kl_b_s" not in figures:
            return {}
        largest = max(figures["kl_b_s"], float(own[SEEN][1]) if SEEN in own else 0.0)
        return {SEEN: torch.tensor([figures["kl_b_s"], largest], dtype=torch.float64)}

    def _first_step(self, backbone: nn.Module, batch: Tensors, given: Tensors) -> tuple[Tensor, Tensors]:
        loss = self._steering_error(backbone, batch, given)
        return loss, {"loss": loss}

    def _steering_error(self, backbone: nn.Module, batch: Tensors, given: Tensors, **more: Tensor) -> Tensor:
        if "kept0" in batch:
            more["kept"] = batch["kept0"]
        return scalar(self.loss(backbone, batch["images"], batch["angles"], unprefixed(BASE, given), **more), self.loss)

    def _step(self, networks: nn.Module, batch: Tensors, given: Tensors) -> tuple[Tensor, Tensors]:
        loss, divergence, figures = self._terms(networks, batch, given)
        return loss + divergence, {"loss": loss, **figures}

    def _terms(self, networks: nn.Module, batch: Tensors, given: Tensors) -> tuple[Tensor, Tensor, Tensors]:
        """Return the steering error, the divergence, and figures."""
        assert isinstance(networks, BackboneAndSub)
        influence = given[INFLUENCE.name]
        z_b, z_s = networks.backbone.features(batch["images"]), networks.sub.features(batch["images"])
        angles = networks.backbone.head(self._task.dropout(z_b, batch))
        more = {"outputs": angles} if self._takes_outputs else {}
        loss = self._steering_error(networks.backbone, batch, given, **more)
        if self._released:
            of_sub = networks.sub.head(self._task.dropout(z_s, batch, mask=1))
            divergence = influence * released_divergence(angles, of_sub, beta=self._settings.beta)
        else:
            divergence = contrastive_divergence(z_b, z_s, settings=self._settings, influence=influence)
        return loss, divergence, self._divergences(z_b, z_s)

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
        return CombinedOptimizer(
            {
                prefix: self._task.optimizer(unprefixed(network, parameters), rate, unprefixed(prefix, state))
                for prefix, network in parts.items()
            }
        )

    def _first_sent(self) -> State:
        state = super()._first_sent()
        return {**state, **prefixed(SUB_PREFIX, state)} if self._released else state

    def _own_template(self) -> State:
        moments = self._task.optimizer_template()
        return {
            TRAININGS: torch.tensor(0),
            SEEN: torch.zeros(2, dtype=torch.float64),
            **({} if self._released else prefixed(SUB_PREFIX, self._task.initial_state())),
            **prefixed(BACKBONE_OPTIMIZER, moments),
            **prefixed(SUB_OPTIMIZER, moments),
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
            "Influence of the sub-network": {
                "constant": "the same in all rounds",
                "linear": "falls linearly to 0 over the rounds",
                "measured": "KL(b || s) of the silo's last local training over the largest so far",
            }[settings.divergence_schedule],
        }


def _flat(gradients: Sequence[Tensor]) -> Tensor:
    return torch.cat([gradient.flatten() for gradient in gradients])
