"""Base class of a user's own task: images, network, loss, and metrics.

``OwnTask`` adds the rest: silos, motion blur, local SGD on any engine, evaluation, cost, record and resumption. With
``learners.federated.federated_averaging`` it is a whole learner; ``scenarios/plugins/rotation.py`` is one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from learners.data.moving import to_device
from learners.encoders import seed_and_build
from learners.engines.programs import State, Tensors
from learners.tasks.evaluation import forward_all
from learners.tasks.settings import Momentum, TrainingSettings
from learners.tasks.task import LEARNING_RATE, Task, training_loss
from vnetsim.errors import InputError
from vnetsim.learning import Description, LearnerContext, Series

LOSS = training_loss("Of the task")


@dataclass(frozen=True, kw_only=True)
class OwnTaskSettings(TrainingSettings):
    """Local training by SGD, and averaging; a method adds its own settings.

    Args:
        momentum: of SGD, in [0, 1); each local training starts a new optimizer.
    """

    momentum: Momentum = 0.9


@dataclass(frozen=True, kw_only=True, eq=False)
class Examples:
    """Images in silos, and a target for each.

    Args:
        train: training images, uint8, shape (N, C, H, W).
        targets: their targets, of any type, shape (N, ...).
        test: test images that no silo has, uint8, shape (M, C, H, W).
        test_targets: their targets, shape (M, ...).
        silos: the rows of ``train`` in each silo, ``silos.count`` arrays of at least 2 each.
        labels: class of each training image for the table ``silos``, int64, shape (N,); None without classes.
        class_names: label texts; empty without classes.
    """

    train: Tensor
    targets: Tensor
    test: Tensor
    test_targets: Tensor
    silos: Sequence[NDArray[np.int64]]
    labels: Tensor | None = None
    class_names: tuple[str, ...] = ()


class OwnTask(Task):
    """Base class of a user's own task; a subclass defines ``metrics``, ``data``, ``model``, ``loss`` and ``measure``.

    Class attributes:
        metrics: series for the results of ``measure``, in record and report.

    Raises:
        InputError: no metrics, images that are not uint8 of shape (N, C, H, W), not one target each, a number of silos
            other than ``silos.count``, rows that do not exist, or a silo with fewer than two images.
    """

    metrics: ClassVar[tuple[Series, ...]]

    def __init__(self, context: LearnerContext, settings: Any) -> None:
        examples = self.data(context)
        self._check(examples, context.experiment.silos.count)
        seed = context.streams.integer("initial model")
        network = seed_and_build(lambda: self.model(examples), seed=seed)
        super().__init__(context, settings, examples, examples.silos, network)
        self._targets = examples.targets.to(self.device)
        self._test, self._test_targets = examples.test.to(self.device), examples.test_targets.to(self.device)

    def _check(self, examples: Examples, silos: int) -> None:
        """Raise InputError without metrics, or for examples that a run of ``silos`` silos cannot use."""

        def refuse(what: str) -> NoReturn:
            """Raise InputError with the task's name and ``what`` is wrong."""
            raise InputError(f"task {type(self).__name__}: {what}.")

        if not getattr(self, "metrics", ()):
            refuse("it lacks metrics, a vnetsim.learning.Series for each number that measure returns")
        for part, images, targets in (
            ("train", examples.train, examples.targets),
            ("test", examples.test, examples.test_targets),
        ):
            if images.dtype != torch.uint8 or images.ndim != 4:
                refuse(f"{part} is {images.dtype} of shape {tuple(images.shape)}, not torch.uint8 of (N, C, H, W)")
            if len(images) != len(targets):
                refuse(f"{len(targets)} targets for the {len(images)} images of {part}")
        if len(examples.silos) != silos:
            refuse(f"images for {len(examples.silos)} silos; silos.count is {silos}")
        rows = np.concatenate([*examples.silos])
        if len(rows) and not 0 <= rows.min() <= rows.max() < len(examples.train):
            refuse(f"silos hold rows {rows.min()} to {rows.max()} of training images 0 to {len(examples.train) - 1}")

    @abstractmethod
    def data(self, context: LearnerContext) -> Examples:
        """Return the images and their targets; ``learners.tasks.task.labelled_silos`` returns those of ``data.name``.

        Draw random numbers from ``context.streams.generator("a name of your own")``.
        """

    @abstractmethod
    def model(self, examples: Examples) -> nn.Module:
        """Return a new network for float images in [0, 1], (N, C, H, W); global generators are seeded beforehand."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Tensors, base: Tensors) -> Tensor:
        """Return the loss of a local step; see ``learners.tasks.task.StepLoss``.

        The batch has ``images`` blurred by the vehicle's motion, in [0, 1], shape (B, C, H, W), and their ``targets``,
        shape (B, ...).
        """

    @abstractmethod
    def measure(self, outputs: Tensor, targets: Tensor) -> Mapping[str, float]:
        """Return values of ``metrics`` by name, given outputs and targets of all test images, both (M, ...)."""

    @final
    def prepare(self, images: Tensor, drawn: Tensors) -> Tensors:
        """Return ``images`` in [0, 1], blurred, shape (B, C, H, W), and their ``targets``, shape (B, ...)."""
        return {"images": images, "targets": self._targets[to_device({"rows": drawn["rows"]}, self.device)["rows"]]}

    @final
    @torch.inference_mode()
    def evaluate(self, state: State, *, final: bool) -> Mapping[str, float]:  # noqa: ARG002  all is due every time
        """Return ``measure`` of a model on the test images; InputError for a name that ``metrics`` lacks."""
        self.network.load_state_dict(state)
        self.network.eval()
        found = self.measure(forward_all(self.network, self._test), self._test_targets)
        unknown = ", ".join(sorted(found.keys() - {one.name for one in self.metrics}))
        if unknown:
            named = ", ".join(one.name for one in self.metrics)
            raise InputError(
                f"task {type(self).__name__}: measure returned {unknown}, and metrics names {named} alone."
            )
        return found

    @final
    def series(self) -> Sequence[Series]:
        """Return loss, ``metrics`` and learning rate."""
        return (LOSS, *self.metrics, LEARNING_RATE)

    @final
    def describe(self, facts: Mapping[str, str]) -> Description:
        """Return network, data distribution and facts for the run's record; the learner's own ``facts`` come last."""
        return self.described(
            facts,
            encoder=type(self.network).__name__,
            returns="what the task's loss and measure make of it",
            classes=self._data.class_names,
            labels=self._data.labels,
        )
