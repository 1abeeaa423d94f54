"""What all tasks have in common: silos of images on the device, a network, and the engine that trains it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from learners.batched import create_engine
from learners.data import load_images
from learners.data.image_set import ImageSet
from learners.data.partition import partition
from learners.encoders import channels_last, forward_flop
from learners.global_model import State
from learners.optimizers import Optimizer, Rate, Sgd
from learners.precision import set_precision
from learners.silos import Silos, blurred_samples, kernel_px
from learners.training import Loss, Program, Tensors, Visit, copy_state, cosine
from learners.training_settings import TrainingSettings
from vnetsim.learning import LearnerContext

BACKWARD_FACTOR = 3
"""Work of forward and backward pass in forward passes: the backward pass computes two products for each one."""


class Task:
    """Images in silos, and local training of a network on them.

    Args:
        context: what the simulator gives every learner.
        settings: local training.
        train: the pool of training images, uint8 of shape (N, C, H, W).
        test: images that no silo holds, likewise.
        indices: the pool's rows that each silo holds.
        network: a new network, on the CPU.

    Attributes:
        device: where network and images lie.
        silos: the training images.
        network: a workspace of main thread and evaluation, channels last, which CPU and CUDA convolve fastest.
        flop: floating-point operations of its forward pass over one image.
        engine: trains the visits of a round.
        image_shape: (C, H, W).
    """

    def __init__(
        self,
        context: LearnerContext,
        settings: TrainingSettings,
        *,
        train: Tensor,
        test: Tensor,
        indices: Sequence[NDArray[np.int64]],
        network: nn.Module,
    ) -> None:
        self._context = context
        self._training = settings
        self._samples = test
        self.device = torch.device(context.device)
        self.silos = Silos(train, indices, device=self.device)
        channels, height, width = (int(side) for side in train.shape[1:])
        self.image_shape = (channels, height, width)
        self.flop = forward_flop(network, self.image_shape)
        set_precision(network, settings.precision, self.image_shape)
        self.network = network.to(device=self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.engine = create_engine(settings.engine, self.device)

    def initial_state(self) -> State:
        """Return a copy of the network's present state: before any training, theta^0."""
        return copy_state(self.network.state_dict())

    def visit(self, silo: int, *, speed_mps: float, learning_rate: float, seed: int) -> Visit:
        """Return a training on a silo's images as a vehicle of this speed (m/s) sees them."""
        return Visit(
            silo=silo,
            kernel_px=self.kernel_px(speed_mps),
            blurred_fraction=self._context.blur.fraction,
            learning_rate=learning_rate,
            seed=seed,
        )

    def kernel_px(self, speed_mps: float) -> float:
        """Return the length of the motion kernel in images taken at a speed (px)."""
        return kernel_px(self._context, speed_mps, self.silos.image_px)

    def program(
        self,
        loss: Loss,
        *,
        draw: Callable[[int, torch.Generator], Tensors],
        prepare: Callable[[Tensor, Tensors], Tensors],
        optimizer: Callable[[Mapping[str, Tensor], Rate, Tensors], Optimizer],
        network: nn.Module | None = None,
        steps: int = 0,
    ) -> Program:
        """Return the local training of a network on the silos' images.

        Args:
            loss: see ``Program``.
            draw: what a step draws besides its images, given their number.
            prepare: makes the batch, given the images in [0, 1], shape (B, C, H, W), and all draws.
            optimizer: see ``Program``.
            network: what is trained; the task's by default.
            steps: of a visit; those of the settings by default.
        """
        count = self._training.batch

        def draw_all(visit: Visit, generator: torch.Generator) -> Tensors:
            images = self.silos.draw(visit, count, generator)
            return {**images, **draw(len(images["rows"]), generator)}

        def prepare_all(drawn: Tensors) -> Tensors:
            batch = prepare(self.silos.images(drawn), drawn)
            return {name: channels_last(tensor) if tensor.ndim == 4 else tensor for name, tensor in batch.items()}

        return Program(
            network=network or self.network,
            steps=steps or self._training.steps,
            count=self.batch_size,
            draw=draw_all,
            prepare=prepare_all,
            loss=loss,
            optimizer=optimizer,
        )

    def batch_size(self, silo: int) -> int:
        """Return how many images a step on ``silo`` takes."""
        return min(self._training.batch, self.silos.size(silo))

    def images_per_visit(self, silo: int) -> int:
        """Return how many images a visit to ``silo`` draws over all its steps."""
        return self._training.steps * self.batch_size(silo)

    def training_flop(self, images: int) -> float:
        """Return the operations of training on so many images, forward and backward."""
        return float(images * BACKWARD_FACTOR * self.flop)

    def sample_images(self, kernels_px: Sequence[float], count: int) -> NDArray[np.uint8]:
        """Return test images, evenly spread over the set, blurred with each kernel length; see ``blurred_samples``."""
        return blurred_samples(self._samples[spread(len(self._samples), count)], kernels_px)

    def cosine_rate(self, base_round: int) -> float:
        """Return the step size of a visit that started in ``base_round``: a cosine over the rounds."""
        return cosine(self._training.lr, base_round, self._context.rounds)

    def sgd(self, momentum: float) -> Callable[[Mapping[str, Tensor], Rate, Tensors], Optimizer]:
        """Return what makes SGD of parameters, new at each visit."""

        def make(parameters: Mapping[str, Tensor], rate: Rate, _: Tensors) -> Optimizer:
            return Sgd(parameters, learning_rate=rate, momentum=momentum, weight_decay=self._training.weight_decay)

        return make


def labelled_silos(context: LearnerContext) -> tuple[ImageSet, list[NDArray[np.int64]]]:
    """Return the images with labels that the experiment names, and which of them each silo holds.

    Raises:
        InputError: there are no such images, or they do not fit the silos.
    """
    data = load_images(context.data, streams=context.streams.child("data"))
    indices = partition(
        data.train_labels.numpy(),
        silos=context.silos,
        approaches=context.approaches,
        settings=context.data,
        generator=context.streams.generator("silos"),
    )
    return data, indices


def spread(count: int, wanted: int) -> Tensor:
    """Return ``wanted`` of ``count`` places (all when there are fewer), evenly spread, in order."""
    return torch.linspace(0, count - 1, min(wanted, count), dtype=torch.float64).round().to(torch.int64)


def payload_bytes(tensors: Mapping[str, Tensor]) -> int:
    """Return the bytes that tensors take on the radio link."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
