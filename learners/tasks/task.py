"""The common parts of all tasks: silos of images on the device, a network, its local training and its description."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from learners.data import load_images
from learners.data.moving import to_device
from learners.data.partition_file import divide_among_silos, partition_csv
from learners.data.sets import ImageSet
from learners.encoders import channels_last, forward_flop
from learners.encoders.precision import set_precision
from learners.engines.compiled import COMPILED, compile_call, require_compiler
from learners.engines.optimizers import Optimizer, Rate, Sgd
from learners.engines.programs import Engine, LocalTraining, Loss, Program, State, Tensors, copy_state, identify_step
from learners.engines.side_by_side import create_engine
from learners.engines.silo_images import SiloImages
from learners.mathematics.weights import Weights
from learners.tasks.description import blur_for_page, describe_in_words, image_sources
from learners.tasks.settings import TrainingSettings
from vnetsim.errors import InputError
from vnetsim.learner_facts import NOT_READ
from vnetsim.learning import Description, LearnerContext, Network, Participant, Series
from vnetsim.learning.conduct import is_hostile

BACKWARD_FACTOR = 3
"""Work of forward and backward pass, in forward passes: the backward pass computes two products for each one."""
DRAWN_AT_ONCE = 4096
"""Images whose draws are computed at a time; more need much memory, fewer leave an operation too little to do."""
LEARNING_RATE = Series(
    name="learning_rate",
    result=False,
    label="Learning rate",
    caption="Step size of the vehicles that started in this round; half a cosine over the run.",
)


def training_loss(caption: str) -> Series:
    """Return the declaration of the metric ``loss``; ``caption`` says which loss it is and begins its caption."""
    whole = f"{caption}, mean over the aggregated vehicles and their local steps."
    return Series(name="loss", label="Training loss", caption=whole)


StepLoss = Callable[[nn.Module, Tensors, Tensors], Tensor | tuple[Tensor, Tensor]]
"""The loss of a local step. Arguments: the network in its present state, the batch, and the state that the local
training started from, both as tensors by name. Returns a tensor of shape (), or two: the one that the step descends,
and the one to report, such as the loss without a penalty. It must depend on its arguments only: it is called for
several vehicles at once, from several threads."""


class Task(ABC):
    """Images in silos, a network, the loss of a local step, and the evaluation of a model.

    Args:
        context: what the simulator gives every learner.
        settings: local training.
        data: ``train``, the pool of training images, uint8 of shape (N, C, H, W), and ``test``, images that no silo
            has. It may have ``mean`` and ``std`` of each channel in [0, 1], which ``normalised`` uses.
        indices: rows of the pool for each silo.
        network: a new network, on the CPU.

    Attributes:
        device: of network and images.
        silos: the training images.
        network: used by main thread and evaluation; channels last, which CPU and CUDA convolve fastest.
        flop: floating-point operations of its forward pass over one image.
        engine: trains the vehicles of a round.
        image_shape: (C, H, W).
        lower_is_better: whether metrics are errors.
        models_on_host: whether models are in this machine's memory between rounds, as where each silo has one.
        picture: word for an image in manifest and report.
        has_labels: whether ``prepare`` mirrors the labels of rows whose draw ``flipped`` is true; if not, hostile
            vehicles that flip labels are refused (InputError).
    """

    lower_is_better: ClassVar[bool] = False
    models_on_host: ClassVar[bool] = False
    picture: ClassVar[str] = "image"
    has_labels: ClassVar[bool] = False

    def __init__(
        self,
        context: LearnerContext,
        settings: TrainingSettings,
        data: Any,
        indices: Sequence[NDArray[np.int64]],
        network: nn.Module,
    ) -> None:
        self._context, self.settings = context, settings
        self.device = torch.device(context.device)
        self._compiles = settings.engine == COMPILED
        if self._compiles:
            require_compiler(self.device)
        self._flips_labels = context.conduct is not None and context.conduct.flips_labels
        if self._flips_labels and not self.has_labels:
            raise InputError(
                f"conduct.name: '{context.conduct.name}' flips labels, and this learner trains without classes; take "
                "another conduct, or a learner of the task classification."
            )
        self._data = data
        channels, height, width = (int(side) for side in data.train.shape[1:])
        self.image_shape = (channels, height, width)
        speeds_mps = getattr(data, "train_speeds_mps", None)
        self.silos = SiloImages(
            data.train,
            indices,
            device=self.device,
            kernels_px=None if speeds_mps is None else self._own_kernels_px(speeds_mps),
            times_s=getattr(data, "train_times_s", None),
        )
        self.mean: tuple[float, ...] = getattr(data, "mean", (0.0,) * channels)
        self.std: tuple[float, ...] = getattr(data, "std", (1.0,) * channels)
        self._scale = [torch.tensor(c, device=self.device).view(1, -1, 1, 1) for c in (self.mean, self.std)]
        self.flop = forward_flop(network, self.image_shape)
        set_precision(network, settings.precision, self.image_shape)
        self.network = network.to(device=self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.engine: Engine = create_engine(settings.engine, self.device)

    def _own_kernels_px(self, speeds_mps: Tensor) -> Tensor:
        """Return the motion blur (px) of each image from its speed (m/s), both (N,); 0 up to ``blur.threshold_kmh``."""
        given = self._context.experiment
        lengths_px = given.camera.kernel_px(1.0, self.image_shape[2]) * speeds_mps
        return torch.where(speeds_mps > given.blur.threshold_kmh / 3.6, lengths_px, 0.0)

    def normalised(self, images: Tensor) -> Tensor:
        """Return images in [0, 1], shape (N, C, H, W), minus ``mean`` and divided by ``std`` of each channel."""
        mean, std = self._scale
        return (images - mean) / std

    def initial_state(self) -> State:
        """Return a copy of the network's present tensors, on the CPU if ``models_on_host``; before training theta^0."""
        copied = copy_state(self.network.state_dict())
        return to_device(copied, torch.device("cpu")) if self.models_on_host else copied

    def local_training(
        self,
        silo: int,
        *,
        speed_mps: float,
        learning_rate: float,
        seed: int,
        steps: int,
        earlier: Sequence[tuple[int, float]] = (),
        until_s: float = math.inf,
    ) -> LocalTraining:
        """Describe, without running it, a training on a silo's images with the motion blur of ``speed_mps``.

        Images with speeds of their own are blurred by those instead. Up to ``blur.threshold_kmh`` nothing is blurred.
        ``earlier`` are pairs: another silo whose images the vehicle has, and their share of its data. If the set says
        when images were taken, the vehicle has those taken until ``until_s`` (s), but at least a batch.
        """
        given = self._context.experiment
        blurs = speed_mps > given.blur.threshold_kmh / 3.6
        return LocalTraining(
            silo=silo,
            kernel_px=given.camera.kernel_px(speed_mps, self.image_shape[2]) if blurs else 0.0,
            blurred_fraction=given.blur.fraction,
            learning_rate=learning_rate,
            seed=seed,
            steps=steps,
            earlier=tuple(earlier),
            until_s=until_s,
        )

    def local_training_of(self, participant: Participant) -> LocalTraining:
        """Describe, without running it, a participant's training: silo, blur, step size, seed, steps, label flips."""
        training = self.local_training(
            participant.silo,
            speed_mps=participant.speed_mps,
            learning_rate=self.learning_rate(participant.passed),
            seed=self._context.streams.integer("training", *participant.started, participant.vehicle_id),
            steps=participant.steps_of(self.settings.steps),
            earlier=participant.earlier,
            until_s=participant.start_s + participant.download_s,
        )
        hostile = self._context.experiment.hostile
        flips = self._flips_labels and is_hostile(participant.vehicle_id, hostile, self._context.streams)
        return replace(training, flips_labels=True) if flips else training

    def learning_rate(self, passed: float) -> float:
        """Return the step size after ``passed``, a share of the run in [0, 1]: half a cosine from ``lr`` to 0."""
        return self.settings.lr * (1 + math.cos(math.pi * passed)) / 2

    def round_learning_rate(self, version: int, participants: Sequence[Participant]) -> dict[str, float]:
        """Return the metric ``learning_rate`` of vehicles that start from the model of round ``version``.

        Unless ``rounds`` alone ends the run, it is that of the participant that started last, {} without participants.
        """
        experiment = self._context.experiment
        if experiment.rounds is not None and experiment.time_s is None:
            return {LEARNING_RATE.name: self.learning_rate(min(version / experiment.rounds, 1.0))}
        return {LEARNING_RATE.name: self.learning_rate(max(one.passed for one in participants))} if participants else {}

    def sent(self, state: State) -> dict[str, Tensor]:
        """Return the part of a model's state that is sent over the radio link; here all of it."""
        return dict(state)

    @abstractmethod
    def prepare(self, images: Tensor, drawn: Tensors) -> Tensors:
        """Return a step's batch, tensors by name, from blurred images in [0, 1], (B, C, H, W), and all draws for it."""

    def draw(self, count: int, generator: torch.Generator) -> Tensors:  # noqa: ARG002 - for tasks
        """Return the task's own random draws for a step on ``count`` images, by name, on the CPU; here none.

        They are made after the images have been drawn. After ``finish_draws`` each has a row per image.
        """
        return {}

    def finish_draws(self, drawn: Sequence[Tensors]) -> Sequence[Tensors]:
        """Return for each of several steps the draws that ``prepare`` gets, made of those of ``draw``; here the same.

        A task that draws much lets ``draw`` return plain random numbers and transforms those of all steps here.
        """
        return drawn

    def optimizer(self, parameters: Mapping[str, Tensor], rate: Rate, state: Tensors) -> Optimizer:  # noqa: ARG002
        """Return an optimizer that continues from ``state``, a new one if that is empty; here SGD, always a new one."""
        settings = self.settings
        momentum = getattr(settings, "momentum", 0.0)
        return Sgd(parameters, learning_rate=rate, momentum=momentum, weight_decay=settings.weight_decay)

    def training(
        self,
        step: Loss,
        *,
        network: nn.Module | None = None,
        optimizer: Callable[[Mapping[str, Tensor], Rate, Tensors], Optimizer] | None = None,
        shipped: bool = False,
    ) -> Program:
        """Return the program of steps that trains a network on the silos' images; an engine runs it.

        Args:
            step: returns loss and metrics of a step; its batch is the result of ``prepare``.
            network: the network to train; by default the task's.
            optimizer: see ``Program``; by default the task's.
            shipped: whether ``step`` depends on settings, network and ``constants`` alone; not with a loss that a user
                handed over.
        """
        network = network or self.network

        def draw(training: LocalTraining, generator: torch.Generator) -> Iterator[Tensors]:
            """Yield the random draws of each step, on the CPU: rows, blur lengths, flips of labels, the task's own."""
            images = self.silos.draw(training, self.settings.batch, generator)
            steps = ((one, self.draw(len(one["rows"]), generator)) for one in images)
            while block := list(islice(steps, max(1, DRAWN_AT_ONCE // self.settings.batch))):
                for (one, _), own in zip(block, self.finish_draws([own for _, own in block]), strict=True):
                    count = len(one["rows"])
                    flipped = {"flipped": torch.full((count,), training.flips_labels)} if self._flips_labels else {}
                    yield {**one, **flipped, **own}

        def compute_batch(drawn: Tensors) -> Tensors:
            """Return the batch of a step from its draws; images are channels last in memory."""
            batch = self.prepare(self.silos.images(drawn), drawn)
            return {name: channels_last(tensor) if tensor.ndim == 4 else tensor for name, tensor in batch.items()}

        loss, prepare = (compile_call(step), compile_call(compute_batch)) if self._compiles else (step, compute_batch)
        return Program(
            network=network,
            count=self.batch_size,
            draw=draw,
            prepare=lambda drawn: prepare(to_device(drawn, self.device)),
            loss=loss,
            optimizer=optimizer or self.optimizer,
            value=identify_step(step, network, self) if shipped else None,
            constants=self.constants(),
        )

    def constants(self) -> Sequence[Tensor]:
        """Return the tensors that ``prepare`` and ``loss`` read besides their arguments."""
        return (self.silos.pool, *self._scale)

    @abstractmethod
    def loss(self, model: nn.Module, batch: Tensors, base: Tensors) -> Tensor:
        """Return a local step's loss, shape (), on a batch of ``prepare``; local training started from ``base``."""

    @abstractmethod
    def evaluate(self, state: State, *, final: bool) -> Mapping[str, float]:
        """Return a model's metrics by name; with ``final``, at the end of a run, the expensive ones as well."""

    @abstractmethod
    def series(self) -> Sequence[Series]:
        """Return all metrics of a learner that averages on this task, in the order of the report."""

    @abstractmethod
    def describe(self, facts: Mapping[str, str]) -> Description:
        """Return network, data distribution and facts for the run's record; the learner's own ``facts`` come last."""

    @property
    def passes(self) -> int:
        """How often an image passes the network forward in a step; here once."""
        return 1

    def upload_figures(self, uploads: Sequence[tuple[State, int]]) -> list[Mapping[str, float]]:
        """Return metrics of each upload, given as (finite state, silo), by itself and in order; here {} for each."""
        return [{} for _ in uploads]

    def round_figures(self, uploads: Sequence[Mapping[str, float]], weights: Weights) -> Mapping[str, float]:  # noqa: ARG002
        """Return further metrics of a round from each upload's ``upload_figures`` and weight, at least one; here {}."""
        return {}

    def kept(self, optimizer: Tensors) -> dict[str, Tensor]:  # noqa: ARG002 - for tasks
        """Return the part of an optimizer's state that a silo keeps until its next local training; here none."""
        return {}

    def described(
        self,
        facts: Mapping[str, str],
        *,
        encoder: str,
        returns: str,
        classes: Sequence[str],
        labels: Tensor | None,
        own_statistics: bool = True,
    ) -> Description:
        """Return a description of the task's network and images.

        Args:
            facts: lines of the record by title; they replace those of all tasks, or come last.
            encoder: name of the encoder.
            returns: what the network returns for images, in words.
            classes: names of the classes.
            labels: class of each training image, shape (N,); None without classes.
            own_statistics: see ``vnetsim.learning.Network``.
        """
        data, without_classes = self._data, np.zeros((len(self.silos.sizes), 0), dtype=np.int64)
        frames, sights = image_sources(data, self._own_kernels_px)
        has_partition = isinstance(data, ImageSet) and NOT_READ not in data.facts
        return Description(
            encoder=encoder,
            parameters=sum(one.numel() for one in self.network.parameters() if one.requires_grad),
            image_shape=self.image_shape,
            class_names=tuple(classes),
            silo_label_counts=without_classes if labels is None else self.silos.label_counts(labels, len(classes)),
            network=Network(
                module=self.network, returns=returns, mean=self.mean, std=self.std, own_statistics=own_statistics
            ),
            facts={title: text for title, text in {**describe_in_words(self, data), **facts}.items() if text},
            partition=partial(partition_csv, data, self.silos.rows) if has_partition else None,
            path_frames=frames,
            sights=sights,
        )

    def batch_size(self, silo: int) -> int:
        """Return the number of images in a step on ``silo``: the batch, or all of a smaller silo."""
        return min(self.settings.batch, self.silos.size(silo))

    def images_per_training(self, silo: int) -> int:
        """Return the number of images in all steps of a local training on ``silo``."""
        return self.settings.steps * self.batch_size(silo)

    def training_flop(self, images: int) -> float:
        """Return the floating-point operations of training on ``images`` images, forward and backward."""
        return float(images * BACKWARD_FACTOR * self.flop)

    def sample_images(self, kernels_px: Sequence[float], count: int) -> NDArray[np.uint8]:
        """Return ``count`` test images (all if there are fewer), evenly spread, blurred with each kernel length (px).

        Their shape is (len(kernels_px), count, H, W, C).
        """
        sharp = self._data.test[spread(len(self._data.test), count)]
        return np.stack([blur_for_page(sharp, torch.full((len(sharp),), float(kernel))) for kernel in kernels_px])


def labelled_silos(context: LearnerContext) -> tuple[ImageSet, list[NDArray[np.int64]]]:
    """Return the set of images with classes that ``data.name`` names, and the rows of its training images by silo.

    InputError if the set has no classes or cannot be read, or its images do not suffice for the silos.
    """
    given = context.experiment
    data = load_images(given.data, **data_sources(context))
    indices = divide_among_silos(
        data,
        silos=given.silos.count,
        approaches=given.silos.approaches,
        districts=context.districts,
        settings=given.data,
        generator=context.streams.generator("silos"),
    )
    return data, indices


def data_sources(context: LearnerContext) -> dict[str, Any]:
    """Return the keyword arguments of ``load_images`` and ``load_steering``: all except the settings ``data``."""
    parts = {"settings": context.data_set, "pictures": context.pictures, "traffic": context.traffic}
    return {"streams": context.streams.child("data"), **parts}


def spread(count: int, wanted: int) -> Tensor:
    """Return ``wanted`` indices below ``count`` (all if there are fewer), evenly spread, in order, int64."""
    return torch.linspace(0, count - 1, min(wanted, count), dtype=torch.float64).round().to(torch.int64)
