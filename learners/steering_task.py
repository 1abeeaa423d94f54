"""The task that steering learners share: road frames in silos, ResNet-8, its local steps and its evaluation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import l1_loss, mse_loss

from learners.adam import Adam, moments_like
from learners.contrastive_task import payload_bytes
from learners.data import load_steering
from learners.data.partition_steering import STRAIGHT, partition_steering
from learners.encoders import forward_flop, parameter_count
from learners.global_model import State
from learners.resnet8 import ResNet8, create_resnet8
from learners.silos import Silos, blurred_samples, kernel_px
from learners.steering_settings import SteeringSettings
from learners.training import Sgd, copy_state
from vnetsim.learning import Description, LearnerContext, Participant

EVALUATION_BATCH = 256


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Errors of a model, pooled over all test frames.

    Args:
        rmse: sqrt(sum of squares / number).
        mae: mean of the moduli.
    """

    rmse: float
    mae: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """The frames of one local step.

    Args:
        images: as the vehicle sees them, float in [0, 1], shape (B, C, H, W).
        angles: steering angles in [-1, 1], shape (B,).
        generator: source of the step's further random draws.
    """

    images: Tensor
    angles: Tensor
    generator: torch.Generator


Objective = Callable[[Batch], tuple[Tensor, Mapping[str, Tensor]]]
Figures = dict[str, float]


class SteeringTask:
    """Everything of a steering learner but what its vehicles learn from each other.

    Args:
        context: what the simulator gives every learner.
        settings: local training and evaluation.

    Attributes:
        network: a workspace that training and evaluation load a state into.
        flop: floating-point operations of its forward pass over one frame.
        device: where it and the frames lie.
    """

    def __init__(self, context: LearnerContext, settings: SteeringSettings) -> None:
        self._context = context
        self._settings = settings
        self.device = torch.device(context.device)
        streams = context.streams
        self._data = load_steering(context.data, streams=streams.child("data"))
        indices = partition_steering(
            self._data,
            silos=context.silos,
            approaches=context.approaches,
            settings=context.data,
            generator=streams.generator("silos"),
        )
        self._silos = Silos(self._data.train, indices, device=self.device)
        self._angles = self._data.train_angles.to(self.device)
        self.network = self.new_network()
        self.flop = forward_flop(self.network, self._image_shape)
        frames = _spread(len(self._data.test), settings.test_frames or len(self._data.test))
        self._test = self._data.test[frames].to(self.device)
        self._test_angles = self._data.test_angles[frames].to(self.device)

    def initial_state(self) -> State:
        """Return theta^0, on the CPU."""
        return on_cpu(self.new_network().state_dict())

    def new_network(self) -> ResNet8:
        """Return another workspace; all start with the same weights, theta^0."""
        return create_resnet8(self._image_shape, seed=self._context.streams.integer("initial model")).to(self.device)

    def images_per_visit(self, silo: int) -> int:
        """Return how many frames a visit to ``silo`` draws over all its steps."""
        return self._settings.steps * min(self._settings.batch, self._silos.size(silo))

    def batches(self, participant: Participant) -> Iterator[Batch]:
        """Return the frames of a visit's steps, which depend on seed, round, vehicle and silo alone."""
        seed = self._context.streams.integer("training", participant.round, participant.vehicle_id)
        generator = torch.Generator(self.device).manual_seed(seed)
        for _ in range(self._settings.steps):
            images, rows = self._silos.draw_with_rows(
                participant.silo,
                self._settings.batch,
                kernel_px=self.kernel_px(participant),
                blurred_fraction=self._context.blur.fraction,
                generator=generator,
            )
            yield Batch(images=images, angles=self._angles[rows], generator=generator)

    def kernel_px(self, participant: Participant) -> float:
        """Return the length of the motion kernel in a participant's frames (px)."""
        return kernel_px(self._context, participant.speed_mps, self._silos.image_px)

    def dropout(self, features: Tensor, generator: torch.Generator) -> Tensor:
        """Return the features with a random part set to 0 and the others scaled up to the same expectation."""
        share = self._settings.dropout
        if share == 0:
            return features
        kept = torch.rand(features.shape, generator=generator, device=features.device) >= share
        return features * kept / (1 - share)

    def steering_loss(self, angles: Tensor, targets: Tensor) -> Tensor:
        """Return the mean error of angles, shape (B,), that training descends."""
        return (mse_loss if self._settings.loss == "mse" else l1_loss)(angles, targets)

    def descend(self, participant: Participant, optimizers: Sequence[Adam | Sgd], objective: Objective) -> Figures:
        """Take the steps of a visit, and return the means of the objective's figures over them.

        Args:
            participant: whose visit.
            optimizers: what steps with the gradients.
            objective: returns what to descend on a batch, and figures to report.
        """
        rows: list[Mapping[str, Tensor]] = []
        for batch in self.batches(participant):
            total, figures = objective(batch)
            total.backward()  # type: ignore[no-untyped-call]
            for optimizer in optimizers:
                optimizer.step()
            rows.append(figures)
        return {name: float(torch.stack([row[name].detach() for row in rows]).mean()) for name in rows[0]}

    def optimizer(self, network: nn.Module, state: State) -> Adam | Sgd:
        """Return a network's optimizer, continued from ``state``, which is empty to begin."""
        settings = self._settings
        if settings.optimizer == "sgd":
            return Sgd(
                network.parameters(), learning_rate=settings.lr, momentum=0.0, weight_decay=settings.weight_decay
            )
        return Adam(
            dict(network.named_parameters()),
            learning_rate=settings.lr,
            weight_decay=settings.weight_decay,
            state=state,
        )

    def optimizer_state(self, optimizer: Adam | Sgd) -> dict[str, Tensor]:
        """Return what ``optimizer`` needs to continue, on the CPU."""
        return on_cpu(optimizer.state()) if isinstance(optimizer, Adam) else {}

    def optimizer_template(self) -> State:
        """Return names, shapes and types of an optimizer's state."""
        if self._settings.optimizer == "sgd":
            return {}
        return moments_like(dict(self.network.named_parameters()))

    @torch.no_grad()
    def errors(self, state: State) -> Errors:
        """Return the test errors of a model, BatchNorm with its running statistics."""
        self.network.load_state_dict(state)
        self.network.eval()
        parts = [self.network(frames.to(torch.float32) / 255) for frames in torch.split(self._test, EVALUATION_BATCH)]
        return _errors(torch.cat(parts) - self._test_angles)

    def constant_errors(self) -> Errors:
        """Return the test errors of the constant predictor: the mean training angle."""
        return _errors(self._angles.mean() - self._test_angles)

    def describe(self, facts: Mapping[str, str]) -> Description:
        """Return network, data distribution and what else the record says, the learner's own ``facts`` at the end."""
        sizes = self._silos.sizes
        angles = self._data.train_angles
        ranges = (angles >= -STRAIGHT).to(torch.int64) + (angles > STRAIGHT).to(torch.int64)
        return Description(
            encoder="resnet8",
            parameters=parameter_count(self.network),
            image_shape=self._image_shape,
            class_names=("left", "straight", "right"),
            silo_label_counts=self._silos.label_counts(ranges, 3),
            facts={
                "Forward pass": f"{self.flop / 1e6:.4g} MFLOP per frame (convolutions and linear layers)",
                "Model": f"{payload_bytes(self.network.state_dict()) / 1e6:.4g} MB",
                "Frames per silo": f"{min(sizes)} to {max(sizes)}, {sum(sizes)} in all",
                "Test frames": f"{len(self._test)} of {len(self._data.test)}, held by no silo",
                "Ranges": f"straight is a steering angle of at most {STRAIGHT} either way",
                "BatchNorm statistics": "sent and averaged with the same weights as the model",
                **facts,
            },
        )

    def sample_images(self, kernels_px: Sequence[float], count: int) -> NDArray[np.uint8]:
        """Return test frames blurred with each kernel length, evenly spread over the set; see ``blurred_samples``."""
        return blurred_samples(self._data.test[_spread(len(self._data.test), count)], kernels_px)

    @property
    def _image_shape(self) -> tuple[int, int, int]:
        channels, height, width = self._data.train.shape[1:]
        return int(channels), int(height), int(width)


def under(prefix: str, state: State) -> dict[str, Tensor]:
    """Return the tensors with ``prefix`` before their names."""
    return {f"{prefix}{name}": tensor for name, tensor in state.items()}


def below(prefix: str, state: State) -> dict[str, Tensor]:
    """Return the tensors whose names begin with ``prefix``, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}


def on_cpu(state: State) -> dict[str, Tensor]:
    """Return a copy of a network's state on the CPU that nothing else refers to."""
    return {name: tensor.cpu() for name, tensor in copy_state(state).items()}


def _spread(count: int, wanted: int) -> Tensor:
    """Return ``wanted`` of ``count`` frames (all when there are fewer), evenly spread, in order."""
    return torch.linspace(0, count - 1, min(wanted, count), dtype=torch.float64).round().to(torch.int64)


def _errors(error: Tensor) -> Errors:
    error = error.to(torch.float64)
    return Errors(rmse=math.sqrt(float(error.square().mean())), mae=float(error.abs().mean()))
