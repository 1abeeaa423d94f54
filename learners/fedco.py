"""FedCo: federated momentum contrast, its negatives a queue of keys from all vehicles at the roadside unit (RSU)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, final

import torch
from torch import Tensor, nn

from learners.data.moving import moved
from learners.encoders import PROJECTION
from learners.engines.optimizers import Optimizer, Rate
from learners.engines.programs import Tensors, Trained, TrainingJob, prefixed, unprefixed
from learners.frame import BASE, TaskLearner, scalar, takes
from learners.mathematics.aggregation import Weights, equal_weights
from learners.state.global_model import State
from learners.state.key_queue import KeyQueue
from learners.state.momentum_contrast import KEY, QUERY, QueryAndKey, Trailing, queue_info_nce
from learners.state.rules import rule_of
from learners.state.server import Server, mean_loss
from learners.state.silo_states import SiloState, SiloStates
from learners.tasks.contrastive import ContrastiveTask
from learners.tasks.contrastive_settings import KNN_ACCURACY, LEARNING_RATE, LINEAR_ACCURACY, TaskSettings, reported
from learners.tasks.task import BACKWARD_FACTOR, payload_bytes
from learners.tasks.training_settings import Temperature
from vnetsim.learning import Aggregation, Cost, Description, LearnerContext, Participant, Series, Update
from vnetsim.setting_checks import Share, Within

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
        caption="Keys of the queue that vehicles sent; the others are the random ones it started with.",
    ),
    Series(
        name="queue_random",
        result=False,
        label="Random keys left",
        unit="%",
        caption="Share of the queue that is still the random keys it started with, which no image stands behind.",
    ),
)

QUEUE_BATCHES = 8
"""Batches that the published queue holds: 4096 keys, of which each vehicle brings 512."""
NEW_KEY_ENCODERS = Series(
    name="new_key_encoders",
    result=False,
    label="Key encoders begun",
    unit="%",
    caption="Share of the aggregated local trainings that were their silo's first: its key encoder started as the "
    "downloaded model. Where it stays near 100 % the run is too short for a silo's key encoder to tell from one begun "
    "anew.",
)
KEY_ENCODER = "key_encoder."
NOT_OF_MODEL = ("queue.", KEY_ENCODER)
"""Beginnings of the names in a global state that are not the model's."""


@dataclass(frozen=True, kw_only=True)
class FedCoSettings(TaskSettings):
    """Settings of FedCo: the task's, and those of momentum contrast.

    The baseline is published (FLSimCo, section 4.2) with a batch of 512, of which a vehicle sends the keys, and a queue
    of 4096. What matters is their ratio: with 5 uploads a round the queue is renewed every 1.6 rounds. So its length
    follows the batch. Momentum and temperature are those of MoCo's demonstration on CIFAR-10 (MoCo's paper has 0.999
    and 0.07); FLSimCo's names none.

    Args:
        momentum_encoder: m of the key encoder, theta_k <- m theta_k + (1 - m) theta_q, in [0, 1].
        temperature: of the loss, > 0.
        queue: keys that the RSU holds; 0 takes 8 times those of a participation, as published. A vehicle uploads those
            of as many images as one ``batch`` has, the last that it drew, or of all where it draws fewer.
        key_encoder: where a vehicle's key encoder comes from; the publication does not say. ``silo``: the silo keeps
            it, beside its images, which costs no payload; the first time it starts as the downloaded model.
            ``visit``: it starts as the downloaded model at each local training. ``rsu``: the RSU keeps it from
            round to round; its parameters go down and up with the model, which nearly doubles the payload, and are
            averaged like the model.
    """

    momentum_encoder: Share = 0.99
    temperature: Temperature = 0.1
    queue: Annotated[int, Within(0, 10_000_000, "keys", "each is compared with every image")] = 0
    key_encoder: Literal["silo", "visit", "rsu"] = "silo"

    @property
    def length(self) -> int:
        """Keys of the queue."""
        return self.queue or QUEUE_BATCHES * self.batch

    @property
    def at_rsu(self) -> bool:
        """Whether the RSU keeps the key encoder."""
        return self.key_encoder == "rsu"


class FedCo(TaskLearner):
    """Momentum contrast with a global queue.

    A vehicle downloads the model and the queue of its ``base``, contrasts its queries with its own keys and the
    frozen queue, and uploads its model and its newest keys. The RSU averages the models with equal weights, then
    enqueues the keys in the order of the uploads.

    MoCo's key encoder trails the model over the whole training, so that keys of different rounds are comparable. Which
    form of it a vehicle has FLSimCo's paper does not say, after which this is built; see ``FedCoSettings.key_encoder``.
    By default it is a silo's own: it moves where the silo's update was aggregated, and rests in between while the model
    goes on, so the model that a vehicle starts from has left it behind by the rounds that the silo missed. Two vehicles
    that carry one silo in a round both start from the key encoder that the round found, and the silo keeps that of the
    later upload. A stale vehicle trains the model and the queue it downloaded with the key encoder that the silo has by
    then. A silo's takes as much memory, in the run and in its checkpoint, as the encoder's parameters: 45 MB each with
    ResNet-18.

    Args:
        context: what the simulator gives every learner.
        settings: the method's settings.
    """

    name: ClassVar[str] = "fedco"
    task: ClassVar[str] = "contrastive"
    paper: ClassVar[str] = (
        "He et al. (2020): Momentum contrast for unsupervised visual representation learning, arXiv:1911.05722; "
        "federated with a global queue (FedCo, Wei et al., HPCC 2022) as baseline of FLSimCo, arXiv:2408.00256"
    )
    payload: ClassVar[str] = (
        "the model and the queue down, the model and its newest keys up; a key encoder of the RSU both ways"
    )
    equations: ClassVar[tuple[str, ...]] = (
        "loss: L_i = -log( exp(q_i . k_i / t) / (exp(q_i . k_i / t) + sum_j exp(q_i . u_j / t)) )  (Eq. 1)",
        "negatives: the u_j are the queue's keys, as downloaded",
        "key encoder, after every step: theta_k <- m theta_k + (1 - m) theta_q  (Eq. 2)",
        "average: theta^(r+1) = 1 / N sum_n theta_n",
        "queue: the round's keys replace the oldest, in the order of the uploads",
    )
    takes_aggregation_rule: ClassVar[bool] = True
    Settings: ClassVar[type] = FedCoSettings
    _task: ContrastiveTask
    _global: Server
    _silos: SiloStates

    def __init__(self, context: LearnerContext, settings: FedCoSettings) -> None:
        self._settings = settings
        self._task = ContrastiveTask(context, settings)
        # what the shipped loss does not read is not handed to the engine
        self._compares = type(self).loss is not FedCo.loss
        self._offered = [name for name in ("keys", "queue") if takes(self.loss, name)]
        self._program = self._task.contrast(
            self._step, network=QueryAndKey(self._task.network), optimizer=self._optimizer
        )
        queue = KeyQueue.random(
            settings.length, PROJECTION, generator=context.streams.generator("queue"), device=self._task.device
        )
        state = {**self._task.initial_state(), **queue.state()}
        self._parameters = tuple(name for name, _ in self._task.network.named_parameters())
        if settings.at_rsu:
            state |= {KEY_ENCODER + name: state[name] for name in self._parameters}
        # model, queue and key encoder of a round belong together: one history holds them
        self._global = Server(
            state,
            max_staleness=context.max_staleness,
            settings=settings,
            weigh=self.weights,
            not_of_model=NOT_OF_MODEL,
            rule=rule_of(context),
            parameters=self._parameters,  # a key encoder is trained by nobody: it trails, and is averaged
        )
        of_silo = self._parameters if settings.key_encoder == "silo" else ()
        self._template = SiloState(own={name: state[name].to("cpu", copy=True) for name in of_silo})
        self._silos = SiloStates(context.silos, lambda: self._template, whole=True)

    def weights(self, participants: Sequence[Participant]) -> Weights:
        """Return what each uploaded model counts: 1 / N for each of the N participants. Keys are enqueued all."""
        return equal_weights(len(participants))

    def loss(
        self,
        model: nn.Module,
        first: Tensor,
        second: Tensor,  # noqa: ARG002 - for methods that look at it themselves
        base: State,  # noqa: ARG002 - for methods that compare with it
        keys: Tensor,
        queue: Tensor,
    ) -> Tensor:
        """Return the loss of a local step: InfoNCE of the queries against their keys and the queue (Eq. 1).

        A function of its arguments alone: it is called for several vehicles at once, from several threads. A method's
        own may do without ``keys`` and ``queue``; the vehicles then exchange keys that no loss looks at.

        Args:
            model: the encoder that is trained, as the steps before have left it; gradients flow to its parameters.
            first: first random views of a batch of the vehicle's images, normalised, shape (B, C, H, W).
            second: second random views of the same images.
            base: the model that the vehicle downloaded, tensors by name; not to be changed.
            keys: what the key encoder makes of ``second``, of unit length, shape (B, D), without gradients.
            queue: keys of the RSU's queue as the vehicle downloaded them, shape (K, D).
        """
        return queue_info_nce(model(first), keys, queue, temperature=self._settings.temperature)

    @final
    def describe(self) -> Description:
        """Return encoder, data distribution, and what crosses the radio link besides the model."""
        length, keys = self._settings.length, self._settings.batch
        sent = payload_bytes(_key_encoder(self._global.current)) / 1e6
        own = payload_bytes(self._template.own) / 1e6
        facts = {
            "Queue": f"{length} keys of {PROJECTION} values ({_key_bytes(length) / 1e3:.4g} kB), down with it",
            "Keys": f"at most {keys} per participation ({_key_bytes(keys) / 1e3:.4g} kB), up with it",
            "Key encoder": {
                "silo": f"kept in the silo ({own:.4g} MB there), starts as the model first downloaded",
                "visit": "starts as the downloaded model at each local training",
            }.get(self._settings.key_encoder, f"{sent:.4g} MB each way with it; kept and averaged by the RSU"),
        }
        return self._task.describe(facts)

    @final
    def series(self) -> Sequence[Series]:
        """Return the metrics of ``aggregate`` and ``evaluate``."""
        of_silos = (NEW_KEY_ENCODERS,) if self._template.own else ()
        return (*reported(SERIES, self._settings), *of_silos)

    @final
    def cost(self, silo: int) -> Cost:
        """Return model and queue down, model and keys up, and the work of all steps.

        An image passes the trained encoder forward and backward, and the key encoder forward. It is never cut
        short: of how many keys are uploaded the steps decide.
        """
        state = self._global.current
        model = payload_bytes(self._task.sent(_model(state))) + payload_bytes(_key_encoder(state))
        return Cost(
            download_bytes=model + _key_bytes(self._settings.length),
            upload_bytes=model + _key_bytes(self._keys_per_training(silo)),
            work_flop=float(self._task.images_per_training(silo) * (BACKWARD_FACTOR + 1) * self._task.flop),
        )

    @final
    def train(self, participants: Sequence[Participant]) -> Sequence[Update]:
        """Train every participant from the model and the queue of its ``base``.

        An update's ``state`` holds the model's tensors and the uploaded keys under ``keys``; what stays with the silo
        is in ``kept``.
        """
        jobs = [self._job(participant) for participant in participants]
        trained = self._task.engine.train(jobs)
        return [self._upload(*one) for one in zip(participants, jobs, trained, strict=True)]

    @final
    def aggregate(self, updates: Sequence[Update]) -> Aggregation:
        """Average the updates' models, enqueue their keys in order, and end the round."""
        round_ = self._global.round
        queue = KeyQueue.of_state(self._global.current).enqueue(
            [update.state["keys"] for update in updates], round_=round_
        )
        metrics = {
            "learning_rate": self._task.learning_rate(round_),
            **queue.metrics(round_),
            **mean_loss(updates),
        }
        if updates and self._template.own:
            begun = [not self._silos[update.participant.silo].own for update in updates]
            metrics["new_key_encoders"] = sum(begun) / len(begun)
            for update in updates:
                self._silos[update.participant.silo] = SiloState(own=update.kept)
        models = [{n: t for n, t in update.state.items() if n != "keys"} for update in updates]
        weights, state = self._global.fold(updates, models)
        self._global.advance({**state, **queue.state()})
        return Aggregation(weights=weights.tolist(), metrics=metrics)

    @final
    def evaluate(self, *, final: bool) -> Mapping[str, float]:
        """Return kNN accuracy, and the linear probe's when it is due."""
        return self._task.evaluate(_model(self._global.current), final=final)

    def _keys_per_training(self, silo: int) -> int:
        return min(self._settings.batch, self._task.images_per_training(silo))

    def _step(self, networks: nn.Module, batch: Tensors, given: Tensors) -> tuple[Tensor, Tensors]:
        """Return the loss of a step, and its keys; gradients flow through the queries alone."""
        assert isinstance(networks, QueryAndKey)
        with torch.no_grad():
            keys = networks.key(batch["second"])
        offered = {"keys": keys, "queue": given["queue"]}
        more = {name: offered[name] for name in self._offered}
        found = self.loss(networks.query, batch["first"], batch["second"], unprefixed(BASE, given), **more)
        loss = scalar(found, self.loss)
        return loss, {"loss": loss, "keys": keys}

    def _optimizer(self, parameters: Mapping[str, Tensor], rate: Rate, state: Tensors) -> Optimizer:
        query = {name: tensor for name, tensor in parameters.items() if name.startswith(QUERY)}
        sgd = self._task.sgd(self._settings.momentum)(query, rate, state)
        return Trailing(sgd, parameters, momentum=self._settings.momentum_encoder)

    def _job(self, participant: Participant) -> TrainingJob:
        base = self._global.at(participant.base.version)
        model = _model(base)
        own = moved(self._silos[participant.silo].own, self._task.device)
        return TrainingJob(
            program=self._program,
            training=self._task.local_training_of(participant),
            base={**prefixed(QUERY, model), **prefixed(KEY, {**model, **_key_encoder(base), **own})},
            given={"queue": KeyQueue.of_state(base).keys, **(prefixed(BASE, model) if self._compares else {})},
        )

    def _upload(self, participant: Participant, job: TrainingJob, trained: Trained) -> Update:
        keys = trained.figures["keys"].flatten(0, 1)[-self._keys_per_training(participant.silo) :].contiguous()
        theta_k = {name: trained.state[KEY + name] for name in self._parameters}
        sent = prefixed(KEY_ENCODER, theta_k) if self._settings.at_rsu else {}
        return replace(
            self._update(participant, job, trained),
            state={**self._task.sent(unprefixed(QUERY, trained.state)), **sent, "keys": keys},
            kept=moved({name: theta_k[name] for name in self._template.own}, torch.device("cpu")),
        )


def _model(state: State) -> dict[str, Tensor]:
    """Return the encoder's part of a global state."""
    return {name: tensor for name, tensor in state.items() if not name.startswith(NOT_OF_MODEL)}


def _key_encoder(state: State) -> dict[str, Tensor]:
    """Return the key encoder's parameters in a global state; empty when none is kept."""
    return {name.removeprefix(KEY_ENCODER): t for name, t in state.items() if name.startswith(KEY_ENCODER)}


def _key_bytes(count: int) -> int:
    return count * PROJECTION * torch.float32.itemsize
