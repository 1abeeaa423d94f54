"""FedEFM: models trained overseas, at the neighbours' data, teach the vehicle that sent them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal, final

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from learners.aggregation import weighted_mean
from learners.classification_fedavg import ClassificationFedAvg
from learners.classification_settings import LOSS, ClassificationSettings
from learners.classification_task import dense_features, label_loss
from learners.distillation import dense_similarity, distillation_loss
from learners.global_model import State
from learners.training import Job, Tensors, Trained, Visit, below, frozen, under
from learners.training_settings import at_least, in_unit_interval, positive
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
TEACHER = "teacher."
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
        in_unit_interval(self, "beta", with_one=True)
        positive(self, "temperature")
        at_least(self, overseas_steps=1, max_teachers=1)


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
        self._abroad = self._task.classify(label_loss, steps=settings.overseas_steps)
        self._with_teachers = self._task.classify(self._distillation)

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

    def train(self, participants: Sequence[Participant]) -> Sequence[Update]:
        """Train copies overseas, compare, and train every participant; see ``vnetsim.learning.Learner``."""
        copies = self._overseas(participants)
        similarities: list[dict[str, float]] = [{} for _ in participants]  # by host, of the copies that teach
        if self._settings.variant == "emd":
            calls = [partial(self._similarities, *one) for one in zip(participants, copies, strict=True)]
            similarities = self._task.engine.map(self._plain, calls)
            copies = [{host: mine[host] for host in alike} for mine, alike in zip(copies, similarities, strict=True)]
            jobs = [self._taught(*one) for one in zip(participants, copies, similarities, strict=True)]
        else:
            jobs = [self._job(self._plain, participant) for participant in participants]
        trained = self._task.engine.train(jobs)
        if self._settings.variant == "guest-average":
            trained = [_with_guests(*one) for one in zip(trained, copies, strict=True)]
        updates = [self._update(*one) for one in zip(participants, jobs, trained, strict=True)]
        return [
            replace(
                update,
                metrics={**update.metrics, "teachers": float(len(mine))},
                kept={host: torch.tensor(value, dtype=torch.float64) for host, value in alike.items()},
            )
            for update, mine, alike in zip(updates, copies, similarities, strict=True)
        ]

    def _overseas(self, participants: Sequence[Participant]) -> list[dict[str, State]]:
        """Return the copies that came back to each, by host: trained on the host's images as its vehicle sees them.

        A copy that diverged is of no use and left out.
        """
        pairs = [
            (i, peer)
            for i, participant in enumerate(participants)
            if participant.base_round > 0
            for peer in participant.peers[: self._settings.max_teachers]
        ]
        jobs = [
            Job(
                program=self._abroad,
                visit=self._overseas_visit(participants[i], peer),
                base=self._global.at(participants[i].base_round),
            )
            for i, peer in pairs
        ]
        copies: list[dict[str, State]] = [{} for _ in participants]
        for (i, peer), trained in zip(pairs, self._task.engine.train(jobs), strict=True):
            if trained.finite:
                copies[i][peer.vehicle_id] = trained.state
        return copies

    def _overseas_visit(self, guest: Participant, host: Peer) -> Visit:
        return self._task.visit(
            host.silo,
            speed_mps=host.speed_mps,
            learning_rate=self._task.cosine_rate(guest.base_round),
            seed=self._context.streams.integer("overseas", guest.round, host.vehicle_id, guest.vehicle_id),
        )

    def _similarities(
        self, participant: Participant, copies: Mapping[str, State], network: nn.Module
    ) -> dict[str, float]:
        """Return EMD_ij by host, on one batch of the participant's images; their draw is no part of its training.

        Copies whose features overflow are left out.
        """
        if not copies:
            return {}
        seed = self._context.streams.integer("similarity", participant.round, participant.vehicle_id)
        generator = torch.Generator().manual_seed(seed)
        images = self._plain.prepare(self._plain.draw(self._visit(participant), generator))["images"]
        own, *others = (
            dense_features(network, state, images)
            for state in (self._global.at(participant.base_round), *copies.values())
        )
        finite = {host: dense for host, dense in zip(copies, others, strict=True) if dense.isfinite().all()}
        if not (finite and own.isfinite().all()):
            return {}
        return dict(zip(finite, dense_similarity(own, torch.stack(list(finite.values()))).tolist(), strict=True))

    def _taught(self, participant: Participant, copies: Mapping[str, State], alike: Mapping[str, float]) -> Job:
        """Return a participant's own training with the teachers ``copies``; plain when there is none."""
        if not copies:
            return self._job(self._plain, participant)
        weights = torch.tensor([alike[host] for host in copies], device=self._task.device).relu()
        if self._settings.reduce == "mean":
            weights /= len(weights)
        given = {"weights": weights}
        for i, state in enumerate(copies.values()):
            given |= under(f"{TEACHER}{i}.", state)
        return self._job(self._with_teachers, participant, given)

    def _distillation(self, model: nn.Module, images: Tensor, labels: Tensor, given: Tensors) -> Tensor:
        """Return L_i; an ``Objective``."""
        settings = self._settings
        logits = model(images)
        with torch.no_grad():
            taught = torch.stack(
                [frozen(model, below(f"{TEACHER}{i}.", given), images) for i in range(len(given["weights"]))]
            )
        distillation = distillation_loss(logits, taught, given["weights"], temperature=settings.temperature)
        return (1 - settings.beta) * cross_entropy(logits, labels) + settings.beta * distillation


def _with_guests(local: Trained, guests: Mapping[str, State]) -> Trained:
    """Return half the local model and half the mean of the guests; the local model when there is none."""
    if not guests:
        return local
    shares = [0.5, *[0.5 / len(guests)] * len(guests)]
    return replace(local, state=weighted_mean([local.state, *guests.values()], shares))
