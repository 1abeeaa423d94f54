"""The server of most methods: an RSU that averages uploads by the run's aggregation rule, and their weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from learners.engines.programs import State
from learners.mathematics.weights import image_weights
from learners.state.models import Models
from learners.state.privacy import PrivateMean
from learners.state.rules import rule_of
from learners.state.server import Server, WeightFunction, weigh_equally
from learners.tasks.task import Task
from vnetsim.errors import InputError
from vnetsim.errors.bounds import TRAINS
from vnetsim.learning import LearnerContext


@dataclass(frozen=True, kw_only=True)
class WeightSettings:
    """How much an upload weighs in the average; a base class of a learner's settings.

    Args:
        weights: ``images``: n_k / n, the share of its silo in the images of the round's uploads (McMahan et al. 2017,
            Algorithm 1); ``equal``: 1 / N.
    """

    weights: Annotated[Literal["images", "equal"], TRAINS] = "images"


def weights_of(task: Task, settings: Any) -> WeightFunction:
    """Return the weight function of ``settings.weights``: 1 / N, also if it is missing, or silos' shares of images."""
    if getattr(settings, "weights", "equal") == "equal":
        return weigh_equally
    return lambda participants: image_weights([task.silos.size(one.silo) for one in participants])


def refuse_several_servers(context: LearnerContext, state: str) -> None:
    """Raise InputError for several aggregators; ``state`` says in the message what a server keeps for all vehicles."""
    if len(context.aggregators) > 1:
        raise InputError(
            f"topology.kind: {state} belongs to one server, and with several aggregators each would have a part of it; "
            "leave topology.kind out, or take another learner."
        )


def averaging_server(
    context: LearnerContext,
    settings: Any,
    task: Task,
    initial: State,
    *,
    weights: WeightFunction | None = None,
    not_of_model: tuple[str, ...] = (),
    **more: Any,
) -> Server:
    """Return an RSU that averages by the run's aggregation rule; see ``Server``.

    Args:
        context: has the rule, the aggregators, the staleness and the selection policy's figure.
        settings: the learner's, a subclass of ``AveragingSettings``.
        task: has the network, the silos' sizes, and what is sent of a model.
        initial: the first state; not copied.
        weights: returns the weight of each upload; by default see ``weights_of``.
        not_of_model: prefixes of tensors in a state that do not belong to the model; without ``sent`` each prefix
            counts as a copy of the model, down and up.
        more: arguments of ``Server``; they replace ``parameters`` and ``sent``.

    Raises:
        InputError: ``learning.dp`` is set, and ``beside`` or ``step`` makes more of the uploads than a mean; or as
            ``Server``.
        ValueError: ``initial`` has a tensor that is neither the network's nor of ``not_of_model``.
    """
    unknown = [name for name in initial.keys() - task.network.state_dict().keys() if not name.startswith(not_of_model)]
    if unknown:
        raise ValueError(f"'{min(unknown)}' is no tensor of the network: list its prefix in not_of_model")
    private = None
    if settings.dp.clip:
        if {"beside", "step"} & more.keys():
            raise InputError(
                f"learning.dp: only the mean of models is private, and the server of '{context.experiment.learner}' "
                "makes more of the uploads; leave it out, or take another learner."
            )
        private = PrivateMean(settings=settings.dp, uploads=context.experiment.round.quorum, streams=context.streams)

    def sent(state: State) -> State:
        """Return the tensors sent of the model, and a copy for each prefix, so that another model can be timed."""
        model = task.sent({name: tensor for name, tensor in state.items() if not name.startswith(not_of_model)})
        return {**model, **{f"{prefix}{name}": one for prefix in not_of_model for name, one in model.items()}}

    return Server(
        Models(
            initial, max_staleness=context.max_staleness, not_of_model=not_of_model, aggregators=context.aggregators
        ),
        settings,
        rule_of(context),
        weigh=weights or weights_of(task, settings),
        figure=context.figure,
        private=private,
        travel=lambda who: task.learning_rate(who.passed) * who.steps_of(task.settings.steps),
        **{"parameters": [name for name, _ in task.network.named_parameters()], "sent": sent, **more},
    )
