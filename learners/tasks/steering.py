"""The task that steering learners share: road frames in silos, ResNet-8, its local steps and its evaluation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from learners.data import load_steering
from learners.data.moving import moved
from learners.data.partition import STRAIGHT, partition_steering
from learners.encoders import parameter_count
from learners.encoders.batchnorm import estimate_statistics
from learners.encoders.resnet8 import ResNet8, create_resnet8
from learners.engines.optimizers import Adam, Optimizer, Rate, moments_like
from learners.engines.programs import Loss, Program, Tensors, copy_state
from learners.state.global_model import State
from learners.tasks.evaluation import PASS, as_floats, passed
from learners.tasks.steering_settings import SteeringSettings
from learners.tasks.task import Task, payload_bytes, spread
from vnetsim.learning import Description, LearnerContext, Network

STATISTICS_FRAMES = 256
"""Training frames on which BatchNorm statistics are estimated for evaluation."""


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Errors of a model, pooled over all test frames.

    Args:
        rmse: sqrt(sum of squares / number).
        mae: mean of the moduli.
    """

    rmse: float
    mae: float


class SteeringTask(Task):
    """Everything of a steering learner but what its vehicles learn from each other.

    Args:
        context: what the simulator gives every learner.
        settings: local training and evaluation.
    """

    network: ResNet8

    def __init__(self, context: LearnerContext, settings: SteeringSettings) -> None:
        self._settings = settings
        own = {} if context.dataset is None else {"settings": context.dataset}
        self._data = load_steering(context.data, streams=context.streams.child("data"), **own)
        indices = partition_steering(
            self._data,
            silos=context.silos,
            approaches=context.approaches,
            settings=context.data,
            generator=context.streams.generator("silos"),
        )
        channels, height, width = (int(side) for side in self._data.train.shape[1:])
        network = create_resnet8((channels, height, width), seed=context.streams.integer("initial model"))
        super().__init__(
            context, settings, train=self._data.train, test=self._data.test, indices=indices, network=network
        )
        self._angles = self._data.train_angles.to(self.device)
        frames = spread(len(self._data.test), settings.test_frames or len(self._data.test))
        self._test = self._data.test[frames].to(self.device)
        self._test_angles = self._data.test_angles[frames].to(self.device)
        drawn = context.streams.generator("batchnorm").permutation(len(self._data.train))[:STATISTICS_FRAMES]
        self._statistics = self._data.train[drawn].to(self.device)

    def initial_state(self) -> State:
        """Return theta^0, on the CPU."""
        seed = self._context.streams.integer("initial model")
        return copy_state(create_resnet8(self.image_shape, seed=seed).state_dict())

    def steer(
        self,
        loss: Loss,
        *,
        network: nn.Module | None = None,
        optimizer: Callable[[Mapping[str, Tensor], Rate, Tensors], Optimizer] | None = None,
        masks: int = 1,
    ) -> Program:
        """Return the local training on frames and their steering angles.

        Args:
            loss: of a step; its batch holds ``images`` in [0, 1], ``angles`` in [-1, 1] of shape (B,), and what
                ``dropout`` needs.
            network: what is trained; the steering network by default.
            optimizer: that of the settings by default.
            masks: dropout masks of a step.
        """
        share, width = self._settings.dropout, self.network.width
        masked = [f"kept{i}" for i in range(masks)] if share > 0 else []

        def draw(count: int, generator: torch.Generator) -> Tensors:
            return {name: torch.rand(count, width, generator=generator) >= share for name in masked}

        def prepare(images: Tensor, drawn: Tensors) -> Tensors:
            there = moved({name: drawn[name] for name in drawn if name == "rows" or name in masked}, self.device)
            return {"images": images, "angles": self._angles[there.pop("rows")], **there}

        return self.program(loss, draw=draw, prepare=prepare, optimizer=optimizer or self.optimizer, network=network)

    def dropout(self, features: Tensor, batch: Tensors, mask: int = 0) -> Tensor:
        """Return the features with a random part set to 0 and the others scaled up to the same expectation."""
        share = self._settings.dropout
        return features if share == 0 else features * batch[f"kept{mask}"] / (1 - share)

    def steering_loss(self, angles: Tensor, targets: Tensor) -> Tensor:
        """Return the mean squared error of angles, shape (B,), that training descends.

        CDL's description writes "mean square error (MAE)".
        """
        return mse_loss(angles, targets)

    def learning_rate(self, base_round: int) -> float:
        """Return alpha_k, the step size of a local training that starts from the model of ``base_round``."""
        return self._settings.lr if self._settings.schedule == "constant" else self.cosine_rate(base_round)

    def optimizer(self, parameters: Mapping[str, Tensor], rate: Rate, state: Tensors) -> Optimizer:
        """Return the optimizer of the settings, continued from ``state``, which is empty to begin."""
        if self._settings.optimizer == "sgd":
            return self.sgd(0.0)(parameters, rate, state)
        return Adam(parameters, learning_rate=rate, weight_decay=self._settings.weight_decay, state=state)

    def kept(self, optimizer: Tensors) -> dict[str, Tensor]:
        """Return what a silo keeps of an optimizer's state; nothing where each is fresh."""
        return dict(optimizer) if self._settings.optimizer_state == "kept" else {}

    def optimizer_template(self) -> State:
        """Return names, shapes and types of what a silo may keep of an optimizer's state."""
        if self._settings.optimizer == "sgd" or self._settings.optimizer_state == "fresh":
            return {}
        return moments_like(dict(self.network.named_parameters()))

    @torch.inference_mode()
    def errors(self, state: State) -> Errors:
        """Return the test errors of a model, which stays as it is, with BatchNorm statistics estimated anew.

        Those that a model carries follow its weights by a tenth of the way a step: in short trainings they lag.
        """
        self.network.load_state_dict(moved(state, self.device))
        estimate_statistics(self.network, self._pass_statistics)
        self.network.eval()
        angles = passed(self.network, self._test)
        return _errors(angles - self._test_angles)

    def _pass_statistics(self) -> None:
        count = len(self._statistics)
        # on any device: variances are taken within a pass, so its size is part of the result
        for frames in torch.split(self._statistics, math.ceil(count / math.ceil(count / PASS))):  # of equal size
            self.network(as_floats(frames))

    def constant_errors(self) -> Errors:
        """Return the test errors of the constant predictor: the mean training angle."""
        return _errors(self._angles.mean() - self._test_angles)

    def describe(self, facts: Mapping[str, str]) -> Description:
        """Return network, data distribution and what else the record says, the learner's own ``facts`` at the end."""
        sizes = self.silos.sizes
        angles = self._data.train_angles
        ranges = (angles >= -STRAIGHT).to(torch.int64) + (angles > STRAIGHT).to(torch.int64)
        return Description(
            encoder="resnet8",
            parameters=parameter_count(self.network),
            image_shape=self.image_shape,
            class_names=("left", "straight", "right"),
            silo_label_counts=self.silos.label_counts(ranges, 3),
            network=Network(
                module=self.network,
                returns="steering angles in [-1, 1], shape (N,)",
                mean=(0.0,) * self.image_shape[0],
                std=(1.0,) * self.image_shape[0],
                own_statistics=False,
            ),
            facts={
                "Forward pass": f"{self.flop / 1e6:.4g} MFLOP per frame (convolutions and linear layers)",
                "Model": f"{payload_bytes(self.network.state_dict()) / 1e6:.4g} MB",
                "Frames per silo": f"{min(sizes)} to {max(sizes)}, {sum(sizes)} in all",
                "Test frames": f"{len(self._test)} of {len(self._data.test)}, held by no silo",
                "Ranges": f"straight is a steering angle of at most {STRAIGHT} either way",
                "BatchNorm statistics": "sent and averaged with the same weights as the model; for evaluation "
                f"re-estimated on {len(self._statistics)} training frames, drawn once from all silos'",
                "Optimizer": {
                    "fresh": "a new one at each local training",
                    "kept": "a silo's goes on where its last local training ended",
                }[self._settings.optimizer_state],
                **({"Pixels": self._data.pixels} if self._data.pixels else {}),
                **self.engine_facts,
                **facts,
            },
        )


def _errors(error: Tensor) -> Errors:
    error = error.to(torch.float64)
    square, modulus = torch.stack([error.square().mean(), error.abs().mean()]).tolist()
    return Errors(rmse=math.sqrt(square), mae=modulus)
