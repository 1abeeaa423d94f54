"""FedEFM: models trained overseas, at the neighbours' data, teach the vehicle that sent them."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, final

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from learners.aggregation import weighted_mean
from learners.classification_fedavg import ClassificationFedAvg
from learners.classification_settings import LOSS, ClassificationSettings
from learners.classification_task import Objective, label_loss
from learners.distillation import dense_similarity, distillation_loss
from learners.encoders import Classifier
from learners.global_model import State
from learners.training import Trained, Visit
from vnetsim.errors import InputError
from vnetsim.learning import Aggregation, Cost, Description, Exchange, LearnerContext, Participant, Peer, Series, Update

EMD = Series(
    name="emd",
    label="EMD similarity",
    unit="",
    caption="Earth mover's similarity of the dense features of a vehicle's model and of its copy that was trained at "
    "the host's data, on a batch of the vehicle's own images (FedEFM Eq. 3); mean over the copies that came back.",
)
TEACHERS = Series(
    name="teachers",
    label="Returned copies per vehicle",
    unit="",
    caption="Copies of its model that an aggregated vehicle got back from neighbours and learned from, mean.",
)
EXCHANGED = replace(
    EMD,
    caption="Earth mover's similarity of the sender's model and its copy that was trained at the receiver's data, on "
    "the sender's images (FedEFM Eq. 3): the weight of that teacher, where positive.",
)


@dataclass(frozen=True, kw_only=True)
class FedEFMSettings(ClassificationSettings):
    """Settings of FedEFM: the task's, and those of overseas training and distillation.

    The method publishes neither ``beta`` nor ``temperature``.

    Args:
        beta: share of the teachers in the loss, in [0, 1].
        temperature: of the softened outputs, > 0.
        overseas_steps: optimizer steps of each copy at its host.
        max_teachers: returned copies that a vehicle uses at most, the first in order of arrival; its work is
            reckoned with so many, whoever comes back.
        reduce: whether teachers' terms are added, as published, or averaged.
        variant: ``emd`` is the method. ``guest-average`` follows the released code, which has neither similarity nor
            distillation: plain local training, then half the local model and half the mean of the models trained
            overseas. There a vehicle averages the guests that it trained itself, whose models differ; here all
            start alike, so it averages its own copies that came back.
    """

    beta: float = 0.5
    temperature: float = 3.0
    overseas_steps: int = 4
    max_teachers: int = 4
    reduce: Literal["sum", "mean"] = "sum"
    variant: Literal["emd", "guest-average"] = "emd"

    def __post_init__(self) -> None:
        """Refuse values without meaning.

        Raises:
            InputError: naming the key.
        """
        super().__post_init__()
        if not 0 <= self.beta <= 1:
            raise InputError(f"learning.beta must be in [0, 1], got {self.beta}.")
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise InputError(f"learning.temperature must be positive and finite, got {self.temperature}.")
        for name in ("overseas_steps", "max_teachers"):
            if getattr(self, name) < 1:
                raise InputError(f"learning.{name} must be at least 1, got {getattr(self, name)}.")


@final
class FedEFM(ClassificationFedAvg):
    """Overseas training and distillation weighted by the earth mover's similarity; FedAvg where nothing came back.

    Before its own training, vehicle i sends a copy of its model to its neighbours. Neighbour j trains the copy on its
    images and sends it back; those that return in time teach vehicle i while it trains on its own images. The copies
    are drawn for and trained one by one, each from a random stream of its own (round, host, guest) and with an
    optimizer of its own, so neither the host's training nor another guest notices. All start at the model that the RSU
    sent, so a host's guests learn the same but for the images they draw.

    The teachers are copies of the student that took a few steps elsewhere, and each is as weighty as its similarity is
    close to 1. With several of them and a high temperature they hold the student near the downloaded model, so that in
    short runs it learns more slowly than FedAvg does.

    The similarity is measured once a visit, before the vehicle's first step, on one batch of its images. Round 0 is
    plain local training: the copies are exchanged as in every round, but an untrained model is no teacher.

    Args:
        context: what the simulator gives every learner.
        settings: the method's settings.
    """

    name: ClassVar[str] = "fedefm"
    paper: ClassVar[str] = (
        "Do et al. (2025): FedEFM: Federated Endovascular Foundation Model with Unseen Data, arXiv:2501.16992"
    )
    payload: ClassVar[str] = (
        "the model down, the model up; with every neighbour the model out and its trained copy back"
    )
    equations: ClassVar[tuple[str, ...]] = (
        "overseas: theta_(i->j) = theta_i after steps of SGD on CE(Q, y) at silo j's images  (Eq. 1)",
        "similarity: EMD_ij = sum_pq (1 - c_pq) x_pq, c_pq = 1 - cos(u_p, v_q), x the optimal transport plan  (Eq. 3)",
        "loss: L_i = (1 - beta) CE(Q, y) + beta T^2 sum_j relu(EMD_ij) CE(Q_Tj^T, Q_S^T)  (Eq. 2, 11)",
        "average: Theta = sum_i vartheta_i theta_i / sum_i vartheta_i, vartheta_i = 1 where the upload arrived, else 0",
    )
    Settings: ClassVar[type] = FedEFMSettings
    _settings: FedEFMSettings

    def __init__(self, context: LearnerContext, settings: FedEFMSettings) -> None:
        super().__init__(context, settings)
        self._teachers: list[Classifier] = []

    def describe(self) -> Description:
        """Return classifier, data distribution, and what vehicles exchange."""
        settings = self._settings
        described = self._task.describe(
            {
                "Overseas training": f"{settings.overseas_steps} steps at each neighbour, "
                f"at most {settings.max_teachers} returned copies used; none in round 0",
                "Variant": "distillation weighted by the earth mover's similarity"
                if settings.variant == "emd"
                else "half the local model and half the mean of the returned copies, after the released code",
            }
        )
        return replace(described, exchange=EXCHANGED if settings.variant == "emd" else None)

    def series(self) -> Sequence[Series]:
        """Return the metrics of ``aggregate`` and ``evaluate``."""
        if self._settings.variant == "guest-average":
            return (*super().series(), TEACHERS)
        loss = replace(
            LOSS,
            caption="Cross-entropy over the union of labels and, from round 1 on, divergence from the teachers, mean "
            "over the aggregated vehicles and their local steps; where all teachers agree with the student, "
            "(1 - beta) of the cross-entropy.",
        )
        return (loss, *super().series()[1:], EMD, TEACHERS)

    def cost(self, silo: int) -> Cost:
        """Return FedAvg's cost, the teachers' forward passes, and the exchange of one model each way.

        The teachers label every step's batch; they and the vehicle's own model pass the one of the similarity. Costs
        are constant over the rounds, so the exchange takes place in round 0 as well. The overseas work is that at a
        host that fills its batches.
        """
        settings, plain = self._settings, super().cost(silo)
        passes = settings.max_teachers * (settings.steps + 1) + 1 if settings.variant == "emd" else 0
        return replace(
            plain,
            work_flop=plain.work_flop + float(passes * self._task.batch_size(silo) * self._task.flop),
            exchange=Exchange(
                before_training=True,
                mutual=False,
                send_bytes=self._model_bytes,
                work_flop=self._task.training_flop(settings.overseas_steps * self._task.largest_batch),
                return_bytes=self._model_bytes,
            ),
        )

    def aggregate(self, updates: Sequence[Update]) -> Aggregation:
        """Average the finite updates with equal weights and end the round; report their similarities."""
        done = super().aggregate(updates)
        finite = [update for update in updates if update.finite]
        exchanges = {
            (update.participant.vehicle_id, host): float(similarity)
            for update in finite
            for host, similarity in update.kept.items()
        }
        metrics = dict(done.metrics)
        if finite:
            metrics["teachers"] = sum(update.metrics["teachers"] for update in finite) / len(finite)
        if exchanges:
            metrics["emd"] = sum(exchanges.values()) / len(exchanges)
        return replace(done, metrics=metrics, exchanges=exchanges)

    def _train_one(self, participant: Participant) -> Update:
        base = self._global.at(participant.base_round)
        visit = self._visit(participant)
        copies = self._overseas(participant, base)
        similarities: dict[str, float] = {}  # by host
        if self._settings.variant == "guest-average":
            trained = self._task.train(base, visit, label_loss, steps=self._settings.steps)
            trained = _with_guests(trained, list(copies.values()))
        else:
            similarities = self._similarities(participant, base, copies)
            copies = {host: copies[host] for host in similarities}
            trained = self._task.train(base, visit, self._objective(copies, similarities), steps=self._settings.steps)
        return Update(
            participant=participant,
            state=trained.state,
            loss=trained.loss,
            finite=trained.finite,
            metrics={"kernel_px": visit.kernel_px, "teachers": float(len(copies))},
            kept={host: torch.tensor(value, dtype=torch.float64) for host, value in similarities.items()},
        )

    def _overseas(self, participant: Participant, base: State) -> dict[str, State]:
        """Return the copies that came back, by host: trained on the host's images as its vehicle sees them.

        A copy that diverged is of no use and left out.
        """
        if participant.base_round == 0:
            return {}
        copies: dict[str, State] = {}
        for peer in participant.peers[: self._settings.max_teachers]:
            trained = self._task.train(
                base, self._overseas_visit(participant, peer), label_loss, steps=self._settings.overseas_steps
            )
            if trained.finite:
                copies[peer.vehicle_id] = trained.state
        return copies

    def _overseas_visit(self, guest: Participant, host: Peer) -> Visit:
        return self._task.visit(
            host.silo,
            speed_mps=host.speed_mps,
            base_round=guest.base_round,
            seed=self._context.streams.integer("overseas", guest.round, host.vehicle_id, guest.vehicle_id),
        )

    def _similarities(self, participant: Participant, base: State, copies: dict[str, State]) -> dict[str, float]:
        """Return EMD_ij by host, on one batch of the participant's images; their draw is no part of its training.

        Copies whose features overflow are left out.
        """
        if not copies:
            return {}
        seed = self._context.streams.integer("similarity", participant.round, participant.vehicle_id)
        generator = torch.Generator(self._task.device).manual_seed(seed)
        images, _ = self._task.batch(self._visit(participant), generator)
        with torch.no_grad():
            own, *others = (model.dense(images) for model in self._frozen([base, *copies.values()]))
        finite = {host: dense for host, dense in zip(copies, others, strict=True) if dense.isfinite().all()}
        if not (finite and own.isfinite().all()):
            return {}
        return dict(zip(finite, dense_similarity(own, torch.stack(list(finite.values()))).tolist(), strict=True))

    def _objective(self, copies: dict[str, State], similarities: dict[str, float]) -> Objective:
        """Return L_i for the teachers ``copies``; plain cross-entropy when there is none."""
        if not copies:
            return label_loss
        settings = self._settings
        teachers = self._frozen(list(copies.values()))
        weights = torch.tensor([similarities[host] for host in copies], device=self._task.device).relu()
        if settings.reduce == "mean":
            weights /= len(weights)

        def loss(model: Classifier, images: Tensor, labels: Tensor) -> Tensor:
            logits = model(images)
            with torch.no_grad():
                taught = torch.stack([teacher(images) for teacher in teachers])
            distillation = distillation_loss(logits, taught, weights, temperature=settings.temperature)
            return (1 - settings.beta) * cross_entropy(logits, labels) + settings.beta * distillation

        return loss

    def _frozen(self, states: Sequence[State]) -> list[Classifier]:
        """Return workspace models that hold ``states`` until the next call.

        Their parameters stay. Like the student they normalise with the statistics of the batch, so that a teacher with
        the student's parameters agrees with it.
        """
        while len(self._teachers) < len(states):
            self._teachers.append(copy.deepcopy(self._task.classifier).requires_grad_(requires_grad=False))
        models = self._teachers[: len(states)]
        for model, state in zip(models, states, strict=True):
            model.load_state_dict(state)
            model.train()
        return models


def _with_guests(local: Trained, guests: Sequence[State]) -> Trained:
    """Return half the local model and half the mean of the guests; the local model when there is none."""
    if not guests:
        return local
    shares = [0.5, *[0.5 / len(guests)] * len(guests)]
    return replace(local, state=weighted_mean([local.state, *guests], shares))
