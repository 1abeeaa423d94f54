"""The task that contrastive learners share: images in silos, an encoder, its schedule and its evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learners.contrastive_settings import TaskSettings
from learners.data import load_images
from learners.data.augment import view_one, view_two
from learners.data.partition import partition
from learners.encoders import create_encoder, forward_flop, parameter_count
from learners.evaluation import Evaluator
from learners.global_model import State
from learners.silos import Silos, blurred_samples, kernel_px
from learners.training import Objective, SequentialEngine, Visit, copy_state, cosine
from vnetsim.learning import Description, LearnerContext, Participant

BACKWARD_FACTOR = 3
"""Work of forward and backward pass in forward passes: the backward pass computes two products for each one."""


class ContrastiveTask:
    """Everything of a contrastive learner but its loss and what it does with the uploads.

    Args:
        context: what the simulator gives every learner.
        settings: encoder, local training and evaluation.

    Attributes:
        encoder: the workspace model that training and evaluation load a state into.
        flop: floating-point operations of its forward pass over one image.
        device: where it and the images lie.
        evaluator: measures a state of it.
    """

    def __init__(self, context: LearnerContext, settings: TaskSettings) -> None:
        self._context = context
        self._settings = settings
        self.device = torch.device(context.device)
        streams = context.streams
        self._data = load_images(context.data, streams=streams.child("data"))
        indices = partition(
            self._data.train_labels.numpy(),
            silos=context.silos,
            approaches=context.approaches,
            settings=context.data,
            generator=streams.generator("silos"),
        )
        self._silos = Silos(self._data.train, indices, device=self.device)
        encoder = create_encoder(settings.encoder, seed=streams.integer("initial model"))
        self.flop = forward_flop(encoder, self._image_shape)
        # channels last is what CPU and CUDA convolve fastest
        self.encoder = encoder.to(device=self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        bank = streams.generator("bank").permutation(len(self._data.train))[: settings.bank or None]
        self.evaluator = Evaluator(
            self.encoder,
            bank=self._data.train[bank].to(self.device),
            bank_labels=self._data.train_labels[bank].to(self.device),
            test=self._data.test.to(self.device),
            test_labels=self._data.test_labels.to(self.device),
            classes=len(self._data.class_names),
            mean=self._data.mean,
            std=self._data.std,
            recalibrate=settings.batchnorm == "local",
        )

    def initial_state(self) -> State:
        """Return a copy of the encoder's present state: before any training, theta^0."""
        return copy_state(self.encoder.state_dict())

    def engine(self, objective: Objective) -> SequentialEngine:
        """Return the engine that trains the encoder on the silos for ``objective``."""
        settings = self._settings
        return SequentialEngine(
            self.encoder,
            self._silos,
            objective=objective,
            steps=settings.steps,
            batch=settings.batch,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
        )

    def views(self, images: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return both random views of images in [0, 1], normalised, each of the images' shape (B, C, H, W)."""
        mean, std = self._data.mean, self._data.std
        return view_one(images, generator, mean, std), view_two(images, generator, mean, std)

    def visit(self, participant: Participant) -> Visit:
        """Return a participant's local training: its silo, blur, step size and seed."""
        return Visit(
            silo=participant.silo,
            kernel_px=kernel_px(self._context, participant.speed_mps, self._silos.image_px),
            blurred_fraction=self._context.blur.fraction,
            learning_rate=self.learning_rate(participant.base_round),
            seed=self._context.streams.integer("training", participant.round, participant.vehicle_id),
        )

    def learning_rate(self, base_round: int) -> float:
        """Return the step size of a visit that started in ``base_round``: a cosine over the rounds."""
        return cosine(self._settings.lr, base_round, self._context.rounds)

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
        sizes = self._silos.sizes
        return Description(
            encoder=self._settings.encoder,
            parameters=parameter_count(self.encoder),
            image_shape=self._image_shape,
            class_names=tuple(self._data.class_names),
            silo_label_counts=self._silos.label_counts(self._data.train_labels, len(self._data.class_names)),
            facts={
                "Forward pass": f"{self.flop / 1e6:.4g} MFLOP per image (convolutions and linear layers)",
                "Model": f"{payload_bytes(self.sent(self.encoder.state_dict())) / 1e6:.4g} MB each way",
                "Images per silo": f"{min(sizes)} to {max(sizes)}, {sum(sizes)} in all",
                "Test images": f"{len(self._data.test)}, held by no vehicle",
                "BatchNorm statistics": {
                    "average": "sent and averaged with the same weights as the model",
                    "local": "kept in the vehicles; estimated on the bank for evaluation",
                }[self._settings.batchnorm],
                **facts,
            },
        )

    def sample_images(self, kernels_px: Sequence[float], count: int) -> NDArray[np.uint8]:
        """Return the first test images blurred with each kernel length, shape (len(kernels_px), count, H, W, C)."""
        return blurred_samples(self._data.test[:count], kernels_px)

    @property
    def _image_shape(self) -> tuple[int, int, int]:
        channels, height, width = self._data.train.shape[1:]
        return int(channels), int(height), int(width)


def payload_bytes(tensors: Mapping[str, Tensor]) -> int:
    """Return the bytes that tensors take on the radio link."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
