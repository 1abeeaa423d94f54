"""What all tasks have in common: silos of images on the device, a network, and the engine that trains it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from learners.data import load_images
from learners.data.partition import partition
from learners.data.sets import ImageSet
from learners.encoders import channels_last, forward_flop
from learners.encoders.precision import set_precision
from learners.engines.batched import MeasuredEngine, create_engine
from learners.engines.optimizers import Optimizer, Rate, Sgd
from learners.engines.programs import LocalTraining, Loss, Program, Tensors, copy_state, cosine
from learners.engines.ray_engine import RayEngine
from learners.engines.silo_images import SiloImages, blurred_samples, kernel_px
from learners.mathematics.aggregation import Weights
from learners.state.global_model import State
from learners.tasks.training_settings import TrainingSettings
from vnetsim.learning import Description, LearnerContext, Participant, Series

ENGINE = "engine."
"""Beginning of the names of what the engine was chosen by in a learner's state."""
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
        engine: trains the vehicles of a round.
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
        self.silos = SiloImages(train, indices, device=self.device)
        channels, height, width = (int(side) for side in train.shape[1:])
        self.image_shape = (channels, height, width)
        self.flop = forward_flop(network, self.image_shape)
        set_precision(network, settings.precision, self.image_shape)
        self.network = network.to(device=self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.engine = create_engine(settings.engine, self.device, not context.on_ray)
        if context.on_ray:
            self.engine = RayEngine(settings.engine, self.device, self.engine)

    def engine_state(self) -> dict[str, Tensor]:
        """Return what the engine was chosen by, for a run that is resumed; nothing where it was not measured."""
        seconds = self.engine.seconds if isinstance(self.engine, MeasuredEngine) else {}
        return {f"{ENGINE}{name}": torch.tensor(one, dtype=torch.float64) for name, one in seconds.items()}

    def load_engine_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Choose the engine as the run did before; on another device it is not chosen by measurement."""
        if isinstance(self.engine, MeasuredEngine):
            self.engine.seconds = {name.removeprefix(ENGINE): float(tensor) for name, tensor in tensors.items()}

    @property
    def engine_facts(self) -> dict[str, str]:
        """A line for the record that names the engine, where the run itself has chosen it."""
        told = self.engine.told if isinstance(self.engine, MeasuredEngine) else ""
        return {"Engine": told} if told else {}

    def initial_state(self) -> State:
        """Return a copy of the network's present state: before any training, theta^0."""
        return copy_state(self.network.state_dict())

    def local_training(
        self, silo: int, *, speed_mps: float, learning_rate: float, seed: int, steps: int = 0
    ) -> LocalTraining:
        """Return a training on a silo's images as a vehicle of this speed (m/s) sees them, whole or of some steps."""
        return LocalTraining(
            silo=silo,
            kernel_px=self.kernel_px(speed_mps),
            blurred_fraction=self._context.blur.fraction,
            learning_rate=learning_rate,
            seed=seed,
            steps=steps,
        )

    def local_training_of(self, participant: Participant) -> LocalTraining:
        """Return a participant's local training: its silo, blur, step size, seed, and how many steps it did."""
        return self.local_training(
            participant.silo,
            speed_mps=participant.speed_mps,
            learning_rate=self.learning_rate(participant.base.version),
            seed=self._context.streams.integer("training", participant.round, participant.vehicle_id),
            steps=0 if participant.work_share == 1 else participant.steps_of(self.steps),
        )

    def learning_rate(self, base_round: int) -> float:
        """Return the step size of a local training that starts from the model of ``base_round``."""
        return self.cosine_rate(base_round)

    def sent(self, state: State) -> dict[str, Tensor]:
        """Return the part of a model's state that crosses the radio link."""
        return dict(state)

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
            steps: of a local training; those of the settings by default.
        """
        count = self._training.batch

        def draw_all(training: LocalTraining, generator: torch.Generator) -> Tensors:
            images = self.silos.draw(training, count, generator)
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

    @property
    def steps(self) -> int:
        """Optimizer steps of a whole local training."""
        return self._training.steps

    def batch_size(self, silo: int) -> int:
        """Return how many images a step on ``silo`` takes."""
        return min(self._training.batch, self.silos.size(silo))

    def images_per_training(self, silo: int) -> int:
        """Return how many images a vehicle that holds ``silo`` draws over all its steps."""
        return self._training.steps * self.batch_size(silo)

    def training_flop(self, images: int) -> float:
        """Return the operations of training on so many images, forward and backward."""
        return float(images * BACKWARD_FACTOR * self.flop)

    def sample_images(self, kernels_px: Sequence[float], count: int) -> NDArray[np.uint8]:
        """Return test images, evenly spread over the set, blurred with each kernel length; see ``blurred_samples``."""
        return blurred_samples(self._samples[spread(len(self._samples), count)], kernels_px)

    def cosine_rate(self, base_round: int) -> float:
        """Return the step size of a local training that started in ``base_round``: a cosine over the rounds."""
        return cosine(self._training.lr, base_round, self._context.rounds)

    def sgd(self, momentum: float) -> Callable[[Mapping[str, Tensor], Rate, Tensors], Optimizer]:
        """Return what makes SGD of parameters, new at each local training."""

        def make(parameters: Mapping[str, Tensor], rate: Rate, _: Tensors) -> Optimizer:
            return Sgd(parameters, learning_rate=rate, momentum=momentum, weight_decay=self._training.weight_decay)

        return make


class AveragedTask(Task, ABC):
    """A task whose model an RSU may average: what ``learners.averaging.AveragingLearner`` is composed with.

    Class attributes:
        inputs: the tensors of a batch that a loss is given, in order, by name.
        options: further tensors that a loss is given where a batch has them: parameter of the loss to name in the
            batch.
    """

    inputs: ClassVar[tuple[str, ...]]
    options: ClassVar[Mapping[str, str]] = {}

    @property
    def passes(self) -> int:
        """How often an image passes the network in a step."""
        return 1

    @abstractmethod
    def local(self, step: Loss) -> Program:
        """Return the local training of the task's network that descends ``step``."""

    @abstractmethod
    def loss(self, model: nn.Module, first: Tensor, second: Tensor, base: State) -> Tensor:
        """Return the task's own loss of a step, given the batch's ``inputs``."""

    @abstractmethod
    def evaluate(self, state: State, *, final: bool) -> Mapping[str, float]:
        """Return metrics of a model; ``final`` asks for the expensive ones as well."""

    @abstractmethod
    def series(self) -> Sequence[Series]:
        """Return all metrics of a learner that averages on this task, in the order to show them."""

    @abstractmethod
    def describe(self, facts: Mapping[str, str]) -> Description:
        """Return network, data distribution and what else the record says, the learner's own ``facts`` at the end."""

    def upload_figures(self, state: State, silo: int) -> Mapping[str, float]:  # noqa: ARG002 - for tasks
        """Return what one finite upload is worth by itself; asked while its tensors are there."""
        return {}

    def round_figures(self, uploads: Sequence[Mapping[str, float]], weights: Weights) -> Mapping[str, float]:  # noqa: ARG002
        """Return what a round reports besides learning rate and loss.

        Args:
            uploads: ``upload_figures`` of its finite updates, at least one.
            weights: theirs.
        """
        return {}


def labelled_silos(context: LearnerContext) -> tuple[ImageSet, list[NDArray[np.int64]]]:
    """Return the images with labels that the experiment names, and which of them each silo holds.

    Raises:
        InputError: there are no such images, or they do not fit the silos.
    """
    own = {} if context.dataset is None else {"settings": context.dataset}
    data = load_images(context.data, streams=context.streams.child("data"), **own)
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
