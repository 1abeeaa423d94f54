"""FedEFM: models trained overseas, at the neighbours' data, teach the vehicle that sent them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar, final

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from learners.data.moving import moved
from learners.engines.programs import (
    LocalTraining,
    Program,
    Tensors,
    Trained,
    TrainingJob,
    frozen,
    prefixed,
    unprefixed,
)
from learners.fedefm_settings import (
    EMD,
    EMD_LARGEST,
    EMD_LEAST,
    EXCHANGED,
    OWN_ACCURACY,
    TEACHERS,
    FedEFMSettings,
    loss_series,
)
from learners.frame import BASE, TaskLearner, require_hook_is_used, scalar, takes
from learners.mathematics.aggregation import Weights, equal_weights, weighted_mean
from learners.mathematics.distillation import (
    Problem,
    dense_problem,
    dense_similarities,
    dense_similarity,
    distillation_loss,
)
from learners.mathematics.transport import chosen
from learners.state.global_model import State
from learners.state.own_models import OwnModels
from learners.state.rules import needs_averaging, rule_of
from learners.state.server import Server, mean_loss
from learners.tasks.classification import ClassificationTask, dense_features, views
from learners.tasks.classification_settings import DEFAULTS, LOSS
from learners.tasks.task import payload_bytes
from vnetsim.learning import Aggregation, Cost, Description, Exchange, LearnerContext, Participant, Peer, Series, Update
from vnetsim.learning.aggregation import SYNC

TEACHER = "teacher."
SOLVERS = {"pot": "POT's network simplex", "interior-point": "the batched interior-point method"}


class FedEFM(TaskLearner):
    """Overseas training and distillation weighted by the earth mover's similarity; FedAvg where nothing came back.

    Before its own training, vehicle i sends a copy of its model to its neighbours. Neighbour j trains the copy on its
    images and sends it back; those that return in time teach vehicle i while it trains on its own images. The copies
    are drawn for and trained one by one, each from a random stream of its own (round, host, guest) and with an
    optimizer of its own, so neither the host's training nor another guest notices. With a server all start at the
    model that it sent, so a host's guests learn the same but for the images they draw.

    Teachers are copies of the student after some steps elsewhere. While they start from the model that the student
    starts from, the weights EMD_ij, told with least, mean and largest of each round, follow the length of training
    overseas. In the study ``fedefm-full-contact``, size small, they were .76 to 1.00 over rounds, .99 in the last,
    whose steps the cosine has made small; without a server, where silos' models differ, .59 to .88. See
    ``tests/benchmarks/test_emd_weights.py``.

    Round 0, and without a server a silo's first one, is plain local training: the copies are exchanged as in every
    round, but an untrained model is no teacher.

    Args:
        context: what the simulator gives every learner.
        settings: the method's settings.
    """

    name: ClassVar[str] = "fedefm"
    task: ClassVar[str] = "classification"
    paper: ClassVar[str] = (
        "Do et al. (2025): FedEFM: Federated Endovascular Foundation Model with Unseen Data, arXiv:2501.16992"
    )
    payload: ClassVar[str] = (
        "the model down, the model up (neither without a server); with every neighbour the model out and its trained "
        "copy back"
    )
    equations: ClassVar[tuple[str, ...]] = (
        "overseas: theta_(i->j) = theta_i after steps of SGD on CE(Q, y) at silo j's images  (Eq. 1)",
        "similarity: EMD_ij = sum_pq (1 - c_pq) x_pq, c_pq = 1 - cos(u_p, v_q), x the optimal transport plan  (Eq. 3)",
        "marginals of x, which the paper does not give: DeepEMD's, relu(u_p . mean_q v_q) + 1e-3, scaled to total 1",
        "loss: L_i = sum_j relu(EMD_ij) [ beta T^2 CE(Q_Tj^T, Q_S^T) + (1 - beta) CE(Q, y) ]  (Eq. 2, reading literal)",
        "or: L_i = beta T^2 sum_j relu(EMD_ij) CE(Q_Tj^T, Q_S^T) + (1 - beta) CE(Q, y)  (Eq. 11, reading labels-once)",
        "without a returned copy: L_i = CE(Q, y)",
        "average: Theta = sum_i vartheta_i theta_i / sum_i vartheta_i, vartheta_i = 1 where the upload arrived, else 0",
        "without a server: theta_i <- sum_j A_ij theta_j before training, A_ij = 1 / (1 + max(d_i, d_j)) for peers",
    )
    defaults: ClassVar[Mapping[str, object]] = DEFAULTS
    takes_aggregation_rule: ClassVar[bool] = True
    Settings: ClassVar[type] = FedEFMSettings
    _task: ClassificationTask
    _global: Server

    def __init__(self, context: LearnerContext, settings: FedEFMSettings) -> None:
        self._context = context
        self._settings = settings
        self._task = ClassificationTask(context, settings)
        initial = self._task.initial_state()
        self._global = Server(
            initial,
            max_staleness=context.max_staleness,
            settings=settings,
            weigh=self.weights,
            rule=rule_of(context),
            parameters=[name for name, _ in self._task.network.named_parameters()],
        )
        self._own: OwnModels | None = None
        if settings.server == "none":
            if context.rule != SYNC:
                raise needs_averaging(context.rule, self.name, "learning.server: none")
            require_hook_is_used(self, FedEFM, "weights", "learning.server: none", "nobody averages uploads")
            # the global model is then the mean of the silos' own
            self._own = OwnModels(initial, silos=context.silos)
        self._silos = self._own
        self._models: Server | OwnModels = self._own or self._global
        # what the shipped loss does not read is not handed to the engine
        self._compares = type(self).loss is not FedEFM.loss
        self._takes_outputs = takes(self.loss, "outputs")
        self._plain = self._task.classify(self._step)
        self._abroad = self._task.classify(self._step, steps=settings.overseas_steps)
        self._with_teachers = self._task.classify(self._distillation)

    def weights(self, participants: Sequence[Participant]) -> Weights:
        """Return what each upload counts where the RSU averages: 1 / N for each of the N participants."""
        return equal_weights(len(participants))

    def loss(
        self,
        model: nn.Module,
        images: Tensor,
        labels: Tensor,
        base: State,  # noqa: ARG002 - for methods that compare with it
        outputs: Tensor | None = None,
    ) -> Tensor:
        """Return the loss of a local step on the labels: the cross-entropy, mean over the images.

        Steps at home and overseas descend it, and where teachers are it is CE(Q, y) of the equations. A function of its
        arguments alone: it is called for several vehicles at once, from several threads.

        Args:
            model: the classifier as the steps before have left it; gradients flow to its parameters.
            images: a batch of the silo's images, normalised, shape (B, C, H, W).
            labels: their labels, int64, shape (B,).
            base: the state that the local training started from, tensors by name; not to be changed.
            outputs: logits that the model has made of the images already, with gradients, shape (B, classes). For a
                method that does not take them the images pass the model twice in steps with teachers.
        """
        return cross_entropy(model(images) if outputs is None else outputs, labels)

    @final
    def describe(self) -> Description:
        """Return classifier, data distribution, and what vehicles exchange."""
        settings = self._settings
        how = f"distillation weighted by the earth mover's similarity, measured once a {settings.similarity}"
        solver = SOLVERS[chosen(settings.solver, self._task.device)]
        described = self._task.describe(
            {
                "Overseas training": f"{settings.overseas_steps} steps at each neighbour, "
                f"at most {settings.max_teachers} returned copies used; none in round 0",
                "Server": "the RSU averages"
                if self._own is None
                else "none: silos keep models of their own, mixed by Metropolis-Hastings weights with those of guests",
                "Variant": f"{how}; Eq. 2 and 11 read as {settings.reading}; transport solved by {solver}"
                if settings.variant == "emd"
                else "half the local model and half the mean of the returned copies, after the released code",
            }
        )
        return replace(described, exchange=EXCHANGED if settings.variant == "emd" else None)

    @final
    def series(self) -> Sequence[Series]:
        """Return the metrics of ``aggregate`` and ``evaluate``."""
        _, accuracy, *others = self._task.series()
        loss = loss_series(self._settings.reading) if self._settings.variant == "emd" else LOSS
        similarities = (EMD, EMD_LEAST, EMD_LARGEST) if self._settings.variant == "emd" else ()
        accuracies = (accuracy,) if self._own is None else OWN_ACCURACY
        return (loss, *accuracies, *others, *similarities, TEACHERS)

    @final
    def cost(self, silo: int) -> Cost:
        """Return FedAvg's cost, the teachers' forward passes, and the exchange of one model each way.

        The teachers label every step's batch. Similarity ``visit`` takes one batch more, through them and the
        vehicle's own model; that of a step is of features which label it anyway. Transport plans are not counted.
        Costs are constant over the rounds, so the exchange takes place in round 0 as well. The overseas work is that
        at a host that fills its batches.
        """
        settings, model = self._settings, payload_bytes(self._global.current)
        passes = settings.max_teachers * settings.steps if settings.variant == "emd" else 0
        if settings.variant == "emd" and settings.similarity == "visit":
            passes += settings.max_teachers + 1
        rsu_bytes = model if self._own is None else 0
        return Cost(
            download_bytes=rsu_bytes,
            upload_bytes=rsu_bytes,
            work_flop=self._task.training_flop(self._task.images_per_training(silo))
            + float(passes * self._task.batch_size(silo) * self._task.flop),
            exchange=Exchange(
                before_training=True,
                mutual=self._own is not None,
                send_bytes=model,
                work_flop=self._task.training_flop(settings.overseas_steps * self._task.largest_batch),
                return_bytes=model,
            ),
        )

    @final
    def aggregate(self, updates: Sequence[Update]) -> Aggregation:
        """Average the updates with equal weights and end the round; report their similarities."""
        metrics = {"learning_rate": self._task.learning_rate(self._global.round), **mean_loss(updates)}
        weights, state = self._models.fold(updates)
        self._global.advance(state)
        exchanges = {
            (update.participant.vehicle_id, host): float(similarity)
            for update in updates
            for host, similarity in update.kept.items()
        }
        if updates:
            figures = [self._task.upload_figures(update.state, update.participant.silo) for update in updates]
            metrics |= self._task.round_figures(figures, weights)
            metrics["teachers"] = sum(update.metrics["teachers"] for update in updates) / len(updates)
        if exchanges:
            values = exchanges.values()
            metrics |= {"emd": sum(values) / len(values), "emd_least": min(values), "emd_largest": max(values)}
        return Aggregation(weights=weights.tolist(), metrics=metrics, exchanges=exchanges)

    @final
    def evaluate(self, *, final: bool) -> Mapping[str, float]:
        """Return the accuracy of the global model; without a server of the silos' average and of their own."""
        measured = self._task.evaluate(self._global.current, final=final)
        return measured if self._own is None else {**measured, **self._own.accuracies(self._task.accuracy)}

    @final
    def train(self, participants: Sequence[Participant]) -> Sequence[Update]:
        """Train copies overseas, compare, and train every participant; see ``vnetsim.learning.Learner``."""
        copies = self._overseas(participants)
        similarities: list[dict[str, float]] = [{} for _ in participants]  # by host, of the copies that teach
        if self._settings.variant == "emd":
            if self._settings.similarity == "visit":
                similarities = self._similarities(participants, copies)
                copies = [
                    {host: mine[host] for host in alike} for mine, alike in zip(copies, similarities, strict=True)
                ]
            jobs = [self._taught(*one) for one in zip(participants, copies, similarities, strict=True)]
        else:
            jobs = [self._job(self._plain, participant) for participant in participants]
        trained = self._task.engine.train(jobs)
        if self._settings.variant == "guest-average":
            trained = [_with_guests(*one) for one in zip(trained, copies, strict=True)]
        elif self._settings.similarity == "step":
            similarities = [_of_steps(*one) for one in zip(trained, copies, strict=True)]
        updates = [self._update(*one) for one in zip(participants, jobs, trained, strict=True)]
        return [
            replace(
                update,
                metrics={**update.metrics, "teachers": float(len(mine))},
                kept={host: torch.tensor(value, dtype=torch.float64) for host, value in alike.items()},
            )
            for update, mine, alike in zip(updates, copies, similarities, strict=True)
        ]

    def _job(self, program: Program, participant: Participant, given: Tensors | None = None) -> TrainingJob:
        base = self._models.base(participant)
        return TrainingJob(
            program=program,
            training=self._task.local_training_of(participant),
            base=base,
            given={**(given or {}), **self._compared(base)},
        )

    def _compared(self, base: State) -> Tensors:
        """Return what ``loss`` is given as ``base``, in a job's ``given``."""
        return moved(prefixed(BASE, base), self._task.device) if self._compares else {}

    def _overseas(self, participants: Sequence[Participant]) -> list[dict[str, State]]:
        """Return the copies that came back to each, by host: trained on the host's images as its vehicle sees them.

        A copy that diverged is of no use and left out.
        """
        pairs = [
            (i, peer)
            for i, participant in enumerate(participants)
            if self._models.trained(participant)  # an untrained model is no teacher
            for peer in participant.peers[: self._settings.max_teachers]
        ]
        jobs = [
            TrainingJob(
                program=self._abroad,
                training=self._overseas_training(participants[i], peer),
                base=(base := self._models.sent(participants[i])),
                given=self._compared(base),
            )
            for i, peer in pairs
        ]
        copies: list[dict[str, State]] = [{} for _ in participants]
        for (i, peer), trained in zip(pairs, self._task.engine.train(jobs), strict=True):
            if trained.finite:
                copies[i][peer.vehicle_id] = trained.state
        return copies

    def _overseas_training(self, guest: Participant, host: Peer) -> LocalTraining:
        return self._task.local_training(
            host.silo,
            speed_mps=host.speed_mps,
            learning_rate=self._task.cosine_rate(guest.base.version),
            seed=self._context.streams.integer("overseas", guest.round, host.vehicle_id, guest.vehicle_id),
        )

    def _similarities(
        self, participants: Sequence[Participant], copies: Sequence[Mapping[str, State]]
    ) -> list[dict[str, float]]:
        """Return EMD_ij by host for each participant; copies whose features overflow are left out."""
        found: list[dict[str, float]] = [{} for _ in participants]
        taught = [i for i, mine in enumerate(copies) if mine]
        if not taught:
            return found
        calls = [partial(self._problem, participants[i], copies[i]) for i in taught]
        problems = self._task.engine.map(self._plain, calls)
        for i, alike in zip(taught, dense_similarities(problems, self._settings.solver), strict=True):
            values = zip(copies[i], alike.tolist(), strict=True)
            found[i] = {host: value for host, value in values if math.isfinite(value)}
        return found

    def _problem(self, participant: Participant, copies: Mapping[str, State], network: nn.Module) -> Problem:
        """Return the transport problems of a participant's model and its copies, on one batch of its images.

        Their draw is no part of its training.
        """
        seed = self._context.streams.integer("similarity", participant.round, participant.vehicle_id)
        generator = torch.Generator().manual_seed(seed)
        images = self._plain.prepare(self._plain.draw(self._task.local_training_of(participant), generator))["images"]
        own, *others = (
            dense_features(network, state, images) for state in (self._models.base(participant), *copies.values())
        )
        return dense_problem(own, torch.stack(others))

    def _taught(self, participant: Participant, copies: Mapping[str, State], alike: Mapping[str, float]) -> TrainingJob:
        """Return a participant's own training with the teachers ``copies``; plain when there is none."""
        if not copies:
            return self._job(self._plain, participant)
        given: dict[str, Tensor] = {}
        if self._settings.similarity == "visit":
            values = [alike[host] for host in copies]
            given["similarities"] = torch.tensor(values, dtype=torch.float64, device=self._task.device)
        for i, state in enumerate(copies.values()):
            given |= prefixed(f"{TEACHER}{i}.", state)
        return self._job(self._with_teachers, participant, given)

    def _step(self, model: nn.Module, batch: Tensors, given: Tensors) -> tuple[Tensor, Tensors]:
        """Return the loss of a step without teachers; a ``Loss``."""
        loss = scalar(self.loss(model, batch["images"], batch["labels"], unprefixed(BASE, given)), self.loss)
        return loss, {"loss": loss}

    def _distillation(self, model: nn.Module, batch: Tensors, given: Tensors) -> tuple[Tensor, Tensors]:
        """Return the loss of a step with teachers, and the similarities that weighed them, shape (J,); a ``Loss``."""
        images, settings = batch["images"], self._settings
        teachers = _teachers(given)
        if settings.similarity == "visit":
            logits = model(images)
            with torch.no_grad():
                taught = torch.stack([frozen(model, teacher, images) for teacher in teachers])
            similarities = given["similarities"]
        else:
            dense, logits = views(model, images)
            with torch.no_grad():
                seen = [views(model, images, teacher) for teacher in teachers]
            taught = torch.stack([of_teacher for _, of_teacher in seen])
            others = torch.stack([of_teacher for of_teacher, _ in seen])
            similarities = dense_similarity(dense.detach(), others, settings.solver)
        weights = similarities.to(logits.dtype).relu()
        more = {"outputs": logits} if self._takes_outputs else {}
        found = self.loss(model, images, batch["labels"], unprefixed(BASE, given), **more)
        labels = (1 - settings.beta) * scalar(found, self.loss)
        if settings.reading == "literal":
            labels = weights.sum() * labels
        loss = labels + settings.beta * distillation_loss(logits, taught, weights, temperature=settings.temperature)
        return loss, {"loss": loss, "similarities": similarities}


def _teachers(given: Tensors) -> list[Tensors]:
    """Return the teachers' states in a job's ``given``, in order."""
    count = len({name.removeprefix(TEACHER).partition(".")[0] for name in given if name.startswith(TEACHER)})
    return [unprefixed(f"{TEACHER}{i}.", given) for i in range(count)]


def _of_steps(trained: Trained, copies: Mapping[str, State]) -> dict[str, float]:
    """Return by host the similarities of a local training's steps, mean over them."""
    if not copies:
        return {}
    return dict(zip(copies, trained.figures["similarities"].double().mean(dim=0).tolist(), strict=True))


def _with_guests(local: Trained, guests: Mapping[str, State]) -> Trained:
    """Return half the local model and half the mean of the guests; the local model when there is none."""
    if not guests:
        return local
    shares = [0.5, *[0.5 / len(guests)] * len(guests)]
    return replace(local, state=weighted_mean([local.state, *guests.values()], shares))
