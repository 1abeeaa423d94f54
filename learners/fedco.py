"""FedCo: federated momentum contrast; the negatives are a queue of all vehicles' keys at the roadside unit (RSU)."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from learners.averaging import averaging_server
from learners.data.moving import to_device
from learners.encoders import PROJECTION
from learners.engines.optimizers import Optimizer, Rate
from learners.engines.programs import State, Tensors, Trained, TrainingJob, add_prefix, remove_prefix
from learners.federated import FederatedLearner, Parts
from learners.local_training import Start, copy_to_host, make_step, make_update, mean_loss
from learners.mathematics.losses import queue_info_nce
from learners.state.server import Folded
from learners.state.silos import SiloStates
from learners.tasks.contrastive import (
    CONTRASTIVE_SCALES,
    KNN_ACCURACY,
    LINEAR_ACCURACY,
    ContrastiveTask,
    TaskSettings,
    reported_series,
)
from learners.tasks.description import payload_bytes
from learners.tasks.settings import Temperature
from learners.tasks.task import BACKWARD_FACTOR, LEARNING_RATE, StepLoss
from vnetsim.errors.bounds import Within
from vnetsim.learning import Cost, LearnerContext, Series, Update

SERIES = (
    Series(
        name="loss",
        label="Training loss",
        caption="InfoNCE against the queue's keys, mean over the aggregated vehicles and their local steps. The "
        "negatives change with the queue, so it may rise while the features improve.",
    ),
    KNN_ACCURACY,
    LINEAR_ACCURACY,
    LEARNING_RATE,
    Series(
        name="queue_age",
        result=False,
        label="Age of the queue's keys",
        unit="rounds",
        caption="Rounds since a key was enqueued, mean over the keys that vehicles sent; 0 in the round it arrived.",
    ),
    Series(
        name="queue_keys",
        result=False,
        label="Keys from vehicles in the queue",
        unit="keys",
        caption="Keys of the queue that came from vehicles; the others are the random keys of the start.",
    ),
)

MOMENTUM = 0.99
"""m of the key encoder, theta_k <- m theta_k + (1 - m) theta_q, as in MoCo's demonstration on CIFAR-10."""
PUBLISHED_BATCH = 512
QUEUE_BATCHES = 8
"""Length of the published queue in batches: 4096 keys, 512 from each vehicle."""
NEW_KEY_ENCODERS = Series(
    name="new_key_encoders",
    result=False,
    label="Key encoders begun",
    unit="%",
    caption="Share of the aggregated local trainings that were their silo's first, in which the key encoder starts as "
    "the downloaded model. If it stays near 100 %, the run is too short for a key encoder kept in the silo to matter.",
)
QUERY, KEY = "query.", "key."
KEY_ENCODER, QUEUE = "key_encoder.", "queue."
KEYS, ROUNDS = "queue.keys", "queue.rounds"
INITIAL_ROUND = -1  # the round of the random keys of the start
NOT_OF_MODEL = (QUEUE, KEY_ENCODER)  # prefixes of the tensors in a global state that are not part of the model


@dataclass(frozen=True, kw_only=True)
class FedCoSettings(TaskSettings):
    """Settings of FedCo: the task's, and those of momentum contrast.

    The baseline is published (FLSimCo, section 4.2) with a batch of 512, whose keys a vehicle sends, and a queue of
    4096. Their ratio matters: with 5 uploads a round the queue is renewed every 1.6 rounds. So the queue's length
    follows the batch. Momentum and temperature are those of MoCo's demonstration on CIFAR-10 (MoCo's paper has 0.999
    and 0.07); FLSimCo gives none.

    Args:
        temperature: of the loss, > 0.
        queue: number of keys at the RSU; 0 takes 8 times the keys of a participation, as published. A vehicle uploads
            the keys of its last ``batch`` images, or of all its images if it draws fewer.
        key_encoder: where a vehicle's key encoder comes from; the publication does not say. ``silo``: the silo keeps it
            with its images, which costs no payload; the first time it starts as the downloaded model. ``visit``: it
            starts as the downloaded model at each local training. ``rsu``: the RSU keeps it from round to round; its
            parameters go down and up with the model, which nearly doubles the payload, and are averaged like the model.
    """

    temperature: Temperature = 0.1
    queue: Annotated[int, Within(0, 10_000_000, "keys", "each is compared with every image")] = 0
    key_encoder: Literal["silo", "visit", "rsu"] = "silo"

    @property
    def length(self) -> int:
        """Number of keys in the queue: ``queue``, or by default 8 batches."""
        return self.queue or QUEUE_BATCHES * self.batch


class FedCo(FederatedLearner):
    """Momentum contrast with a global queue.

    A vehicle downloads the model and the queue of its ``base``, contrasts its queries with its own keys and the frozen
    queue, and uploads its model and its newest keys. The RSU averages the models with equal weights, then enqueues the
    keys in the order of the uploads.

    FLSimCo's paper does not say which key encoder a vehicle uses; see ``FedCoSettings.key_encoder``. By default each
    silo has its own, which changes only when an update of its silo is aggregated; if two vehicles carry one silo in a
    round, both start from the same one, and that of the later upload is kept. Each key encoder takes, in the run and in
    its checkpoint, as much memory as the encoder's parameters: 45 MB with ResNet-18.
    """

    name, task, Settings = "fedco", "contrastive", FedCoSettings
    paper = (
        "He et al. (2020): Momentum contrast for unsupervised visual representation learning, arXiv:1911.05722; "
        "federated with a global queue (FedCo, Wei et al., HPCC 2022) as baseline of FLSimCo, arXiv:2408.00256"
    )
    payload = "the model and the queue down, the model and its newest keys up; a key encoder of the RSU both ways"
    equations = (
        "loss: L_i = -log( exp(q_i . k_i / t) / (exp(q_i . k_i / t) + sum_j exp(q_i . u_j / t)) )  (Eq. 1)",
        "negatives: the u_j are the queue's keys, as downloaded",
        "key encoder, after every step: theta_k <- m theta_k + (1 - m) theta_q  (Eq. 2)",
        "average: theta^(r+1) = 1 / N sum_n theta_n",
        "queue: the round's keys replace the oldest, in the order of the uploads",
    )
    scales = CONTRASTIVE_SCALES

    @staticmethod
    def parts(context: LearnerContext, settings: FedCoSettings) -> Parts:
        """Return momentum contrast against a queue, and an RSU that averages models and keeps the queue."""
        task = ContrastiveTask(context, settings)
        first = task.initial_state()
        trained = [name for name, _ in task.network.named_parameters()]
        queue = random_queue(settings.length, generator=context.streams.generator("queue"), device=task.device)
        # a key encoder has no gradients: it follows the model, and is averaged
        trailing = {KEY_ENCODER + name: first[name] for name in trained} if settings.key_encoder == "rsu" else {}
        own = settings.key_encoder == "silo"
        length, keys = settings.length, settings.batch
        timed = context.experiment.cost.on_the_clock
        published = (
            f"; timed as the published {PUBLISHED_BATCH} keys a participation, queue {QUEUE_BATCHES} times as long"
        )
        key_encoder_mb = payload_bytes({name: first[name] for name in trained}) / 1e6
        return Parts(
            task=task,
            local=MomentumContrast(task, settings, timed_images=timed.images if timed else None),
            # model, queue and key encoder of a version belong together
            server=averaging_server(
                context,
                settings,
                task,
                {**first, **queue, **trailing},
                not_of_model=NOT_OF_MODEL,
                sent=lambda state: task.sent({n: t for n, t in state.items() if not n.startswith(QUEUE)}),
                beside=lambda queue, updates, version: enqueue(
                    queue, [update.state["keys"] for update in updates], round_=version
                ),
            ),
            silos=SiloStates(own=own),
            series=(*reported_series(SERIES, settings), *((NEW_KEY_ENCODERS,) if own else ())),
            facts={
                "Queue": f"{length} keys of {PROJECTION} values ({_key_bytes(length) / 1e3:.4g} kB), down with it",
                "Keys": f"at most {keys} per participation ({_key_bytes(keys) / 1e3:.4g} kB), up with it"
                + (published if timed and timed.images else ""),
                "Key encoder": {
                    "silo": f"kept in the silo ({key_encoder_mb:.4g} MB there), starts as the model first downloaded",
                    "visit": "starts as the downloaded model at each local training",
                    "rsu": f"{key_encoder_mb:.4g} MB each way with it; kept and averaged by the RSU",
                }[settings.key_encoder],
            },
        )


class MomentumContrast:
    """Local training of queries against the vehicle's own keys and the frozen queue.

    An update's ``state`` has the model's tensors, the uploaded keys as ``keys``, and the key encoder's parameters if
    the RSU keeps it; its ``kept`` has these parameters if the silo keeps it, and is otherwise empty.

    ``loss`` is what a step minimises, by default InfoNCE of Eq. 1. Its batch has the views ``first`` and ``second``;
    ``keys``, the key encoder's output for ``second``, shape (B, D), without gradients; and ``queue``, the queue's keys
    as downloaded, shape (K, D). ``timed_images``: images of a training in simulated time; None for the trained ones.
    """

    def __init__(
        self,
        task: ContrastiveTask,
        settings: FedCoSettings,
        loss: StepLoss | None = None,
        *,
        timed_images: int | None = None,
    ) -> None:
        self._task, self._settings, self._timed_images = task, settings, timed_images
        self._descend = make_step(loss or self._info_nce)
        # The key encoder also normalises with the statistics of its own batch, so its running ones are not used. A
        # query and its positive key then share the statistics of the same images, which may give the pair away. MoCo
        # prevents this by shuffling the keys over several devices (section 3.3); on one device a shuffle has no effect.
        key = copy.deepcopy(task.network).requires_grad_(requires_grad=False)
        network = nn.ModuleDict({"query": copy.deepcopy(task.network), "key": key})
        shipped, optimizer = loss is None, self._create_optimizer
        self._program = task.training(self._step, network=network, optimizer=optimizer, shipped=shipped)

    def cost(self, silo: int) -> Cost:
        """Return the bytes of the queue down and of the keys up, and the work of both encoders; no ``steps``.

        With ``timed_images`` the published numbers are timed: up to 512 keys up, and 4096 down unless ``queue`` is set.
        A vehicle may not stop early, since the number of uploaded keys depends on the steps.
        """
        queue, keys = self._settings.length, self._count_keys(silo)
        if self._timed_images is not None:
            queue = self._settings.queue or QUEUE_BATCHES * PUBLISHED_BATCH
            keys = min(PUBLISHED_BATCH, self._timed_images)
        return Cost(
            download_bytes=_key_bytes(queue),
            upload_bytes=_key_bytes(keys),
            work_flop=float(self._task.images_per_training(silo) * (BACKWARD_FACTOR + 1) * self._task.flop),
        )

    def train(self, starts: Sequence[Start]) -> list[Update]:
        """Train query encoder and key encoder from each start; return an update for each, in order."""
        jobs = [self._make_job(start) for start in starts]
        trained = self._task.engine.train(jobs)
        kept = copy_to_host([self._key_encoder(one) if self._settings.key_encoder == "silo" else {} for one in trained])
        return [self._make_update(*one) for one in zip(starts, jobs, trained, kept, strict=True)]

    def figures(self, updates: Sequence[Update], folded: Folded, version: int) -> Mapping[str, float]:
        """Return metrics of the queue and, if there are updates, mean loss and share of new key encoders."""
        new = [one.metrics["new_key_encoders"] for one in updates if "new_key_encoders" in one.metrics]
        share = {"new_key_encoders": sum(new) / len(new)} if new else {}
        return {**queue_figures(folded.state, version), **mean_loss(updates), **share}

    def _info_nce(self, model: nn.Module, batch: Tensors, base: Tensors) -> Tensor:  # noqa: ARG002 - see ``StepLoss``
        """Return InfoNCE (Eq. 1) of the first views, mean over the images, shape (); ``base`` is not used."""
        q = model(batch["first"])
        return queue_info_nce(q, batch["keys"], batch["queue"], temperature=self._settings.temperature)

    def _count_keys(self, silo: int) -> int:
        """Return how many keys a local training on ``silo`` uploads: ``batch``, or one per image if it draws fewer."""
        return min(self._settings.batch, self._task.images_per_training(silo))

    def _step(self, networks: nn.Module, batch: Tensors, base: Tensors) -> tuple[Tensor, Tensors]:
        """Return the loss of a step, and its metrics plus ``keys``, shape (B, D); only queries have gradients."""
        assert isinstance(networks, nn.ModuleDict)
        with torch.no_grad():
            keys = networks["key"](batch["second"])
        loss, figures = self._descend(networks["query"], {**batch, "keys": keys}, remove_prefix(QUERY, base))
        return loss, {**figures, "keys": keys}

    def _create_optimizer(self, parameters: Mapping[str, Tensor], rate: Rate, state: Tensors) -> Optimizer:
        """Return the task's optimizer of the query encoder, which after each step also moves the key encoder."""
        query = {name: tensor for name, tensor in parameters.items() if name.startswith(QUERY)}
        return Trailing(self._task.optimizer(query, rate, state), parameters)

    def _make_job(self, start: Start) -> TrainingJob:
        """Return the training of a start; the key encoder starts as the silo's, else the RSU's, else the base model."""
        model = {name: tensor for name, tensor in start.base.items() if not name.startswith(NOT_OF_MODEL)}
        at_rsu = remove_prefix(KEY_ENCODER, start.base)
        return TrainingJob(
            program=self._program,
            training=self._task.local_training_of(start.participant),
            base={
                **add_prefix(QUERY, model),
                **add_prefix(KEY, {**model, **at_rsu, **to_device(start.own, self._task.device)}),
            },
            given={"queue": start.base[KEYS]},
            mixed=start.mixed_as(QUERY),
        )

    def _key_encoder(self, trained: Trained) -> dict[str, Tensor]:
        """Return the key encoder's parameters, by their names in the task's network."""
        return {name: trained.state[KEY + name] for name, _ in self._task.network.named_parameters()}

    def _make_update(self, start: Start, job: TrainingJob, trained: Trained, kept: State) -> Update:
        """Return an upload of model, newest keys and, if the RSU keeps it, key encoder; its ``kept`` is ``kept``."""
        silo = start.participant.silo
        keys = trained.figures["keys"].flatten(0, 1)[-self._count_keys(silo) :].contiguous()
        sent = add_prefix(KEY_ENCODER, self._key_encoder(trained)) if self._settings.key_encoder == "rsu" else {}
        update = make_update(self._task, start.participant, job, trained)
        return replace(
            update,
            state={**self._task.sent(remove_prefix(QUERY, trained.state)), **sent, "keys": keys},
            metrics={**update.metrics, "new_key_encoders": float(not start.own)},
            kept=kept,
        )


def random_queue(length: int, *, generator: np.random.Generator, device: torch.device) -> dict[str, Tensor]:
    """Return a queue of random keys, independent and uniform on the sphere.

    A queue has keys, the oldest first: ``queue.keys``, L2-normalised, float32 of shape (length, 128), and
    ``queue.rounds``, the round in which each was enqueued, int64 of shape (length,); -1 for random keys.
    """
    vectors = torch.from_numpy(generator.standard_normal((length, PROJECTION)))
    keys = normalize(vectors, dim=1).to(device=device, dtype=torch.float32)
    return {KEYS: keys, ROUNDS: torch.full((length,), INITIAL_ROUND, device=device)}


def enqueue(queue: State, uploads: Sequence[Tensor], *, round_: int) -> dict[str, Tensor]:
    """Return a new queue: ``uploads``' keys, each (n, D), of ``round_``, come last; as many of the oldest are gone."""
    length, added = len(queue[KEYS]), sum(len(upload) for upload in uploads)
    rounds = torch.cat([queue[ROUNDS], queue[ROUNDS].new_full((added,), round_)])
    return {KEYS: torch.cat([queue[KEYS], *uploads])[-length:], ROUNDS: rounds[-length:]}


def queue_figures(queue: State, round_: int) -> dict[str, float]:
    """Return ``queue_keys``, the number of keys from vehicles, and ``queue_age``, their mean age in rounds, if any."""
    received = [one for one in queue[ROUNDS].tolist() if one != INITIAL_ROUND]  # one wait for the device
    figures = {"queue_keys": float(len(received))}
    if received:
        figures["queue_age"] = sum(round_ - one for one in received) / len(received)
    return figures


class Trailing:
    """An optimizer of the query encoder that moves the key encoder after each step.

    theta_k <- m theta_k + (1 - m) theta_q (He et al. 2020, Eq. 2), parameters only. ``optimizer`` is the query
    encoder's; ``parameters`` are those of both encoders, with the prefixes QUERY and KEY.
    """

    def __init__(self, optimizer: Optimizer, parameters: Mapping[str, Tensor]) -> None:
        self._optimizer = optimizer
        self._query, self._key = remove_prefix(QUERY, parameters), remove_prefix(KEY, parameters)

    @torch.no_grad()
    def step(self) -> None:
        """Apply the gradients to the query encoder, then move the key encoder towards it, both in place."""
        self._optimizer.step()
        for name, theta_k in self._key.items():
            theta_k.mul_(MOMENTUM).add_(self._query[name], alpha=1 - MOMENTUM)

    def state(self) -> dict[str, Tensor]:
        """Return the state of the query encoder's optimizer; the key encoder adds none."""
        return self._optimizer.state()

    def restart(self, state: Mapping[str, Tensor]) -> None:
        """Let the query encoder's optimizer continue from ``state``; the key encoder is not changed."""
        self._optimizer.restart(state)


def _key_bytes(count: int) -> int:
    """Return the size of ``count`` keys on the radio link (bytes)."""
    return count * PROJECTION * torch.float32.itemsize
