"""What every learner on a task does alike, whoever averages: it is built, trains, shows images, and is saved."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, signature
from typing import Any, ClassVar, Protocol, Self, final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from learners.engines.programs import Trained, TrainingJob
from learners.state.global_model import GlobalModel
from learners.tasks.task import ENGINE, Task
from vnetsim.errors import InputError
from vnetsim.learning import Aggregation, Cost, Description, LearnerContext, Participant, Series, Update
from vnetsim.plugins.checked import place_of

SILO = "silo."
"""Beginning of the names of what belongs to silos in a learner's state."""
BASE = "base."
"""Beginning of the names of the model that a vehicle downloaded in ``TrainingJob.given``, for a loss that compares."""


class OfSilos(Protocol):
    """What is kept for the silos: ``silo.I.*``."""

    def state_dict(self) -> Mapping[str, Any]:
        """Return the tensors."""
        ...

    def load_state_dict(self, tensors: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        ...


class TaskLearner(ABC):
    """A learner composed of a task, the models of the rounds, and what silos keep; see ``vnetsim.learning.Learner``.

    A subclass sets ``_task`` and ``_global`` when it is built, and ``_silos`` where silos keep something.
    """

    name: ClassVar[str]
    task: ClassVar[str]
    paper: ClassVar[str]
    Settings: ClassVar[type]

    _task: Task
    _global: GlobalModel
    _silos: OfSilos | None = None

    @abstractmethod
    def __init__(self, context: LearnerContext, settings: Any) -> None: ...

    @classmethod
    @final
    def create(cls, context: LearnerContext, settings: Any) -> Self:
        """Build the learner; see ``vnetsim.learning.Learner``."""
        return cls(context, settings)

    @abstractmethod
    def describe(self) -> Description:
        """Return network, data distribution and what else the record says."""

    @abstractmethod
    def series(self) -> Sequence[Series]:
        """Return the metrics of ``aggregate`` and ``evaluate``."""

    @abstractmethod
    def cost(self, silo: int) -> Cost:
        """Return payload and work of a participation; see ``vnetsim.learning.Learner``."""

    @abstractmethod
    def train(self, participants: Sequence[Participant]) -> Sequence[Update]:
        """Train every participant; see ``vnetsim.learning.Learner``."""

    @abstractmethod
    def aggregate(self, updates: Sequence[Update]) -> Aggregation:
        """Fold the updates and end the round; see ``vnetsim.learning.Learner``."""

    @abstractmethod
    def evaluate(self, *, final: bool) -> Mapping[str, float]:
        """Return metrics of the current model; see ``vnetsim.learning.Learner``."""

    @final
    def state_dict(self) -> dict[str, Any]:
        """Return the models and the round, what silos keep, and what the engine was chosen by.

        Every random draw follows from seed, round and vehicle.
        """
        of_silos = {} if self._silos is None else self._silos.state_dict()
        return {**self._global.state_dict(), **of_silos, **self._task.engine_state()}

    @final
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        of_silos = {name: tensor for name, tensor in state.items() if self._silos is not None and name.startswith(SILO)}
        of_engine = {name: tensor for name, tensor in state.items() if name.startswith(ENGINE)}
        others = state.keys() - of_silos.keys() - of_engine.keys()
        self._global.load_state_dict({name: tensor for name, tensor in state.items() if name in others})
        self._task.load_engine_state(of_engine)
        if self._silos is not None:
            self._silos.load_state_dict(of_silos)

    @final
    def sample_images(self, kernels_px: Sequence[float], count: int) -> NDArray[np.uint8]:
        """Return test images blurred with each kernel length, shape (len(kernels_px), count, H, W, C)."""
        return self._task.sample_images(kernels_px, count)

    @final
    def _update(self, participant: Participant, job: TrainingJob, trained: Trained) -> Update:
        """Return an upload of the trained model, as far as the task sends it."""
        return Update(
            participant=participant,
            state=self._task.sent(trained.state),
            loss=trained.mean("loss"),
            finite=trained.finite,
            metrics={"kernel_px": job.training.kernel_px},
        )


def scalar(found: Any, loss: Callable[..., Tensor]) -> Tensor:
    """Return what a method's loss gave, once it is one number that gradients follow from.

    Raises:
        TypeError: saying what it is, and where the user's loss stands.
    """
    if isinstance(found, Tensor) and found.ndim == 0:
        return found
    what = f"a tensor of shape {tuple(found.shape)}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
    raise TypeError(
        f"loss returned {what}, expected a tensor of shape (), such as the mean over the batch, and no number "
        f"taken out of it by .item().{place_of(loss)}"
    )


def takes(loss: Callable[..., Tensor], parameter: str) -> bool:
    """Return whether a loss takes what a method offers by name, besides the four arguments of every loss."""
    parameters = signature(loss).parameters
    return parameter in parameters or any(one.kind is Parameter.VAR_KEYWORD for one in parameters.values())


def require_option(learner: Any, parameter: str, setting: str, alternative: str) -> None:
    """Refuse a setting that asks for what a method's own loss does not take.

    Args:
        learner: whose loss it is.
        parameter: of the loss.
        setting: and its value, for the message.
        alternative: what to do.

    Raises:
        InputError: naming both.
    """
    if not takes(learner.loss, parameter):
        raise InputError(f"{setting}: the loss of '{learner.name}' takes no '{parameter}'; {alternative}.")


def require_hook_is_used(learner: TaskLearner, base: type, hook: str, setting: str, why: str) -> None:
    """Refuse a method's own hook where nothing would call it.

    Args:
        learner: the method.
        base: whose hook it is.
        hook: its name.
        setting: under which it is not called.
        why: it is not.

    Raises:
        InputError: the method has a hook of its own.
    """
    if getattr(type(learner), hook) is not getattr(base, hook):
        raise InputError(f"{setting}: {why}, so '{hook}' of {type(learner).__name__} would never be called; remove it.")
