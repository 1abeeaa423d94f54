"""The task that contrastive learners share: labelled images in silos, two views, an encoder and its evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from learners.data.augment import apply_view_one, apply_view_two, draw_view_one, draw_view_two, without_view
from learners.encoders import create_encoder, parameter_count
from learners.engines.optimizers import Optimizer, Rate
from learners.engines.programs import Loss, Program, Tensors, prefixed, unprefixed
from learners.mathematics.aggregation import Weights
from learners.mathematics.losses import dual_temperature_loss
from learners.state.global_model import State
from learners.tasks.contrastive_settings import (
    KNN_TEMPERATURE,
    SERIES,
    ContrastiveSettings,
    TaskSettings,
    neighbours_of,
    reported,
)
from learners.tasks.evaluation import Evaluator
from learners.tasks.task import AveragedTask, Task, labelled_silos, payload_bytes
from vnetsim.learning import Description, LearnerContext, Network, Series

FIRST, SECOND = "first.", "second."


class ContrastiveTask(Task):
    """Everything of a contrastive learner but its loss and what it does with the uploads.

    Args:
        context: what the simulator gives every learner.
        settings: encoder, local training and evaluation.

    Attributes:
        evaluator: measures a state of the encoder.
    """

    def __init__(self, context: LearnerContext, settings: TaskSettings) -> None:
        self._settings = settings
        self._data, indices = labelled_silos(context)
        encoder = create_encoder(
            settings.encoder, seed=context.streams.integer("initial model"), settings=context.encoder
        )
        super().__init__(
            context, settings, train=self._data.train, test=self._data.test, indices=indices, network=encoder
        )
        bank = context.streams.generator("bank").permutation(len(self._data.train))[: settings.bank or None]
        self._bank_size, self._neighbours = len(bank), neighbours_of(len(bank))
        self.evaluator = Evaluator(
            encoder,
            # what lies on the device is not copied there again
            pool=self.silos.pool if self.silos.resident else self._data.train[bank].to(self.device),
            bank=(torch.from_numpy(bank) if self.silos.resident else torch.arange(len(bank))).to(self.device),
            bank_labels=self._data.train_labels[bank].to(self.device),
            test=self._data.test.to(self.device),
            test_labels=self._data.test_labels.to(self.device),
            classes=len(self._data.class_names),
            mean=self._data.mean,
            std=self._data.std,
            recalibrate=settings.batchnorm == "local",
        )

    def contrast(
        self,
        loss: Loss,
        *,
        network: nn.Module | None = None,
        optimizer: Callable[[Mapping[str, Tensor], Rate, Tensors], Optimizer] | None = None,
        plain: bool = False,
    ) -> Program:
        """Return the local training on two random views of each image.

        Args:
            loss: of a step; its batch holds the views ``first`` and ``second``, normalised, shape (B, C, H, W).
            network: what is trained; the encoder by default.
            optimizer: SGD by default.
            plain: whether the batch also holds the images themselves, normalised, under ``plain``.
        """
        mean, std, size = self._data.mean, self._data.std, self.image_shape[1:]

        def draw(count: int, generator: torch.Generator) -> Tensors:
            first = draw_view_one(count, size, generator)
            return {**prefixed(FIRST, first), **prefixed(SECOND, draw_view_two(count, size, generator))}

        def prepare(images: Tensor, drawn: Tensors) -> Tensors:
            views = {
                "first": apply_view_one(images, unprefixed(FIRST, drawn), mean, std),
                "second": apply_view_two(images, unprefixed(SECOND, drawn), mean, std),
            }
            return {**views, "plain": without_view(images, mean, std)} if plain else views

        optimizer = optimizer or self.sgd(self._settings.momentum)
        return self.program(loss, draw=draw, prepare=prepare, optimizer=optimizer, network=network)

    def sent(self, state: State) -> dict[str, Tensor]:
        """Return the part of a model's state that crosses the radio link."""
        if self._settings.batchnorm == "average":
            return dict(state)
        statistics = ("running_mean", "running_var", "num_batches_tracked")
        return {name: tensor for name, tensor in state.items() if not name.endswith(statistics)}

    def evaluate(self, state: State, *, final: bool) -> Mapping[str, float]:
        """Return kNN accuracy, and the linear probe's when it is due."""
        probe = self._settings.linear_probe
        return self.evaluator.measure(
            state,
            k=self._neighbours,
            temperature=KNN_TEMPERATURE,
            linear_probe=probe == "every" or (final and probe == "final"),
        )

    def describe(self, facts: Mapping[str, str]) -> Description:
        """Return encoder, data distribution and what else the record says, the learner's own ``facts`` at the end."""
        sizes = self.silos.sizes
        return Description(
            encoder=self._settings.encoder,
            parameters=parameter_count(self.network),
            image_shape=self.image_shape,
            class_names=tuple(self._data.class_names),
            silo_label_counts=self.silos.label_counts(self._data.train_labels, len(self._data.class_names)),
            network=Network(
                module=self.network,
                returns="projections of unit length, shape (N, 128), for contrast alone; features are what fc is given",
                mean=tuple(self._data.mean),
                std=tuple(self._data.std),
                own_statistics=self._settings.batchnorm == "average",
            ),
            facts={
                "Forward pass": f"{self.flop / 1e6:.4g} MFLOP per image (convolutions and linear layers)",
                "Model": f"{payload_bytes(self.sent(self.network.state_dict())) / 1e6:.4g} MB each way",
                "Images per silo": f"{min(sizes)} to {max(sizes)}, {sum(sizes)} in all",
                "Test images": f"{len(self._data.test)}, held by no vehicle",
                "kNN": f"{self._neighbours} of {self._bank_size} clean training images vote",
                "BatchNorm statistics": {
                    "average": "sent and averaged with the same weights as the model",
                    "local": "kept in the vehicles; estimated on the bank for evaluation",
                }[self._settings.batchnorm],
                **({"Pixels": self._data.pixels} if self._data.pixels else {}),
                **self.engine_facts,
                **facts,
            },
        )


class DualTemperatureTask(ContrastiveTask, AveragedTask):
    """The task with FLSimCo's loss, averaged by an RSU."""

    inputs: ClassVar[tuple[str, ...]] = ("first", "second")
    options: ClassVar[Mapping[str, str]] = {"plain": "plain"}
    _settings: ContrastiveSettings

    @property
    def passes(self) -> int:
        """Two views of an image pass the encoder, and the image itself where the negatives are plain."""
        return 3 if self._plain else 2

    @property
    def _plain(self) -> bool:
        return self._settings.negatives == "plain"

    def local(self, step: Loss) -> Program:
        """Return the local training of the encoder on two views; see ``contrast``."""
        return self.contrast(step, plain=self._plain)

    def loss(
        self,
        model: nn.Module,
        first: Tensor,
        second: Tensor,
        base: State,  # noqa: ARG002 - the signature of all tasks
        plain: Tensor | None = None,
    ) -> Tensor:
        """Return the dual-temperature loss of two views; ``plain``, the images themselves, gives other negatives."""
        return dual_temperature_loss(
            model(first),
            model(second),
            t_alpha=self._settings.t_alpha,
            t_beta=self._settings.t_beta,
            negatives=None if plain is None else model(plain),
        )

    def series(self) -> Sequence[Series]:
        """Return all metrics of a learner that averages on this task."""
        return reported(SERIES, self._settings)

    def round_figures(self, uploads: Sequence[Mapping[str, float]], weights: Weights) -> Mapping[str, float]:
        """Return how far the weights are from equal ones; nothing where the model was kept."""
        return {"weight_deviation": float(np.sqrt(np.mean((weights * len(uploads) - 1) ** 2)))} if weights.any() else {}
