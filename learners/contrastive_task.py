"""The task that contrastive learners share: labelled images in silos, two views, an encoder and its evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from learners.contrastive_settings import TaskSettings
from learners.data.augment import apply_view_one, apply_view_two, draw_view_one, draw_view_two
from learners.encoders import create_encoder, parameter_count
from learners.evaluation import Evaluator
from learners.global_model import State
from learners.optimizers import Optimizer, Rate
from learners.task import Task, labelled_silos, payload_bytes
from learners.training import Loss, Program, Tensors, Visit, below, under
from vnetsim.learning import Description, LearnerContext, Participant

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
        encoder = create_encoder(settings.encoder, seed=context.streams.integer("initial model"))
        super().__init__(
            context, settings, train=self._data.train, test=self._data.test, indices=indices, network=encoder
        )
        bank = context.streams.generator("bank").permutation(len(self._data.train))[: settings.bank or None]
        self.evaluator = Evaluator(
            encoder,
            bank=self._data.train[bank].to(self.device),
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
    ) -> Program:
        """Return the local training on two random views of each image.

        Args:
            loss: of a step; its batch holds the views ``first`` and ``second``, normalised, shape (B, C, H, W).
            network: what is trained; the encoder by default.
            optimizer: SGD by default.
        """
        mean, std, size = self._data.mean, self._data.std, self.image_shape[1:]

        def draw(count: int, generator: torch.Generator) -> Tensors:
            first = draw_view_one(count, size, generator)
            return {**under(FIRST, first), **under(SECOND, draw_view_two(count, size, generator))}

        def prepare(images: Tensor, drawn: Tensors) -> Tensors:
            return {
                "first": apply_view_one(images, below(FIRST, drawn), mean, std),
                "second": apply_view_two(images, below(SECOND, drawn), mean, std),
            }

        optimizer = optimizer or self.sgd(self._settings.momentum)
        return self.program(loss, draw=draw, prepare=prepare, optimizer=optimizer, network=network)

    def visit_of(self, participant: Participant) -> Visit:
        """Return a participant's local training: its silo, blur, step size and seed."""
        return self.visit(
            participant.silo,
            speed_mps=participant.speed_mps,
            learning_rate=self.cosine_rate(participant.base_round),
            seed=self._context.streams.integer("training", participant.round, participant.vehicle_id),
        )

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
            k=self._settings.knn_k,
            temperature=self._settings.knn_temperature,
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
            facts={
                "Forward pass": f"{self.flop / 1e6:.4g} MFLOP per image (convolutions and linear layers)",
                "Model": f"{payload_bytes(self.sent(self.network.state_dict())) / 1e6:.4g} MB each way",
                "Images per silo": f"{min(sizes)} to {max(sizes)}, {sum(sizes)} in all",
                "Test images": f"{len(self._data.test)}, held by no vehicle",
                "BatchNorm statistics": {
                    "average": "sent and averaged with the same weights as the model",
                    "local": "kept in the vehicles; estimated on the bank for evaluation",
                }[self._settings.batchnorm],
                **facts,
            },
        )
