"""CDL: decentralised steering with a contrastive divergence loss between a silo's earlier model and what it receives.

Beside the network that steers and is mixed, the backbone theta_b, every silo has a sub-network theta_s of the same
shape that is never sent. The loss compares features of both on the silo's own frames: it keeps the backbone from
drifting away with the models of others, and the sub-network follows slowly.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Literal

import torch
from torch import Tensor, nn

from learners.data.moving import copy_into, to_device
from learners.encoders import ResNet8
from learners.engines.optimizers import CombinedOptimizer, Optimizer, Rate
from learners.engines.programs import (
    State,
    Tensors,
    Trained,
    TrainingJob,
    add_prefix,
    copy_state,
    draw_first,
    remove_prefix,
    to_host,
)
from learners.engines.side_by_side import Copies, run_each
from learners.federated import FederatedLearner, Parts
from learners.local_training import Start, make_step, make_update
from learners.mathematics.losses import divergence_rows
from learners.state.server import Folded
from learners.steering_baselines import STEERING_DEFAULTS, STEERING_SCALES, mean_metrics, steering_parts
from learners.tasks.settings import Temperature
from learners.tasks.steering import SteeringSettings, SteeringTask
from learners.tasks.task import StepLoss
from vnetsim.errors.bounds import TRAINS, Acts, Share
from vnetsim.learning import Cost, LearnerContext, Participant, Series, Update

BACKBONE_OPTIMIZER = "backbone_optimizer."
SUB_OPTIMIZER = "sub_optimizer."
OPTIMIZERS = (BACKBONE_OPTIMIZER, SUB_OPTIMIZER)
BACKBONE, SUB = "backbone.", "sub."  # prefixes in the training of both networks
SUB_PREFIX = "sub."  # of a silo's state
TRAININGS, SEEN = "visits", "seen"  # of a silo's state; TRAININGS keeps its old name for older run directories

KL_B_S = Series(
    name="kl_b_s",
    group="Divergence of backbone and sub-network",
    result=False,
    label="KL(b || s)",
    unit="nat",
    caption="Divergence between the features of backbone b and sub-network s on the training frames, mean over the "
    "steps of the round's vehicles; without silos in their first round.",
)
DIVERGENCES = (KL_B_S, replace(KL_B_S, name="kl_s_b", label="KL(s || b)"))
INFLUENCE = Series(
    name="divergence_influence",
    result=False,
    label="Influence of theta_s",
    caption="Factor of KL(b || s) in the backbone's loss (learning.divergence_schedule), mean over the vehicles "
    "whose silo has a sub-network.",
)
GRADIENT_RATIO = replace(
    INFLUENCE,
    name="gradient_ratio",
    label="Gradient ratio",
    caption="|grad L_cd| / |grad L_lr|: gradient of the divergence, as weighted, over that of the steering error, both "
    "with respect to the backbone, at the first step of a local training; mean over the vehicles whose silo has a "
    "sub-network. Near 0 the divergence is nearly off.",
)
GRADIENT_COSINE = replace(
    INFLUENCE,
    name="gradient_cosine",
    label="Gradient cosine",
    caption="Cosine between the gradients of the divergence and of the steering error with respect to the backbone, at "
    "the first step of a local training; mean over the vehicles whose silo has a sub-network. Below 0 they work "
    "against each other.",
)


@dataclass(frozen=True, kw_only=True)
class CdlSettings(SteeringSettings):
    """Settings of CDL: the task's, and those of the divergence.

    Args:
        coupling: how the two terms act. ``unit``: the backbone minimises KL(b || s), the sub-network KL(s || b), each
            with the other held fixed, as in the published update equations. ``beta``: the same with the weights
            ``beta`` and 1 - ``beta`` of the published L_cd. ``joint``: both networks minimise beta KL(b || s) + (1 -
            beta) KL(s || b), and neither is held fixed.
        beta: weight of KL(b || s), unless ``coupling`` is ``unit``; KL(s || b) has 1 - ``beta``; in [0, 1].
        divergence_schedule: how the sub-network's influence on the backbone changes: a factor of KL(b || s) in the
            backbone's loss; with ``joint`` of both terms. The description says that "once the distribution between
            silos achieves an acceptable level of synchronization, we reduce the influence of the sub-network", but
            neither when nor how; these are our readings. ``constant``: 1. ``linear``: from 1 in the first round to 0
            after the last. ``measured``: KL(b || s) over the silo's last local training, divided by the largest so far.
        temperature: tau, of the softmax over the features, the input of the linear layer, > 0. None is published. In
            the study ``cdl-table``, size small, the mean gradient of the divergence was 14 to 21 times that of the
            steering error at tau = 1, and the error larger than at tau = 4, where it was 4 %.
    """

    coupling: Annotated[Literal["unit", "beta", "joint"], TRAINS] = "unit"
    beta: Annotated[Share, TRAINS, Acts("learning.coupling", unless=("unit",))] = 0.5
    divergence_schedule: Annotated[Literal["constant", "linear", "measured"], TRAINS] = "constant"
    temperature: Temperature = 4.0


def contrastive_divergence(
    z_b: Tensor, z_s: Tensor, *, settings: CdlSettings, influence: Tensor | float = 1.0
) -> Tensor:
    """Return the divergence term of both networks' loss, the mean over the frames, shape ().

    Features ``z_b`` of the backbone and ``z_s`` of the sub-network have the shape (B, d), d > 1. ``influence``
    multiplies the term that trains the backbone; with the coupling ``joint`` both terms.
    """
    beta, tau = settings.beta, settings.temperature
    if settings.coupling == "joint":
        rows = beta * divergence_rows(z_b, z_s, tau=tau) + (1 - beta) * divergence_rows(z_s, z_b, tau=tau)
        return influence * rows.mean()
    of_backbone, of_sub = (1.0, 1.0) if settings.coupling == "unit" else (beta, 1 - beta)
    # each term has gradients in one network only, so one backward pass does both update equations
    rows = influence * of_backbone * divergence_rows(z_b, z_s.detach(), tau=tau)
    return (rows + of_sub * divergence_rows(z_s, z_b.detach(), tau=tau)).mean()


class Cdl(FederatedLearner):
    """Contrastive divergence between backbone and sub-network.

    In its first local training a silo trains the backbone only; at its end, before any mixing, the sub-network becomes
    a copy. From the second on both train: the mixed backbone against the silo's sub-network.
    """

    name, task, Settings = "cdl", "steering", CdlSettings
    paper = (
        "Do, Nguyen, Tran et al. (2023): Reducing non-IID effects in federated autonomous driving with contrastive "
        "divergence loss, arXiv:2303.06305"
    )
    payload = "the backbone to every neighbour, never the sub-network; under the topology star the backbone down and up"
    equations = (
        "b = softmax(z_b / tau), s = softmax(z_s / tau): features of backbone and sub-network on the same frames",
        "theta_b descends (y_b - y)^2 + beta_b KL(b || stopgrad s); theta_s descends beta_s KL(s || stopgrad b)",
        "theta_b_i <- sum_j A_ij theta_b_j over the neighbours whose exchange completed, all at once, after u steps",
        "A_ij = 1 / (1 + max(d_i, d_j)), A_ii = 1 - sum_j A_ij  (Metropolis-Hastings; d: number of neighbours)",
        "first local training of a silo: no divergence; theta_s <- theta_b at its end",
    )
    defaults, scales = STEERING_DEFAULTS, STEERING_SCALES

    @staticmethod
    def parts(context: LearnerContext, settings: CdlSettings) -> Parts:
        """Return the training of two networks, and neighbours that mix, or with ``star`` an RSU that averages."""
        task = SteeringTask(context, settings)
        constant = settings.divergence_schedule == "constant"
        series = (*DIVERGENCES, *(() if constant else (INFLUENCE,)), GRADIENT_RATIO, GRADIENT_COSINE)
        weights = {
            "unit": "1 each, the other network held fixed",
            "beta": f"{settings.beta:g} and {1 - settings.beta:g}, the other network held fixed",
            "joint": f"{settings.beta:g} and {1 - settings.beta:g}, through both networks",
        }[settings.coupling]
        return steering_parts(
            context,
            settings,
            task,
            ContrastiveDivergence(task, settings, series),
            name=Cdl.name,
            topology=context.experiment.exchange.topology,
            own=True,
            series=series,
            facts={
                "Divergence": f"KL(b || s) and KL(s || b) on {task.network.width} features, weights {weights}",
                "Sub-network": "never sent, never mixed",
                "Work": "of both networks, also in a silo's first local training, which trains the backbone alone",
                "Influence of the sub-network": {
                    "constant": "the same in all rounds",
                    "linear": "falls linearly to 0 over the rounds",
                    "measured": "KL(b || s) of the silo's last local training over the largest so far",
                }[settings.divergence_schedule],
            },
        )


class ContrastiveDivergence:
    """Local training of the backbone and, from a silo's second local training on, of the sub-network.

    The backbone minimises the steering error, or ``loss``, plus the divergence. With a divergence the batch has the
    angles as ``outputs``; a loss that does not use them passes the frames a second time. ``figures`` are of ``series``.
    """

    def __init__(
        self, task: SteeringTask, settings: CdlSettings, series: Sequence[Series], loss: StepLoss | None = None
    ) -> None:
        self._task, self._settings, self._series = task, settings, series
        self._descend = make_step(loss or task.loss)
        self._alone = task.training(self._descend, shipped=loss is None)
        both = nn.ModuleDict({"backbone": copy.deepcopy(task.network), "sub": copy.deepcopy(task.network)})
        self._together = task.training(self._step, network=both, optimizer=self._create_optimizer, shipped=loss is None)
        self._copies = Copies(both)

    def cost(self, silo: int) -> Cost:
        """Return the work of all steps through both networks, though a silo's first training has one; no bytes."""
        work_flop = self._task.training_flop(self._task.images_per_training(silo) * 2)
        return Cost(download_bytes=0, upload_bytes=0, work_flop=work_flop, steps=self._task.settings.steps)

    def train(self, starts: Sequence[Start]) -> list[Update]:
        """Train from each start, after comparing gradients at its first batch; return updates, on the CPU, in order."""
        jobs = [self._make_job(start) for start in starts]
        compared = self._compare_all(starts, jobs)
        trained = to_host(self._task.engine.train(jobs))
        return [self._make_update(*one) for one in zip(starts, jobs, trained, compared, strict=True)]

    def figures(self, updates: Sequence[Update], folded: Folded, version: int) -> Mapping[str, float]:  # noqa: ARG002
        """Return the means of loss and ``series``, each over the updates that have it; empty without updates."""
        return mean_metrics(updates, self._series)

    def _make_job(self, start: Start) -> TrainingJob:
        """Return the training of both networks, whose optimizers continue; a silo's first is of the backbone alone."""
        training = self._task.local_training_of(start.participant)
        if not start.own:
            return TrainingJob(program=self._alone, training=training, base=start.base, mixed=start.mixed_as())
        influence = self._influence(start.participant, start.own)
        return TrainingJob(
            program=self._together,
            training=training,
            base={**add_prefix(BACKBONE, start.base), **add_prefix(SUB, remove_prefix(SUB_PREFIX, start.own))},
            given={INFLUENCE.name: torch.full((), influence, dtype=torch.float32, device=self._task.device)},
            optimizer={name: tensor for name, tensor in start.own.items() if name.startswith(OPTIMIZERS)},
            mixed=start.mixed_as(BACKBONE),
        )

    def _make_update(self, start: Start, job: TrainingJob, trained: Trained, compared: Mapping[str, float]) -> Update:
        """Return an upload of the backbone; the silo keeps sub-network, optimizers' states, counter and divergences."""
        if start.own:
            backbone, sub = remove_prefix(BACKBONE, trained.state), remove_prefix(SUB, trained.state)
            optimizers: Tensors = trained.optimizer
        else:  # the sub-network becomes a copy of the backbone
            backbone, sub = trained.state, copy_state(trained.state)
            optimizers = add_prefix(BACKBONE_OPTIMIZER, trained.optimizer)
        figures = {name: mean for name, mean in trained.means.items() if name != "loss"}
        update = make_update(self._task, start.participant, job, trained)
        return replace(
            update,
            state=backbone,
            metrics={**update.metrics, **figures, **compared},
            kept={
                TRAININGS: start.own.get(TRAININGS, torch.tensor(0)) + 1,
                **add_prefix(SUB_PREFIX, sub),
                **self._task.kept(optimizers),
                **self._seen_divergences(start.own, figures),
            },
        )

    def _compare_all(self, starts: Sequence[Start], jobs: Sequence[TrainingJob]) -> Sequence[Mapping[str, float]]:
        """Return each job's influence, and its gradients' ratio and cosine; {} for a silo's first training."""
        both = [i for i, job in enumerate(jobs) if job.program is self._together]
        figures: list[dict[str, float]] = [{} for _ in jobs]
        # costs as much time as about one step
        products = run_each([partial(self._measure_gradients, jobs[i]) for i in both], self._task.device)
        for i, found in zip(both, torch.stack(products).tolist() if both else [], strict=True):
            # ``given`` has it too, but on the device, which would be waited for
            influence = torch.tensor(self._influence(starts[i].participant, starts[i].own), dtype=torch.float32)
            figures[i] = {INFLUENCE.name: influence.item(), **_compare_gradients(*found)}
        return figures

    def _measure_gradients(self, job: TrainingJob) -> Tensor:
        """Return |g|, |h| and g . h, (3,): the backbone's gradients of divergence g and error h on the first batch."""
        base = to_device(job.base, self._task.device)
        generator = torch.Generator().manual_seed(job.training.seed)
        batch = job.program.prepare(draw_first(job.program, job.training, generator))
        with self._copies.borrow() as networks:
            copy_into(networks, base)
            networks.train()
            loss, divergence, _ = self._loss_terms(networks, {**job.given, **batch}, base)
            backbone = [parameter for name, parameter in networks.named_parameters() if name.startswith(BACKBONE)]
            gradient = partial(torch.autograd.grad, inputs=backbone, allow_unused=True, materialize_grads=True)
            both = (gradient(one, retain_graph=True) for one in (loss, divergence))
            of_loss, of_divergence = (torch.cat([part.flatten() for part in one]) for one in both)
        return torch.stack([of_divergence.norm(), of_loss.norm(), of_divergence @ of_loss])

    def _influence(self, participant: Participant, own: State) -> float:
        """Return the factor of KL(b || s) by ``divergence_schedule``; 1 with ``measured`` before a silo has a value."""
        schedule = self._settings.divergence_schedule
        if schedule == "linear":
            return 1 - participant.passed
        if schedule == "measured" and SEEN in own:
            last, largest = own[SEEN].tolist()
            return last / largest if largest > 0 else 1.0
        return 1.0

    def _seen_divergences(self, own: State, figures: Mapping[str, float]) -> dict[str, Tensor]:
        """Return, as SEEN, KL(b || s) of this training and the silo's largest so far; {} if not needed or not known."""
        if self._settings.divergence_schedule != "measured" or "kl_b_s" not in figures:
            return {}
        largest = max(figures["kl_b_s"], float(own[SEEN][1]) if SEEN in own else 0.0)
        return {SEEN: torch.tensor([figures["kl_b_s"], largest], dtype=torch.float64)}

    def _step(self, networks: nn.Module, batch: Tensors, base: Tensors) -> tuple[Tensor, Tensors]:
        """Return the loss of both networks in a step, and its metrics; ``loss`` is the steering error alone."""
        loss, divergence, figures = self._loss_terms(networks, batch, base)
        return loss + divergence, {"loss": loss, **figures}

    def _loss_terms(self, networks: nn.Module, batch: Tensors, base: Tensors) -> tuple[Tensor, Tensor, Tensors]:
        """Return steering error (or ``loss``) and weighted divergence, shape (), and metrics ``kl_b_s``, ``kl_s_b``."""
        assert isinstance(networks, nn.ModuleDict)
        backbone, sub = networks["backbone"], networks["sub"]
        assert isinstance(backbone, ResNet8)
        assert isinstance(sub, ResNet8)
        influence = batch[INFLUENCE.name]
        z_b, z_s = backbone.features(batch["images"]), sub.features(batch["images"])
        angles = backbone.head(self._task.dropout(z_b, batch))
        loss, _ = self._descend(backbone, {**batch, "outputs": angles}, remove_prefix(BACKBONE, base))
        divergence = contrastive_divergence(z_b, z_s, settings=self._settings, influence=influence)
        kl = partial(divergence_rows, tau=self._settings.temperature)
        with torch.no_grad():
            figures = {"kl_b_s": kl(z_b, z_s).mean(), "kl_s_b": kl(z_s, z_b).mean()}
        return loss, divergence, figures

    def _create_optimizer(self, parameters: Mapping[str, Tensor], rate: Rate, state: Tensors) -> Optimizer:
        """Return both networks' optimizers as one, each continued from its part of ``state``, or new without it."""
        parts = {
            prefix: self._task.optimizer(remove_prefix(network, parameters), rate, remove_prefix(prefix, state))
            for prefix, network in ((BACKBONE_OPTIMIZER, BACKBONE), (SUB_OPTIMIZER, SUB))
        }
        return CombinedOptimizer(parts)


def _compare_gradients(of_divergence: float, of_loss: float, product: float) -> dict[str, float]:
    """Return ``gradient_ratio`` and ``gradient_cosine`` from two lengths and their dot product, each if defined."""
    if not (math.isfinite(of_divergence) and math.isfinite(of_loss) and of_loss > 0):
        return {}
    figures = {"gradient_ratio": of_divergence / of_loss}
    if of_divergence > 0 and math.isfinite(product):
        figures["gradient_cosine"] = product / (of_divergence * of_loss)
    return figures
