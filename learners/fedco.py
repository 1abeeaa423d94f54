"""FedCo: federated momentum contrast, its negatives a queue of keys from all vehicles at the roadside unit (RSU)."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from learners.aggregation import equal_weights
from learners.contrastive_settings import KNN_ACCURACY, LEARNING_RATE, LINEAR_ACCURACY, TaskSettings, reported
from learners.contrastive_task import ContrastiveTask
from learners.encoders import PROJECTION
from learners.global_model import GlobalModel, State
from learners.key_queue import KeyQueue
from learners.optimizers import Optimizer, Rate
from learners.robust import combine
from learners.task import BACKWARD_FACTOR, payload_bytes
from learners.training import Job, Tensors, Trained, below, under
from learners.training_settings import at_least, in_unit_interval, positive
from vnetsim.learning import Aggregation, Cost, Description, LearnerContext, Participant, Series, Update

SERIES = (
    Series(
        name="loss",
        label="Training loss",
        unit="",
        caption="InfoNCE against the queue's keys, mean over the aggregated vehicles and their local steps. The "
        "negatives change with the queue, so it may rise while the features improve.",
    ),
    KNN_ACCURACY,
    LINEAR_ACCURACY,
    LEARNING_RATE,
    Series(
        name="queue_age",
        label="Age of the queue's keys",
        unit="rounds",
        caption="Rounds since a key was enqueued, mean over the keys that vehicles sent; 0 in the round it arrived.",
    ),
    Series(
        name="queue_keys",
        label="Keys from vehicles in the queue",
        unit="keys",
        caption="Keys of the queue that vehicles sent; the others are the random ones it started with.",
    ),
)

KEY_ENCODER = "key_encoder."
QUERY, KEY = "query.", "key."
BESIDE_THE_MODEL = ("queue.", KEY_ENCODER)
"""Beginnings of the names in a global state that are not the model's."""


@dataclass(frozen=True, kw_only=True)
class FedCoSettings(TaskSettings):
    """Settings of FedCo: the task's, and those of momentum contrast.

    The baseline is published with a batch of 512 and 4096 keys; its momentum and temperature are MoCo's usual ones.

    Args:
        momentum_encoder: m of the key encoder, theta_k <- m theta_k + (1 - m) theta_q, in [0, 1].
        temperature: of the loss, > 0.
        queue: keys that the RSU holds, >= 1.
        keys: images whose keys a vehicle uploads, the last that its visit drew; 0 takes as many as one ``batch``. A
            visit that draws fewer sends all their keys.
        key_encoder: where a visit's key encoder comes from. ``visit``: it starts as the downloaded model, for that is
            all that a vehicle gets in the published baseline. ``kept``: the RSU keeps it from round to round, as MoCo
            does, so that keys of different rounds remain comparable; its parameters go down and up with the model,
            which nearly doubles the payload, and are averaged like the model.
    """

    momentum_encoder: float = 0.99
    temperature: float = 0.1
    queue: int = 4096
    keys: int = 0
    key_encoder: Literal["visit", "kept"] = "visit"

    def __post_init__(self) -> None:
        """Refuse values without meaning.

        Raises:
            InputError: naming the key.
        """
        super().__post_init__()
        in_unit_interval(self, "momentum_encoder", with_one=True)
        positive(self, "temperature")
        at_least(self, queue=1, keys=0)


def queue_info_nce(q: Tensor, k: Tensor, queue: Tensor, *, temperature: float) -> Tensor:
    """Return InfoNCE with the negatives of a queue (He et al. 2020, Eq. 1), mean over the images.

    -log [ exp(q_i . k_i / t) / (exp(q_i . k_i / t) + sum_j exp(q_i . u_j / t)) ] = log(1 + exp m_i) with the margin
    m_i = logsumexp_j(q_i . u_j / t) - q_i . k_i / t, which keeps its digits when the positive dominates.

    Args:
        q: L2-normalised projections of the first views, shape (B, D).
        k: keys of the second views of the same images, shape (B, D).
        queue: the negatives u_j, shape (K, D), K >= 1.
        temperature: t > 0.
    """
    positive = (q * k).sum(dim=1)
    margin = (q @ queue.T / temperature).logsumexp(dim=1) - positive / temperature
    return -logsigmoid(-margin).mean()


class Pair(nn.Module):
    """The encoder that is trained, ``query``, and the one that trails it, ``key``.

    Like the trained encoder, the key encoder normalises with the statistics of its own batch, so its running statistics
    have no use; with one batch on one device there is nothing to shuffle between devices, as MoCo does.

    Args:
        encoder: copied for both.
    """

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.query = copy.deepcopy(encoder)
        self.key = copy.deepcopy(encoder).requires_grad_(requires_grad=False)


class Trailing:
    """An optimizer of the query encoder, after each of whose steps the key encoder moves towards the model it left.

    theta_k <- m theta_k + (1 - m) theta_q (He et al. 2020, Eq. 2), parameters alone; the order is that of MoCo's
    algorithm.

    Args:
        optimizer: of the query encoder.
        parameters: of the pair, by name.
        momentum: m.
    """

    def __init__(self, optimizer: Optimizer, parameters: Mapping[str, Tensor], *, momentum: float) -> None:
        self._optimizer = optimizer
        self._query, self._key = below(QUERY, parameters), below(KEY, parameters)
        self._momentum = momentum

    @torch.no_grad()
    def step(self) -> None:
        """Apply the gradients, then follow."""
        self._optimizer.step()
        for name, theta_k in self._key.items():
            theta_k.mul_(self._momentum).add_(self._query[name], alpha=1 - self._momentum)

    def state(self) -> dict[str, Tensor]:
        """Return the state of the query encoder's optimizer."""
        return self._optimizer.state()


@final
class FedCo:
    """Momentum contrast with a global queue; implements ``vnetsim.learning.Learner``.

    A vehicle downloads the model and the queue of its ``base_round``, contrasts its queries with its own keys and the
    frozen queue, and uploads its model and its newest keys. The RSU averages the models with equal weights, then
    enqueues the keys in the order of the uploads.

    As published, the key encoder trails within a visit alone and jumps with the model from round to round. In short
    runs from random weights the model then tells its keys from the queue's by age rather than by image, and accuracy
    falls below the untrained encoder's. With ``key_encoder = "kept"`` it trails over the rounds, and the model learns:
    on the built-in signs, 20 rounds of 5 vehicles, all else at its default, kNN accuracy went from 20.8 and 21.1 % (two
    seeds) to 13.2 and 12.6 % as published, to 25.9 and 23.6 % with the key encoder kept.

    Args:
        context: what the simulator gives every learner.
        settings: the method's settings.
    """

    name: ClassVar[str] = "fedco"
    task: ClassVar[str] = "contrastive"
    paper: ClassVar[str] = (
        "He et al. (2020): Momentum contrast for unsupervised visual representation learning, arXiv:1911.05722; "
        "federated with a global queue as baseline of FLSimCo, arXiv:2408.00256"
    )
    payload: ClassVar[str] = (
        "the model and the queue down, the model and the visit's newest keys up; a kept key encoder both ways"
    )
    equations: ClassVar[tuple[str, ...]] = (
        "loss: L_i = -log( exp(q_i . k_i / t) / (exp(q_i . k_i / t) + sum_j exp(q_i . u_j / t)) )  (Eq. 1)",
        "negatives: the u_j are the queue's keys, as downloaded",
        "key encoder, after every step: theta_k <- m theta_k + (1 - m) theta_q  (Eq. 2)",
        "average: theta^(r+1) = 1 / N sum_n theta_n",
        "queue: the round's keys replace the oldest, in the order of the uploads",
    )
    Settings: ClassVar[type] = FedCoSettings

    def __init__(self, context: LearnerContext, settings: FedCoSettings) -> None:
        self._settings = settings
        self._task = ContrastiveTask(context, settings)
        self._program = self._task.contrast(self._step, network=Pair(self._task.network), optimizer=self._optimizer)
        queue = KeyQueue.random(
            settings.queue, PROJECTION, generator=context.streams.generator("queue"), device=self._task.device
        )
        state = {**self._task.initial_state(), **queue.state()}
        if settings.key_encoder == "kept":
            state |= {KEY_ENCODER + name: state[name] for name, _ in self._task.network.named_parameters()}
        # model, queue and key encoder of a round belong together: one history holds them
        self._global = GlobalModel(state, max_staleness=context.max_staleness)

    @classmethod
    def create(cls, context: LearnerContext, settings: Any) -> FedCo:
        """Build the learner; see ``vnetsim.learning.Learner``."""
        return cls(context, settings)

    def describe(self) -> Description:
        """Return encoder, data distribution, and what crosses the radio link besides the model."""
        length, keys = self._settings.queue, self._settings.keys or self._settings.batch
        facts = {
            "Queue": f"{length} keys of {PROJECTION} values ({_key_bytes(length) / 1e3:.4g} kB), down with it",
            "Keys": f"at most {keys} per visit ({_key_bytes(keys) / 1e3:.4g} kB), up with it",
        }
        kept = payload_bytes(_key_encoder(self._global.current))
        if kept:
            facts["Key encoder"] = f"{kept / 1e6:.4g} MB each way with it; kept and averaged by the RSU"
        return self._task.describe(facts)

    def series(self) -> Sequence[Series]:
        """Return the metrics of ``aggregate`` and ``evaluate``."""
        return reported(SERIES, self._settings)

    def cost(self, silo: int) -> Cost:
        """Return model and queue down, model and keys up, and the work of all steps.

        An image passes the trained encoder forward and backward, and the key encoder forward.
        """
        state = self._global.current
        model = payload_bytes(self._task.sent(_model(state))) + payload_bytes(_key_encoder(state))
        return Cost(
            download_bytes=model + _key_bytes(self._settings.queue),
            upload_bytes=model + _key_bytes(self._keys_per_visit(silo)),
            work_flop=float(self._task.images_per_visit(silo) * (BACKWARD_FACTOR + 1) * self._task.flop),
        )

    def train(self, participants: Sequence[Participant]) -> Sequence[Update]:
        """Train every participant from the model and the queue of its ``base_round``.

        An update's ``state`` holds the model's tensors and the uploaded keys under ``keys``.
        """
        jobs = [self._job(participant) for participant in participants]
        trained = self._task.engine.train(jobs)
        return [self._update(*one) for one in zip(participants, jobs, trained, strict=True)]

    def aggregate(self, updates: Sequence[Update]) -> Aggregation:
        """Average the finite updates' models, enqueue their keys in order, and end the round."""
        finite = [update for update in updates if update.finite]
        base, round_ = self._global.current, self._global.round
        state = dict(base)
        queue = KeyQueue.of_state(state).enqueue([update.state["keys"] for update in finite], round_=round_)
        metrics = {"learning_rate": self._task.cosine_rate(round_), **queue.metrics(round_)}
        if finite:
            models = [{n: t for n, t in update.state.items() if n != "keys"} for update in finite]
            state.update(combine(models, equal_weights(len(finite)), base, self._settings))
            metrics["loss"] = sum(update.loss for update in finite) / len(finite)
        self._global.advance({**state, **queue.state()})
        weights = [1 / len(finite) if update.finite else 0.0 for update in updates]
        return Aggregation(weights=weights, metrics=metrics)

    def evaluate(self, *, final: bool) -> Mapping[str, float]:
        """Return kNN accuracy, and the linear probe's when it is due."""
        return self._task.evaluate(_model(self._global.current), final=final)

    def state_dict(self) -> dict[str, Any]:
        """Return the models and queues by round, the current queue under ``queue.*``."""
        own = tuple(f"model.{prefix}" for prefix in BESIDE_THE_MODEL)
        return {name.removeprefix("model.") if name.startswith(own) else name: tensor
                for name, tensor in self._global.state_dict().items()}  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        self._global.load_state_dict(
            {f"model.{name}" if name.startswith(BESIDE_THE_MODEL) else name: tensor for name, tensor in state.items()}
        )

    def sample_images(self, kernels_px: Sequence[float], count: int) -> NDArray[np.uint8]:
        """Return test images blurred with each kernel length, shape (len(kernels_px), count, H, W, C)."""
        return self._task.sample_images(kernels_px, count)

    def _keys_per_visit(self, silo: int) -> int:
        return min(self._settings.keys or self._settings.batch, self._task.images_per_visit(silo))

    def _step(self, pair: nn.Module, batch: Tensors, given: Tensors) -> tuple[Tensor, Tensors]:
        """Return the loss of a step, and its keys; gradients flow through the queries alone."""
        assert isinstance(pair, Pair)
        with torch.no_grad():
            keys = pair.key(batch["second"])
        queries = pair.query(batch["first"])
        loss = queue_info_nce(queries, keys, given["queue"], temperature=self._settings.temperature)
        return loss, {"loss": loss, "keys": keys}

    def _optimizer(self, parameters: Mapping[str, Tensor], rate: Rate, state: Tensors) -> Optimizer:
        query = {name: tensor for name, tensor in parameters.items() if name.startswith(QUERY)}
        sgd = self._task.sgd(self._settings.momentum)(query, rate, state)
        return Trailing(sgd, parameters, momentum=self._settings.momentum_encoder)

    def _job(self, participant: Participant) -> Job:
        base = self._global.at(participant.base_round)
        model = _model(base)
        return Job(
            program=self._program,
            visit=self._task.visit_of(participant),
            base={**under(QUERY, model), **under(KEY, {**model, **_key_encoder(base)})},
            given={"queue": KeyQueue.of_state(base).keys},
        )

    def _update(self, participant: Participant, job: Job, trained: Trained) -> Update:
        keys = trained.figures["keys"].flatten(0, 1)[-self._keys_per_visit(participant.silo) :].contiguous()
        moved = {}
        if self._settings.key_encoder == "kept":
            parameters = [name for name, _ in self._task.network.named_parameters()]
            moved = {KEY_ENCODER + name: trained.state[KEY + name] for name in parameters}
        return Update(
            participant=participant,
            state={**self._task.sent(below(QUERY, trained.state)), **moved, "keys": keys},
            loss=trained.mean("loss"),
            finite=trained.finite,
            metrics={"kernel_px": job.visit.kernel_px},
        )


def _model(state: State) -> dict[str, Tensor]:
    """Return the encoder's part of a global state."""
    return {name: tensor for name, tensor in state.items() if not name.startswith(BESIDE_THE_MODEL)}


def _key_encoder(state: State) -> dict[str, Tensor]:
    """Return the key encoder's parameters in a global state; empty when none is kept."""
    return {name.removeprefix(KEY_ENCODER): t for name, t in state.items() if name.startswith(KEY_ENCODER)}


def _key_bytes(count: int) -> int:
    return count * PROJECTION * torch.float32.itemsize
