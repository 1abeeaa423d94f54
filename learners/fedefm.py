"""FedEFM: copies of a vehicle's model, trained on its neighbours' data ("overseas"), teach the vehicle."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Literal

import torch
from torch import Tensor, nn

from learners.averaging import averaging_server
from learners.data.moving import copy_into, to_device
from learners.engines.programs import (
    LocalTraining,
    State,
    Tensors,
    Trained,
    TrainingJob,
    add_prefix,
    call_with_state,
    draw_first,
    remove_prefix,
)
from learners.engines.side_by_side import Copies, run_each
from learners.federated import FederatedLearner, Parts
from learners.local_training import Start, make_step, make_update, mean_loss
from learners.mathematics.losses import distillation_loss
from learners.mathematics.transport import Solver, dense_problem, dense_similarities, dense_similarity, resolve_solver
from learners.mathematics.weights import weighted_mean
from learners.state.models import Models
from learners.state.rules import refuse_what_needs_averaging
from learners.state.server import Folded, Server
from learners.state.silos import OwnModels, SiloStates
from learners.tasks.classification import ACCURACY, DEFAULTS, LOSS, SCALES, ClassificationSettings, ClassificationTask
from learners.tasks.description import payload_bytes
from learners.tasks.settings import Steps, Temperature
from learners.tasks.task import StepLoss
from vnetsim.errors.bounds import TRAINS, Acts, Share, Within
from vnetsim.learning import Cost, Exchange, LearnerContext, Participant, Peer, Series, Update

TEACHER = "teacher."
SOLVERS = {"pot": "POT's network simplex", "interior-point": "the batched interior-point method"}
EMD = Series(
    name="emd",
    group="Earth mover's similarity",
    result=False,
    label="EMD weights, mean",
    unit="EMD",
    caption="Earth mover's similarity of the dense features of a vehicle's model and of its copy that was trained at "
    "the host's data, on the vehicle's own images (FedEFM Eq. 3): the weight of that teacher, where positive. Over all "
    "copies that taught in the round.",
)
EMD_LEAST = replace(EMD, name="emd_least", label="EMD weights, smallest")
EMD_LARGEST = replace(EMD, name="emd_largest", label="EMD weights, largest")
TEACHERS = Series(
    name="teachers",
    result=False,
    label="Returned copies per vehicle",
    caption="Mean number of copies of its model that an aggregated vehicle got back from neighbours and learned from.",
)
TAUGHT_LOSS = {
    "literal": "Before a copy came back the cross-entropy over the union of labels; with copies the sum of Eq. 2 "
    "(divergence in place of the soft cross-entropy), mean over the aggregated vehicles and their local steps.",
    "labels-once": "Before a copy came back the cross-entropy over the union of labels; with copies (1 - beta) times "
    "it plus beta times the divergence from the teachers, mean over the aggregated vehicles and their local steps.",
}
ACCURACY_SILOS = replace(
    ACCURACY,
    name="accuracy_silos",
    label="Silos, mean",
    caption="Accuracy of the models of the silos that took part so far, on test images that no vehicle has.",
)
OWN_ACCURACY = (
    ACCURACY,  # one metric with and without a server, so that the two can be compared
    ACCURACY_SILOS,
    replace(ACCURACY_SILOS, name="accuracy_best", result=False, label="Best silo"),
    replace(ACCURACY_SILOS, name="accuracy_worst", result=False, label="Worst silo"),
)
"""Accuracy where silos have models of their own."""
EXCHANGED = replace(
    EMD,
    unit="",
    label="EMD similarity",
    caption="Earth mover's similarity of the sender's model and its copy that was trained at the receiver's data, on "
    "the sender's images (FedEFM Eq. 3): the weight of that teacher, where positive.",
)

DISTILS = Acts("learning.variant", ("literal", "labels-once"))


@dataclass(frozen=True, kw_only=True)
class FedEFMSettings(ClassificationSettings):
    """Settings of FedEFM: the task's, and those of overseas training and distillation.

    The paper gives neither ``beta`` nor ``temperature``. Its Eq. 2 and 11 can be read in two ways; taken together they
    would sum over j twice. With w_j = relu(EMD_ij), where relu is ours, D_j = CE(Q_Tj^T, Q_S^T) and C = CE(Q_S, y):

    - ``literal``: sum_j w_j [ beta T^2 D_j + (1 - beta) C ]. This is Eq. 2 as printed, whose weight multiplies the
      gradient of all of L_MD, and what the text says: the objective for each j is controlled by the corresponding EMD.
      So it is the default. Labels then have the weight (1 - beta) sum_j w_j: with four teachers like the student and
      beta 0.5 twice that of plain training.
    - ``labels-once``: beta T^2 sum_j w_j D_j + (1 - beta) C, the sum of Eq. 11 with weights. Labels have the weight 1 -
      beta.

    Without a returned copy both are C. In both, beta scales the step on the labels: for a fair comparison try other
    learning rates for FedAvg as well.

    Args:
        beta: share of the teachers in the loss, in [0, 1].
        temperature: T, of the softened outputs, > 0.
        overseas_steps: optimizer steps of each copy at its host.
        max_teachers: the most returned copies that a vehicle uses, the first in order of arrival; the cost of its work
            assumes this number, however many come back.
        similarity: when EMD_ij is measured: ``visit``, once before a vehicle's first step, on a batch of its images;
            ``step``, at every local step on the step's images, with the student at that time. It has no gradient.
        solver: how the transport problems of EMD_ij are solved: ``pot``, POT's network simplex, one after the other on
            the host; ``interior-point``, all at once on the device; ``auto``, ``pot`` on the CPU, where it was measured
            to be faster, otherwise ``interior-point``. Similarities agree to 1e-9, at worst to 1e-6.
        server: ``rsu`` averages the uploads, and vehicles start from its model. With ``none`` there is no server: every
            silo has a model of its own, which stays with its data. Vehicles bring these models to their hosts for
            overseas training, so nothing more is sent, and nothing goes to the RSU. Before it trains, a vehicle mixes
            the models of its peers with its silo's by Metropolis-Hastings weights; this is our reading, since the paper
            does not describe it. An exchange then counts only if both copies came back. ``aggregation`` and
            ``clip_norm`` have no effect.
        variant: ``literal`` or ``labels-once``, the readings of Eq. 2 and 11 above; or ``guest-average``, which follows
            the released code and has neither similarity nor distillation: plain local training, then half the local
            model and half the mean of the models trained overseas. In that code a vehicle averages the guests that it
            trained, whose models differ; here all start from one model, so it averages its own copies that came back.
    """

    beta: Annotated[Share, TRAINS, DISTILS] = 0.5
    temperature: Annotated[Temperature, DISTILS] = 3.0
    overseas_steps: Steps = 4
    max_teachers: Annotated[int, Within(1, 100_000, "", "a round of more vehicles fits no memory")] = 2
    similarity: Annotated[Literal["visit", "step"], DISTILS] = "visit"
    solver: Annotated[Solver, TRAINS, DISTILS] = "auto"
    server: Literal["rsu", "none"] = "rsu"
    variant: Literal["literal", "labels-once", "guest-average"] = "literal"


class FedEFM(FederatedLearner):
    """Overseas training and distillation weighted by the earth mover's similarity; FedAvg if no copy came back.

    Before its own training, vehicle i sends a copy of its model to its neighbours. Neighbour j trains the copy on its
    images and sends it back; copies that return in time teach vehicle i while it trains on its own images. Each copy
    has its own random stream (round, host, guest) and a new optimizer, so it changes nothing for its host or other
    guests.

    If teachers start from the student's model, EMD_ij depends on the length of training overseas: .76 to 1.00 in the
    study ``fedefm-full-contact``, size small; without a server, where silos' models differ, .59 to .88. Round 0, and
    without a server a silo's first round, is plain local training: an untrained model does not teach.
    """

    name, task, Settings = "fedefm", "classification", FedEFMSettings
    paper = "Do et al. (2025): FedEFM: Federated Endovascular Foundation Model with Unseen Data, arXiv:2501.16992"
    payload = (
        "the model down, the model up (neither without a server); with every neighbour the model out and its trained "
        "copy back"
    )
    equations = (
        "overseas: theta_(i->j) = theta_i after steps of SGD on CE(Q, y) at silo j's images  (Eq. 1)",
        "similarity: EMD_ij = sum_pq (1 - c_pq) x_pq, c_pq = 1 - cos(u_p, v_q), x the optimal transport plan  (Eq. 3)",
        "marginals of x, which the paper does not give: DeepEMD's, relu(u_p . mean_q v_q) + 1e-3, scaled to total 1",
        "loss: L_i = sum_j relu(EMD_ij) [ beta T^2 CE(Q_Tj^T, Q_S^T) + (1 - beta) CE(Q, y) ]  (Eq. 2, variant literal)",
        "or: L_i = beta T^2 sum_j relu(EMD_ij) CE(Q_Tj^T, Q_S^T) + (1 - beta) CE(Q, y)  (Eq. 11, labels-once)",
        "without a returned copy: L_i = CE(Q, y)",
        "average: Theta = sum_i vartheta_i theta_i / sum_i vartheta_i, vartheta_i = 1 where the upload arrived, else 0",
        "without a server: theta_i <- sum_j A_ij theta_j before training, A_ij = 1 / (1 + max(d_i, d_j)) for peers",
    )
    defaults, scales = DEFAULTS, SCALES

    @staticmethod
    def parts(context: LearnerContext, settings: FedEFMSettings) -> Parts:
        """Return overseas training and distillation, with an RSU that averages or, without a server, silos' own models.

        InputError for an aggregation rule or several aggregators without a server.
        """
        task = ClassificationTask(context, settings)
        alone, emd = settings.server == "none", settings.variant != "guest-average"
        if alone:
            refuse_what_needs_averaging(context, FedEFM.name, "learning.server: none")
        initial = task.initial_state()
        silos = SiloStates()
        server: Server | OwnModels
        if alone:
            server = OwnModels(Models(initial, max_staleness=context.max_staleness), silos, mixing="before")
        else:
            server = averaging_server(context, settings, task, initial)
        _, accuracy, *others = task.series()
        model, largest_batch = payload_bytes(initial), min(settings.batch, max(task.silos.sizes))
        solver = SOLVERS[resolve_solver(settings.solver, task.device)]
        return Parts(
            task=task,
            local=Overseas(context, task, settings, server),
            server=server,
            silos=silos,
            series=(
                replace(LOSS, caption=TAUGHT_LOSS[settings.variant]) if emd else LOSS,
                *(OWN_ACCURACY if alone else (accuracy,)),
                *others,
                *((EMD, EMD_LEAST, EMD_LARGEST) if emd else ()),
                TEACHERS,
            ),
            # costs are constant over the rounds, so the exchange takes place in round 0 as well
            exchange=Exchange(
                before_training=True,
                mutual=alone,
                send_bytes=model,
                work_flop=task.training_flop(settings.overseas_steps * largest_batch),
                return_bytes=model,
            ),
            exchanged=EXCHANGED if emd else None,
            facts={
                "Overseas training": f"{settings.overseas_steps} steps at each neighbour, "
                f"at most {settings.max_teachers} returned copies used; none in round 0",
                "Server": "none: silos keep models of their own, mixed by Metropolis-Hastings weights with those of "
                "guests"
                if alone
                else "the RSU averages",
                "Variant": f"distillation weighted by the earth mover's similarity, measured once a "
                f"{settings.similarity}; Eq. 2 and 11 read as {settings.variant}; transport solved by {solver}"
                if emd
                else "half the local model and half the mean of the returned copies, after the released code",
            },
        )


class Overseas:
    """Train copies at the neighbours, compare them, and let them teach while the vehicle trains on its own images.

    Local steps at home and overseas minimise ``loss``, by default the task's cross-entropy CE(Q, y). In a step with
    teachers the batch has the logits as ``outputs``; a loss that does not use them passes the images a second time.
    """

    def __init__(
        self,
        context: LearnerContext,
        task: ClassificationTask,
        settings: FedEFMSettings,
        server: Server | OwnModels,
        loss: StepLoss | None = None,
    ) -> None:
        self._context, self._task, self._settings, self._server = context, task, settings, server
        self._emd = settings.variant != "guest-average"
        self._descend = make_step(loss or task.loss)
        self._plain = task.training(self._descend, shipped=loss is None)
        self._copies = Copies(self._plain.network)
        self._with_teachers = task.training(self._distil, shipped=loss is None)

    def cost(self, silo: int) -> Cost:
        """Return the work of local training plus the teachers' forward passes; bytes of models are not in it.

        The teachers label every step's batch; similarity ``visit`` passes one more through them and the vehicle's
        model. Transport plans are not counted.
        """
        settings, task = self._settings, self._task
        passes = settings.max_teachers * settings.steps
        if settings.similarity == "visit":
            passes += settings.max_teachers + 1
        looking_flop = float(passes * task.batch_size(silo) * task.flop) if self._emd else 0.0
        work_flop = task.training_flop(task.images_per_training(silo)) + looking_flop
        return Cost(download_bytes=0, upload_bytes=0, work_flop=work_flop)

    def train(self, starts: Sequence[Start]) -> list[Update]:
        """Train copies at neighbours, compare them, train vehicles with them; return an update per start, in order."""
        copies = self._train_copies([start.participant for start in starts])
        similarities: list[dict[str, float]] = [{} for _ in starts]
        if self._emd and self._settings.similarity == "visit":
            similarities = self._compare_copies(starts, copies)
            both = zip(copies, similarities, strict=True)
            copies = [{host: mine[host] for host in finite} for mine, finite in both]
        jobs = [self._job_with_teachers(*one) for one in zip(starts, copies, similarities, strict=True)]
        trained = self._task.engine.train(jobs)
        if self._emd and self._settings.similarity == "step":
            similarities = _average_over_steps(copies, trained)
        return [self._make_update(*one) for one in zip(starts, jobs, trained, copies, similarities, strict=True)]

    def figures(self, updates: Sequence[Update], folded: Folded, version: int) -> Mapping[str, float]:  # noqa: ARG002
        """Return means of loss, teachers and EMD, its range, and the task's metrics of uploads; {} without updates."""
        if not updates:
            return {}
        of_uploads = self._task.upload_figures([(update.state, update.participant.silo) for update in updates])
        values = [value for update in updates for value in update.exchanges.values()]
        emd = {"emd": sum(values) / len(values), "emd_least": min(values), "emd_largest": max(values)} if values else {}
        return {
            **mean_loss(updates),
            **self._task.round_figures(of_uploads, folded.weights),
            "teachers": sum(update.metrics["teachers"] for update in updates) / len(updates),
            **emd,
        }

    def _make_update(
        self, start: Start, job: TrainingJob, trained: Trained, copies: Mapping[str, State], emd: Mapping[str, float]
    ) -> Update:
        """Return an upload with ``emd`` as ``exchanges``; for ``guest-average`` half its model is the copies' mean."""
        if copies and not self._emd:
            shares = [0.5, *[0.5 / len(copies)] * len(copies)]
            trained = replace(trained, state=weighted_mean([trained.state, *copies.values()], shares))
        update = make_update(self._task, start.participant, job, trained)
        return replace(update, metrics={**update.metrics, "teachers": float(len(copies))}, exchanges=emd)

    def _train_copies(self, participants: Sequence[Participant]) -> list[dict[str, State]]:
        """Train copies at the first ``max_teachers`` peers; return those finite by host, {} for an untrained model."""
        pairs = [
            (i, peer)
            for i, participant in enumerate(participants)
            if self._server.trained(participant)  # an untrained model does not teach
            for peer in participant.peers[: self._settings.max_teachers]
        ]
        jobs = [
            TrainingJob(
                program=self._plain,
                training=self._training_at_host(participants[i], peer),
                base=self._server.carried(participants[i]),
            )
            for i, peer in pairs
        ]
        copies: list[dict[str, State]] = [{} for _ in participants]
        for (i, peer), trained in zip(pairs, self._task.engine.train(jobs), strict=True):
            if trained.finite:
                copies[i][peer.vehicle_id] = trained.state
        return copies

    def _training_at_host(self, guest: Participant, host: Peer) -> LocalTraining:
        """Describe the training of the guest's copy on images of the host's silo, blurred by the host's speed."""
        return self._task.local_training(
            host.silo,
            speed_mps=host.speed_mps,
            learning_rate=self._task.learning_rate(guest.passed),
            seed=self._context.streams.integer("overseas", *guest.started, host.vehicle_id, guest.vehicle_id),
            steps=self._settings.overseas_steps,
            earlier=host.earlier,
            until_s=guest.start_s + guest.download_s,
        )

    def _compare_copies(self, starts: Sequence[Start], copies: Sequence[Mapping[str, State]]) -> list[dict[str, float]]:
        """Return each start's EMD_ij (1 for equal models) by host, only finite ones; {} without copies."""
        found: list[dict[str, float]] = [{} for _ in starts]
        taught = [i for i, mine in enumerate(copies) if mine]
        if not taught:
            return found
        calls = [partial(self._transport_problem, starts[i], copies[i]) for i in taught]
        problems = run_each(calls, self._task.device)
        for i, values in zip(taught, dense_similarities(problems, self._settings.solver), strict=True):
            found[i] = {host: value for host, value in zip(copies[i], values, strict=True) if math.isfinite(value)}
        return found

    def _transport_problem(self, start: Start, copies: Mapping[str, State]) -> tuple[Tensor, Tensor, Tensor]:
        """Return costs and marginals of transport between a start's model and each copy, on one batch of its images."""
        who = start.participant
        seed = self._context.streams.integer("similarity", *who.started, who.vehicle_id)
        generator = torch.Generator().manual_seed(seed)
        drawn = draw_first(self._plain, self._task.local_training_of(who), generator)
        images = self._plain.prepare(drawn)["images"]
        seen = []
        with self._copies.borrow() as network, torch.no_grad():
            network.train()  # normalises with the batch, as a student does: equal parameters give equal features
            for state in (start.base, *copies.values()):
                copy_into(network, to_device(state, self._task.device))
                seen.append(network(images, with_dense=True)[0])
        return dense_problem(seen[0], torch.stack(seen[1:]))

    def _job_with_teachers(self, start: Start, copies: Mapping[str, State], emd: Mapping[str, float]) -> TrainingJob:
        """Return training taught by ``copies`` with similarities ``emd``; plain without any or if ``guest-average``."""
        training = self._task.local_training_of(start.participant)
        plain = TrainingJob(program=self._plain, training=training, base=start.base, mixed=start.mixed_as())
        if not (copies and self._emd):
            return plain
        given: dict[str, Tensor] = {}
        if self._settings.similarity == "visit":
            values = torch.tensor([emd[host] for host in copies], dtype=torch.float64)
            given = to_device({"similarities": values}, self._task.device)
        for i, state in enumerate(copies.values()):
            given |= add_prefix(f"{TEACHER}{i}.", state)
        return replace(plain, program=self._with_teachers, given=given)

    def _distil(self, model: nn.Module, batch: Tensors, base: Tensors) -> tuple[Tensor, Tensors]:
        """Return the loss of a step with J teachers, and its metrics ``loss`` and ``similarities``, shape (J,)."""
        images, settings = batch["images"], self._settings
        count = len({name.removeprefix(TEACHER).partition(".")[0] for name in batch if name.startswith(TEACHER)})
        teachers = [remove_prefix(f"{TEACHER}{i}.", batch) for i in range(count)]
        dense, logits = model(images, with_dense=True)
        with torch.no_grad():
            seen = [call_with_state(model, teacher, images, with_dense=True) for teacher in teachers]
        taught = torch.stack([of_teacher for _, of_teacher in seen])
        if settings.similarity == "visit":
            similarities = batch["similarities"]
        else:
            others = torch.stack([of_teacher for of_teacher, _ in seen])
            similarities = dense_similarity(dense.detach(), others, settings.solver)
        weights = similarities.to(logits.dtype).relu()
        labels = (1 - settings.beta) * self._descend(model, {**batch, "outputs": logits}, base)[0]
        if settings.variant == "literal":
            labels = weights.sum() * labels
        loss = labels + settings.beta * distillation_loss(logits, taught, weights, temperature=settings.temperature)
        return loss, {"loss": loss, "similarities": similarities}


def _average_over_steps(copies: Sequence[Mapping[str, State]], trained: Sequence[Trained]) -> list[dict[str, float]]:
    """Return each vehicle's mean similarity over its steps, by host; {} for a vehicle without copies."""
    taught = [one.figures["similarities"] for mine, one in zip(copies, trained, strict=True) if mine]
    numbers = iter(torch.cat([rows.double().mean(dim=0) for rows in taught]).tolist() if taught else [])
    return [{host: next(numbers) for host in mine} for mine in copies]
