"""FedCo: federated momentum contrast, its negatives a queue of keys from all vehicles at the roadside unit (RSU)."""

from __future__ import annotations

import copy
import math
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
from learners.contrastive_task import BACKWARD_FACTOR, ContrastiveTask, payload_bytes
from learners.encoders import PROJECTION
from learners.global_model import GlobalModel, State
from learners.key_queue import KeyQueue
from learners.robust import combine
from learners.training import copy_state
from vnetsim.errors import InputError
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
        if not 0 <= self.momentum_encoder <= 1:
            raise InputError(f"learning.momentum_encoder must be in [0, 1], got {self.momentum_encoder}.")
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise InputError(f"learning.temperature must be positive and finite, got {self.temperature}.")
        for name, least in (("queue", 1), ("keys", 0)):
            if getattr(self, name) < least:
                raise InputError(f"learning.{name} must be at least {least}, got {getattr(self, name)}.")


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


class MomentumContrast:
    """The objective of a visit: the key encoder that trails the trained one, and the queue as it was downloaded.

    A workspace for one visit after the other. The key encoder starts each visit as the downloaded model, or as the
    downloaded key encoder where there is one; after every step it moves towards the model that the step left, which
    is the order of MoCo's algorithm. Like the trained encoder it normalises with the statistics of its own batch, so
    its running statistics have no use and stay where they are; with one batch on one device there is nothing to
    shuffle between devices, as MoCo does.

    Args:
        task: encoder and views.
        momentum: m of the key encoder.
        temperature: of the loss.
    """

    def __init__(self, task: ContrastiveTask, *, momentum: float, temperature: float) -> None:
        self._task = task
        self._encoder = copy.deepcopy(task.encoder).requires_grad_(requires_grad=False).train()
        self._momentum = momentum
        self._temperature = temperature
        self._negatives: Tensor | None = None
        self._keys: list[Tensor] = []

    def start(self, queue: Tensor, model: State, key_encoder: Mapping[str, Tensor]) -> None:
        """Begin a visit.

        Args:
            queue: the negatives, shape (K, D); they stay as they are.
            model: the downloaded model.
            key_encoder: parameters of the key encoder, those of the model where empty.
        """
        self._negatives = queue
        self._keys = []
        self._encoder.load_state_dict({**model, **key_encoder})

    def finish(self) -> dict[str, Tensor]:
        """End a visit: make the key encoder's last move, and return its parameters, a copy."""
        follow(self._encoder, self._task.encoder, momentum=self._momentum)
        return copy_state(dict(self._encoder.named_parameters()))

    def loss(self, model: nn.Module, images: Tensor, generator: torch.Generator) -> Tensor:
        """Return the loss of a step; an ``Objective``. Gradients flow through the queries alone."""
        assert self._negatives is not None, "start the visit first"
        first, second = self._task.views(images, generator)
        with torch.no_grad():
            if self._keys:
                follow(self._encoder, model, momentum=self._momentum)
            k = self._encoder(second)
        self._keys.append(k)
        return queue_info_nce(model(first), k, self._negatives, temperature=self._temperature)

    def newest_keys(self, count: int) -> Tensor:
        """Return the keys of the last ``count`` images of the visit, in order, shape (min(count, images), D)."""
        return torch.cat(self._keys)[-count:].contiguous()


@torch.no_grad()
def follow(key_encoder: nn.Module, model: nn.Module, *, momentum: float) -> None:
    """Move the key encoder: theta_k <- m theta_k + (1 - m) theta_q (He et al. 2020, Eq. 2), parameters alone."""
    for theta_k, theta_q in zip(key_encoder.parameters(), model.parameters(), strict=True):
        theta_k.mul_(momentum).add_(theta_q, alpha=1 - momentum)


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
        self._contrast = MomentumContrast(
            self._task, momentum=settings.momentum_encoder, temperature=settings.temperature
        )
        self._engine = self._task.engine(self._contrast.loss)
        queue = KeyQueue.random(
            settings.queue, PROJECTION, generator=context.streams.generator("queue"), device=self._task.device
        )
        state = {**self._task.initial_state(), **queue.state()}
        if settings.key_encoder == "kept":
            state |= {KEY_ENCODER + name: state[name] for name, _ in self._task.encoder.named_parameters()}
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
            work_flop=float(self._engine.images_per_visit(silo) * (BACKWARD_FACTOR + 1) * self._task.flop),
        )

    def train(self, participants: Sequence[Participant]) -> Sequence[Update]:
        """Train every participant from the model and the queue of its ``base_round``.

        An update's ``state`` holds the model's tensors and the uploaded keys under ``keys``.
        """
        return [self._train_one(participant) for participant in participants]

    def aggregate(self, updates: Sequence[Update]) -> Aggregation:
        """Average the finite updates' models, enqueue their keys in order, and end the round."""
        finite = [update for update in updates if update.finite]
        base, round_ = self._global.current, self._global.round
        state = dict(base)
        queue = KeyQueue.of_state(state).enqueue([update.state["keys"] for update in finite], round_=round_)
        metrics = {"learning_rate": self._task.learning_rate(round_), **queue.metrics(round_)}
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
        """Return the first test images blurred with each kernel length, shape (len(kernels_px), count, H, W, C)."""
        return self._task.sample_images(kernels_px, count)

    def _keys_per_visit(self, silo: int) -> int:
        return min(self._settings.keys or self._settings.batch, self._engine.images_per_visit(silo))

    def _train_one(self, participant: Participant) -> Update:
        base = self._global.at(participant.base_round)
        visit = self._task.visit(participant)
        kept = _key_encoder(base)
        self._contrast.start(KeyQueue.of_state(base).keys, _model(base), kept)
        trained = self._engine.train(_model(base), visit)
        keys = self._contrast.newest_keys(self._keys_per_visit(participant.silo))
        moved = {KEY_ENCODER + name: tensor for name, tensor in self._contrast.finish().items()} if kept else {}
        return Update(
            participant=participant,
            state={**self._task.sent(trained.state), **moved, "keys": keys},
            loss=trained.loss,
            finite=trained.finite and math.isfinite(trained.loss) and bool(keys.isfinite().all()),
            metrics={"kernel_px": visit.kernel_px},
        )


def _model(state: State) -> dict[str, Tensor]:
    """Return the encoder's part of a global state."""
    return {name: tensor for name, tensor in state.items() if not name.startswith(BESIDE_THE_MODEL)}


def _key_encoder(state: State) -> dict[str, Tensor]:
    """Return the key encoder's parameters in a global state; empty when none is kept."""
    return {name.removeprefix(KEY_ENCODER): t for name, t in state.items() if name.startswith(KEY_ENCODER)}


def _key_bytes(count: int) -> int:
    return count * PROJECTION * torch.float32.itemsize
