"""The vehicles' part of a round: where their training starts, local steps on a loss, and what they upload."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor, nn

from learners.data.moving import to_device
from learners.engines.programs import Loss, State, Tensors, Trained, TrainingJob, add_prefix, remove_prefix, to_host
from learners.mathematics.robust import clip, used_weights
from learners.mathematics.weights import RunningMean
from learners.state.server import Folded, Server
from learners.tasks.task import StepLoss, Task
from vnetsim.learning import Cost, Participant, Update
from vnetsim.plugins import place_of

OPTIMIZER = "optimizer."
HELD_BYTES = 2**31
"""If the models of a round take more memory than this, each is averaged as soon as it is trained, and dropped."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Start:
    """Where a participant's training starts.

    Args:
        participant: the participant.
        base: the model it starts from, tensors by name.
        own: ``Update.kept`` of the silo's last local training, on the CPU; empty before the first.
        mixed: models that it mixes in during training, each after a share of its steps; see ``HandoverEffects``.
    """

    participant: Participant
    base: State
    own: State
    mixed: Sequence[tuple[float, State]]

    def mixed_as(self, prefix: str = "") -> Sequence[tuple[float, State]]:
        """Return ``mixed``, each tensor under its name and again with ``prefix`` before it, as nested networks have."""
        return [(share, {**state, **add_prefix(prefix, state)}) for share, state in self.mixed]


class Local(Protocol):
    """The local training of the vehicles of a round."""

    def cost(self, silo: int) -> Cost:
        """Return the work of a local training, its steps, and the bytes sent in addition to the model."""
        ...

    def train(self, starts: Sequence[Start]) -> list[Update]:
        """Return an update for each start, in order; see ``vnetsim.learning.Learner``."""
        ...

    def figures(self, updates: Sequence[Update], folded: Folded, version: int) -> Mapping[str, float]:
        """Return metrics of a round by name; the caller drops those that ``Parts.series`` does not declare.

        ``updates`` are the finite ones, perhaps none; ``version`` is the model's at the start of the round.
        """
        ...


class LocalSteps:
    """Local training by steps of the task's optimizer on a loss.

    Args:
        task: supplies the network and the images.
        loss: what a step minimises; the task's loss by default.
        server: averages uploads on arrival if a round is too large for memory; None never does, nor does any with
            ``after``.
        figures: returns a round's metrics from its updates; by default the mean loss and the task's metrics of uploads.
        given: returns further tensors of every batch of a local training, with names of their own.
        after: returns, from its start and the trained state, tensors that are uploaded besides the model, with names
            that it lacks, and tensors that the silo keeps for its next one, as ``Start.own``. In both functions
            ``Start.own`` is on the device of ``Start.base``.
        forward_passes: of each image of a step, besides the training's own; they count as work.
    """

    def __init__(
        self,
        task: Task,
        loss: StepLoss | None = None,
        *,
        server: Server | None = None,
        figures: Callable[[Sequence[Update]], Mapping[str, float]] | None = None,
        given: Callable[[Start], Tensors] = lambda _: {},
        after: Callable[[Start, State], tuple[State, State]] | None = None,
        forward_passes: int = 0,
    ) -> None:
        self._task, self._server, self._figures = task, server, figures
        self._given, self._after, self._forward_passes = given, after, forward_passes
        self._program = task.training(make_step(loss or task.loss), shipped=loss is None)

    def cost(self, silo: int) -> Cost:
        """Return the work of all steps, forward and backward, and their number; no bytes."""
        task = self._task
        images = task.images_per_training(silo)
        work_flop = task.training_flop(images * task.passes) + float(images * self._forward_passes * task.flop)
        return Cost(download_bytes=0, upload_bytes=0, work_flop=work_flop, steps=task.settings.steps)

    def train(self, starts: Sequence[Start]) -> list[Update]:
        """Train from each start and return the updates, in order.

        If the round's models exceed 2 GiB, each is averaged as soon as it is trained: the updates have no
        ``state``, and ``server.averaged`` is set to their mean. This needs a server with the aggregation ``mean`` that
        does not need single uploads, no ``after``, and handovers that carry models, not changes.
        """
        starts = [replace(one, own=to_device(one.own, next(iter(one.base.values())).device)) for one in starts]
        jobs = [self._make_job(start) for start in starts]
        server = self._server
        # a change is added to the aggregator's model, so it cannot be averaged here
        whole = all(start.participant.handover.carried == "model" for start in starts)
        one_by_one = server and not (server.needs_uploads or self._after) and server.settings.aggregation == "mean"
        if server and whole and one_by_one and _estimate_bytes(jobs) > HELD_BYTES:
            return self._average_on_arrival(server, [start.participant for start in starts], jobs)
        trained = self._task.engine.train(jobs)
        if self._task.models_on_host:
            trained = to_host(trained)
        ended = [self._call_after(start, one.state) for start, one in zip(starts, trained, strict=True)]
        kept = copy_to_host([own for _, own in ended])
        return [
            self._make_update(start, job, one, sent, own)
            for start, job, one, (sent, _), own in zip(starts, jobs, trained, ended, kept, strict=True)
        ]

    def figures(self, updates: Sequence[Update], folded: Folded, version: int) -> Mapping[str, float]:  # noqa: ARG002
        """Return what the argument ``figures`` does, or else mean loss and the task's metrics; {} without updates."""
        if not updates:
            return {}
        if self._figures is not None:
            return self._figures(updates)
        of_uploads: Sequence[Mapping[str, float]] = [one.metrics for one in updates]
        if all(one.state for one in updates):  # otherwise averaged on arrival, and their figures are in metrics
            names = self._task.network.state_dict().keys()
            models = [({n: t for n, t in one.state.items() if n in names}, one.participant.silo) for one in updates]
            of_uploads = self._task.upload_figures(models)
        return {**mean_loss(updates), **self._task.round_figures(of_uploads, folded.weights)}

    def _make_job(self, start: Start) -> TrainingJob:
        """Return the training of a start; its optimizer continues from the state that the silo kept, or is new."""
        training, optimizer = self._task.local_training_of(start.participant), remove_prefix(OPTIMIZER, start.own)
        return TrainingJob(
            program=self._program,
            training=training,
            base={name: start.base[name] for name in self._task.network.state_dict()},
            given=to_device(self._given(start), self._task.device),
            optimizer=optimizer,
            mixed=start.mixed_as(),
        )

    def _call_after(self, start: Start, trained: State) -> tuple[State, State]:
        """Return (tensors to send, tensors to keep) of ``after``, empty without it; TypeError if they are not valid."""
        if self._after is None:
            return {}, {}
        made = self._after(start, trained)
        if not (isinstance(made, tuple) and len(made) == 2 and all(isinstance(one, Mapping) for one in made)):
            problem = "something else than two mappings, of tensors to send and of tensors that the silo keeps"
        elif both := sorted(made[0].keys() & trained.keys()):
            problem = f"'{both[0]}' to send, which is a tensor of the model; take another name"
        else:
            return made
        raise TypeError(f"after returned {problem}.{place_of(self._after)}")

    def _make_update(self, start: Start, job: TrainingJob, trained: Trained, sent: State, own: State) -> Update:
        """Return an upload of model and ``sent``; ``kept`` is ``own``, and what the task keeps of the optimizer."""
        kept = {**add_prefix(OPTIMIZER, self._task.kept(trained.optimizer)), **own}
        update = make_update(self._task, start.participant, job, trained)
        return replace(update, state={**update.state, **sent}, kept=kept)

    def _average_on_arrival(
        self, server: Server, participants: Sequence[Participant], jobs: Sequence[TrainingJob]
    ) -> list[Update]:
        """Train a few jobs at a time; return updates without states, and set ``server.averaged`` to their mean."""
        # the mean has the bits of combine over all finite uploads; weights depend on which uploads are finite, so if
        # some are not, the others are trained a second time
        task, settings = self._task, server.settings
        size = max(1, HELD_BYTES * len(jobs) // _estimate_bytes(jobs))
        updates: list[Update] = []
        places: Sequence[int] = range(len(jobs))
        while True:
            weights = used_weights(server.divided([participants[i] for i in places])[0], settings)
            mean, finite = RunningMean(), list[bool]()
            for start in range(0, len(places), size):
                part = places[start : start + size]
                trained = zip(part, task.engine.train([jobs[i] for i in part]), strict=True)
                uploads = [make_update(task, participants[i], jobs[i], one) for i, one in trained]
                for i, update in zip(part, uploads, strict=True):
                    if update.finite:
                        mean.add(clip(update.state, jobs[i].base, settings), float(weights[len(finite)]))
                    finite.append(update.finite)
                if len(updates) < len(jobs):
                    updates += self._drop_states(server, uploads)
            if all(finite):
                server.averaged = [participants[i] for i in places], mean.result()
                return updates
            places = [i for i, fine in zip(places, finite, strict=True) if fine]

    def _drop_states(self, server: Server, updates: Sequence[Update]) -> list[Update]:
        """Return the updates without their states, after adding ``figure`` and metrics that are made of the states."""
        fine = [(one.state, one.participant.silo) for one in updates if one.finite]
        figures = iter(self._task.upload_figures(fine))
        return [
            replace(
                one,
                state={},
                metrics={**one.metrics, **next(figures)} if one.finite else one.metrics,
                figure=server.figure_of(one.participant, one.state) if one.finite else None,
            )
            for one in updates
        ]


def _estimate_bytes(jobs: Sequence[TrainingJob]) -> int:
    """Estimate the bytes of the models of all jobs by the first one's; at least 1."""
    return max(1, len(jobs) * sum(tensor.nbytes for job in jobs[:1] for tensor in job.base.values()))


def copy_to_host(each: Sequence[State]) -> list[dict[str, Tensor]]:
    """Return the tensors of each state on the CPU, copied unless all are there; waits for the device only once."""
    named = {f"{i}.{name}": tensor for i, one in enumerate(each) for name, tensor in one.items()}
    if all(tensor.device.type == "cpu" for tensor in named.values()):
        return [dict(one) for one in each]
    here = to_device(named, torch.device("cpu"))
    # clones: a silo would otherwise hold the tensors of the whole round in memory
    return [{name: here[f"{i}.{name}"].clone() for name in one} for i, one in enumerate(each)]


def make_step(loss: StepLoss) -> Loss:
    """Wrap a loss as a training step, which returns the value to minimise and the metric ``loss``.

    The step raises TypeError if the loss returns neither a tensor of shape () nor two (to minimise, to report), or if
    the one to minimise has no gradient.
    """

    def step(model: nn.Module, batch: Tensors, base: Tensors) -> tuple[Tensor, Tensors]:
        """Return the value to minimise, and the metric ``loss``, which is the same value unless the loss is a pair."""
        found = loss(model, batch, base)
        descended, reported = found if isinstance(found, tuple) and len(found) == 2 else (found, found)
        if all(isinstance(one, Tensor) and one.ndim == 0 for one in (descended, reported)):
            if not descended.requires_grad:
                raise TypeError(
                    "loss returned a loss to descend that does not depend on the model's parameters; of two, the first "
                    f"is descended and the second reported.{place_of(loss)}"
                )
            return descended, {"loss": reported}
        found = reported if isinstance(descended, Tensor) and descended.ndim == 0 else descended
        what = f"a tensor of shape {tuple(found.shape)}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
        raise TypeError(
            f"loss returned {what}, expected a tensor of shape (), such as the mean over the batch, and no number "
            f"taken out of it by .item().{place_of(loss)}"
        )

    return step


def make_update(task: Task, participant: Participant, job: TrainingJob, trained: Trained) -> Update:
    """Return an upload of the trained tensors that the task sends, with the metric ``kernel_px``; ``kept`` is empty."""
    return Update(
        participant=participant,
        state=task.sent(trained.state),
        loss=trained.means["loss"],
        finite=trained.finite,
        metrics={"kernel_px": job.training.kernel_px},
    )


def mean_loss(updates: Sequence[Update]) -> dict[str, float]:
    """Return ``loss``, the mean over a round's updates; empty without updates."""
    return {"loss": sum(update.loss for update in updates) / len(updates)} if updates else {}
