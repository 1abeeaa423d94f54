"""Federated contrastive learning among vehicles: everything that FLSimCo and its baselines have in common.

Per round, every vehicle that commits downloads theta^r, takes a few SGD steps on its own images with the
dual-temperature loss, and uploads theta_n; the RSU averages. The methods differ in the weights alone, so a method is
a subclass that names itself and gives ``weights``; nothing else is overridden.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from learners.aggregation import Weights, weighted_mean
from learners.contrastive_settings import SERIES, ContrastiveSettings
from learners.data import load_images
from learners.data.augment import view_one, view_two
from learners.data.motion import motion_blur
from learners.data.partition import partition
from learners.encoders import create_encoder, forward_flop, parameter_count
from learners.evaluation import Evaluator
from learners.global_model import GlobalModel, State
from learners.losses import dual_temperature_loss
from learners.silos import Silos
from learners.training import SequentialEngine, Visit, copy_state
from vnetsim.learning import Cost, Description, LearnerContext, Participant, Series, Update

VIEWS = 2
BACKWARD_FACTOR = 3
"""Work of forward and backward pass in forward passes: the backward pass computes two products for each one."""


class ContrastiveLearner(ABC):
    """The RSU and its vehicles; implements ``vnetsim.learning.Learner`` but for the names and the weights.

    Args:
        context: what the simulator gives every learner.
        settings: the method's settings.
    """

    name: ClassVar[str]
    task: ClassVar[str] = "contrastive"
    paper: ClassVar[str]
    Settings: ClassVar[type]

    def __init__(self, context: LearnerContext, settings: ContrastiveSettings) -> None:
        self._context = context
        self._settings = settings
        device = torch.device(context.device)
        streams = context.streams
        self._data = load_images(context.data, streams=streams.child("data"))
        indices = partition(
            self._data.train_labels.numpy(),
            silos=context.silos,
            approaches=context.approaches,
            settings=context.data,
            generator=streams.generator("silos"),
        )
        self._silos = Silos(self._data.train, indices, device=device)
        encoder = create_encoder(settings.encoder, seed=streams.integer("initial model"))
        self._flop = forward_flop(encoder, self._image_shape)
        self._parameters = parameter_count(encoder)
        # channels last is what CPU and CUDA convolve fastest
        encoder = encoder.to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._global = GlobalModel(copy_state(encoder.state_dict()), max_staleness=context.max_staleness)
        self._engine = SequentialEngine(
            encoder,
            self._silos,
            objective=self._loss,
            steps=settings.steps,
            batch=settings.batch,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
        )
        bank = streams.generator("bank").permutation(len(self._data.train))[: settings.bank or None]
        self._evaluator = Evaluator(
            encoder,
            bank=self._data.train[bank].to(device),
            bank_labels=self._data.train_labels[bank].to(device),
            test=self._data.test.to(device),
            test_labels=self._data.test_labels.to(device),
            classes=len(self._data.class_names),
            mean=self._data.mean,
            std=self._data.std,
            recalibrate=settings.batchnorm == "local",
        )

    @abstractmethod
    def weights(self, participants: Sequence[Participant]) -> Weights:
        """Return the aggregation weight of every participant: summing to 1, or all 0 to keep the global model."""

    @classmethod
    @final
    def create(cls, context: LearnerContext, settings: Any) -> Self:
        """Build the learner; see ``vnetsim.learning.Learner``."""
        return cls(context, settings)

    @final
    def describe(self) -> Description:
        """Return encoder, data distribution and what else the record says."""
        sizes = self._silos.sizes
        return Description(
            encoder=self._settings.encoder,
            parameters=self._parameters,
            image_shape=self._image_shape,
            class_names=tuple(self._data.class_names),
            silo_label_counts=self._silos.label_counts(self._data.train_labels, len(self._data.class_names)),
            facts={
                "Forward pass": f"{self._flop / 1e6:.4g} MFLOP per image (convolutions and linear layers)",
                "Model": f"{self._payload_bytes / 1e6:.4g} MB each way",
                "Images per silo": f"{min(sizes)} to {max(sizes)}, {sum(sizes)} in all",
                "Test images": f"{len(self._data.test)}, held by no vehicle",
                "BatchNorm statistics": {
                    "average": "sent and averaged with the same weights as the model",
                    "local": "kept in the vehicles; estimated on the bank for evaluation",
                }[self._settings.batchnorm],
            },
        )

    @final
    def series(self) -> Sequence[Series]:
        """Return the metrics of ``aggregate`` and ``evaluate``."""
        never = self._settings.linear_probe == "never"
        return tuple(series for series in SERIES if not (never and series.name == "linear_accuracy"))

    @final
    def cost(self, silo: int) -> Cost:
        """Return the model's bytes each way, and the work of all steps on both views, forward and backward."""
        images = self._engine.images_per_visit(silo)
        return Cost(
            download_bytes=self._payload_bytes,
            upload_bytes=self._payload_bytes,
            work_flop=float(images * VIEWS * BACKWARD_FACTOR * self._flop),
        )

    @final
    def train(self, participants: Sequence[Participant]) -> Sequence[Update]:
        """Train every participant from the global model of its ``base_round``; see ``vnetsim.learning.Learner``."""
        return [self._train_one(participant) for participant in participants]

    @final
    def aggregate(self, updates: Sequence[Update]) -> tuple[Sequence[float], Mapping[str, float]]:
        """Fold the finite updates into the global model and end the round; see ``vnetsim.learning.Learner``."""
        finite = [update for update in updates if update.finite]
        weights = self.weights([update.participant for update in finite])
        state = dict(self._global.current)
        if weights.any():
            state.update(weighted_mean([update.state for update in finite], weights))
        metrics = {"learning_rate": self._learning_rate(self._global.round)}
        if finite:
            metrics["loss"] = sum(update.loss for update in finite) / len(finite)
            if weights.any():
                metrics["weight_deviation"] = float(np.sqrt(np.mean((weights * len(finite) - 1) ** 2)))
        self._global.advance(state)
        of_finite = iter(weights.tolist())
        return [next(of_finite) if update.finite else 0.0 for update in updates], metrics

    @final
    def evaluate(self, *, final: bool) -> Mapping[str, float]:
        """Return kNN accuracy, and the linear probe's when it is due."""
        probe = self._settings.linear_probe
        return self._evaluator.measure(
            self._global.current,
            k=self._settings.knn_k,
            temperature=self._settings.knn_temperature,
            linear_probe=probe == "every" or (final and probe == "final"),
        )

    @final
    def state_dict(self) -> dict[str, Any]:
        """Return the global models and the round; every random draw follows from seed, round and vehicle."""
        return dict(self._global.state_dict())

    @final
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        self._global.load_state_dict(state)

    @final
    def sample_images(self, kernels_px: Sequence[float], count: int) -> NDArray[np.uint8]:
        """Return the first test images blurred with each kernel length, shape (len(kernels_px), count, H, W, C)."""
        images = self._data.test[:count].to(torch.float32) / 255
        rows = [motion_blur(images, torch.full((len(images),), float(kernel))) for kernel in kernels_px]
        blurred = torch.stack(rows).mul(255).round().clamp(0, 255).to(torch.uint8)
        return blurred.permute(0, 1, 3, 4, 2).contiguous().numpy()

    @property
    def _image_shape(self) -> tuple[int, int, int]:
        channels, height, width = self._data.train.shape[1:]
        return int(channels), int(height), int(width)

    @property
    def _payload_bytes(self) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in self._sent(self._global.current).values())

    def _sent(self, state: State) -> dict[str, Tensor]:
        """The part of a model's state that crosses the radio link."""
        if self._settings.batchnorm == "average":
            return dict(state)
        statistics = ("running_mean", "running_var", "num_batches_tracked")
        return {name: tensor for name, tensor in state.items() if not name.endswith(statistics)}

    def _loss(self, model: nn.Module, images: Tensor, generator: torch.Generator) -> Tensor:
        q = model(view_one(images, generator, self._data.mean, self._data.std))
        k = model(view_two(images, generator, self._data.mean, self._data.std))
        return dual_temperature_loss(q, k, t_alpha=self._settings.t_alpha, t_beta=self._settings.t_beta)

    def _learning_rate(self, base_round: int) -> float:
        progress = min(base_round / self._context.rounds, 1.0)
        return self._settings.lr * (1 + math.cos(math.pi * progress)) / 2

    def _train_one(self, participant: Participant) -> Update:
        blur = self._context.blur
        blurs = participant.speed_mps > blur.threshold_kmh / 3.6
        kernel_px = self._context.camera.kernel_px(participant.speed_mps, self._silos.image_px) if blurs else 0.0
        trained = self._engine.train(
            self._global.at(participant.base_round),
            Visit(
                silo=participant.silo,
                kernel_px=kernel_px,
                blurred_fraction=blur.fraction,
                learning_rate=self._learning_rate(participant.base_round),
                seed=self._context.streams.integer("training", participant.round, participant.vehicle_id),
            ),
        )
        return Update(
            participant=participant,
            state=self._sent(trained.state),
            loss=trained.loss,
            finite=trained.finite and math.isfinite(trained.loss),
            metrics={"kernel_px": kernel_px},
        )
