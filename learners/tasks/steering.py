"""The task of the steering learners: road frames in silos, ResNet-8, its local steps and its evaluation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from learners.data import load_steering
from learners.data.moving import to_device
from learners.data.partition import STRAIGHT, partition_steering
from learners.encoders import ResNet8, create_resnet8
from learners.engines.optimizers import Adam, Optimizer, Rate
from learners.engines.programs import State, Tensors
from learners.tasks.description import payload_bytes
from learners.tasks.evaluation import PASS, as_floats, estimate_statistics, forward_all
from learners.tasks.settings import TrainingSettings
from learners.tasks.task import Task, data_sources, spread, training_loss
from vnetsim.errors.bounds import TRAINS, Images, Within
from vnetsim.learning import Description, LearnerContext, Series

STATISTICS_FRAMES = 256
"""Training frames on which BatchNorm statistics are estimated for evaluation."""
LARGEST = torch.finfo(torch.float32).max

LOSS = training_loss("Squared error of the steering angle")
RMSE = Series(
    name="rmse",
    group="Error on held-out frames",
    label="Average model",
    unit="RMSE",
    caption="Root mean square error of the steering angle in [-1, 1], pooled over test frames that no silo has.",
)
MAE = Series(
    name="mae",
    group="Absolute error on held-out frames",
    label="Average model",
    unit="MAE",
    caption="Mean absolute error of the steering angle in [-1, 1], pooled over test frames that no silo has.",
)
RMSE_CONSTANT = replace(
    RMSE,
    name="rmse_constant",
    result=False,
    label="Constant predictor",
    caption="The constant predictor always returns the mean angle of the training frames.",
)
MAE_CONSTANT = replace(RMSE_CONSTANT, name="mae_constant", group=MAE.group, unit="MAE")
GLOBAL_SERIES = (LOSS, RMSE, RMSE_CONSTANT, MAE, MAE_CONSTANT)
"""Series of a learner with one model at the RSU, which is then the average model."""

RMSE_SILOS = replace(
    RMSE,
    name="rmse_silos",
    label="Silos, mean",
    caption="Average model: the mean of the models of the silos that took part so far; the others are those silos' "
    "own.",
)
SILO_SERIES = (
    LOSS,
    RMSE,
    RMSE_SILOS,
    replace(RMSE_SILOS, name="rmse_best", result=False, label="Best silo"),
    replace(RMSE_SILOS, name="rmse_worst", result=False, label="Worst silo"),
    RMSE_CONSTANT,
    MAE,
    replace(RMSE_SILOS, name="mae_silos", group=MAE.group, unit="MAE"),
    MAE_CONSTANT,
    Series(
        name="consensus_distance",
        result=False,
        label="Consensus distance",
        caption="Root mean square distance of the silos' parameters from their mean, after the round's mixing, over "
        "the silos that took part so far.",
    ),
)
"""Series of a learner whose silos have models of their own."""

MIXING_WEIGHT = Series(
    name="mixing_weight",
    label="Mixing weight",
    caption="Weight A_ij that the receiver i gives to the model of the sender j; 0 if the sender did not take part "
    "in the mixing, because it left before it was committed or sent non-finite values.",
)


@dataclass(frozen=True, kw_only=True)
class SteeringSettings(TrainingSettings):
    """Local training, averaging at the RSU and evaluation of a steering learner.

    Settings of the RSU's averaging have no effect where neighbours mix.

    The published values are a batch of 32, Adam with a learning rate of 1e-3 and a weight decay of 1e-5, a dropout of
    0.5, one step between two mixings, and more than a thousand rounds. The defaults let a run of 20 rounds learn: more
    steps in a local training, a higher learning rate, no dropout.

    Args:
        batch: frames per step, >= 2; a smaller silo uses all it has.
        steps: local steps of a local training, after which models are mixed once; the method's u, which uses every (u +
            1)-th step for mixing.
        optimizer: ``adam`` starts every local training without moments: CDL's published step is a plain gradient, which
            has none. ``adam-kept`` keeps Adam's moments in the silo until its next local training, though the model has
            changed by then. ``sgd`` has no momentum. The same for all steering learners, whoever averages.
        lr: learning rate; alpha_0 of the method.
        schedule: alpha_k over the rounds: ``constant``, or ``cosine``, falling from ``lr`` to 0. The method does not
            say how alpha_k changes.
        dropout: share of the features hidden from the linear layer during training, in [0, 1).
        test_frames: test frames to evaluate on, evenly spread over the set; 0 takes all.
    """

    batch: int = 32
    steps: int = 16
    optimizer: Annotated[Literal["adam", "adam-kept", "sgd"], TRAINS] = "adam"
    lr: float = 3e-3
    schedule: Annotated[Literal["constant", "cosine"], TRAINS] = "constant"
    weight_decay: float = 1e-5
    dropout: Annotated[float, Within(0, 0.99, "", "at 1 no feature is left"), TRAINS] = 0.0
    test_frames: Annotated[Images, TRAINS] = 300


class SteeringTask(Task):
    """Road frames in silos, ResNet-8, the squared error of the steering angle, and errors on held-out frames."""

    lower_is_better: ClassVar[bool] = True
    models_on_host: ClassVar[bool] = True
    picture: ClassVar[str] = "frame"
    network: ResNet8
    settings: SteeringSettings

    def __init__(self, context: LearnerContext, settings: SteeringSettings) -> None:
        given = context.experiment
        data = load_steering(given.data, **data_sources(context))
        indices = partition_steering(
            data, silos=given.silos.count, settings=given.data, generator=context.streams.generator("silos")
        )
        channels, height, width = (int(side) for side in data.train.shape[1:])
        network = create_resnet8((channels, height, width), seed=context.streams.integer("initial model"))
        super().__init__(context, settings, data, indices, network)
        self._angles = self._data.train_angles.to(self.device)
        frames = spread(len(self._data.test), settings.test_frames or len(self._data.test))
        self._test = self._data.test[frames].to(self.device)
        self._test_angles = self._data.test_angles[frames].to(self.device)
        drawn = context.streams.generator("batchnorm").permutation(len(self._data.train))[:STATISTICS_FRAMES]
        self._statistics = self._data.train[drawn].to(self.device)
        constant = _errors(self._angles.mean() - self._test_angles)
        self._constant = {f"{name}_constant": value for name, value in constant.items()}

    def draw(self, count: int, generator: torch.Generator) -> Tensors:
        """Return ``kept``, false for features that dropout hides, shape (count, width); {} without dropout."""
        share = self.settings.dropout
        return {"kept": torch.rand(count, self.network.width, generator=generator) >= share} if share > 0 else {}

    def prepare(self, images: Tensor, drawn: Tensors) -> Tensors:
        """Return ``images`` in [0, 1], their ``angles`` in [-1, 1], shape (B,), and ``kept`` if there is dropout."""
        there = to_device({name: drawn[name] for name in ("rows", "kept") if name in drawn}, self.device)
        return {"images": images, "angles": self._angles[there.pop("rows")], **there}

    def constants(self) -> Sequence[Tensor]:
        """Return the tensors that a step reads besides its arguments: the angles as well."""
        return (*super().constants(), self._angles)

    def dropout(self, features: Tensor, batch: Tensors) -> Tensor:
        """Return features (B, width), 0 where the batch's ``kept`` is false, and else times 1 / (1 - dropout)."""
        share = self.settings.dropout
        return features if share == 0 else features * batch["kept"] / (1 - share)

    def loss(self, model: nn.Module, batch: Tensors, base: Tensors) -> Tensor:  # noqa: ARG002 - see ``StepLoss``
        """Return the mean squared error of the steering angle (CDL's paper names it "MAE" and defines this).

        Its shape is (). Uses the batch's ``outputs`` if a method has already computed the angles; ``base`` is not used.
        """
        if "outputs" in batch:
            return mse_loss(batch["outputs"], batch["angles"])
        assert isinstance(model, ResNet8)
        return mse_loss(model.head(self.dropout(model.features(batch["images"]), batch)), batch["angles"])

    def series(self) -> Sequence[Series]:
        """Return all metrics of a learner with one model at the RSU, in the order of the report."""
        return GLOBAL_SERIES

    def learning_rate(self, passed: float) -> float:
        """Return alpha_k, the step size after ``passed``, a share of the run in [0, 1]."""
        return self.settings.lr if self.settings.schedule == "constant" else super().learning_rate(passed)

    def optimizer(self, parameters: Mapping[str, Tensor], rate: Rate, state: Tensors) -> Optimizer:
        """Return the optimizer of the settings, continued from ``state`` (empty: a new one); SGD is always new."""
        if self.settings.optimizer == "sgd":
            return super().optimizer(parameters, rate, state)
        return Adam(parameters, learning_rate=rate, weight_decay=self.settings.weight_decay, state=state)

    def kept(self, optimizer: Tensors) -> dict[str, Tensor]:
        """Return the optimizer's state, which a silo keeps, if ``optimizer`` is ``adam-kept``; otherwise nothing."""
        return dict(optimizer) if self.settings.optimizer == "adam-kept" else {}

    @torch.inference_mode()
    def evaluate(self, state: State, *, final: bool) -> Mapping[str, float]:  # noqa: ARG002  all is due every time
        """Return the test errors of a model, with newly estimated BatchNorm statistics, and of the constant predictor.

        ``state`` is not changed. Its statistics are not used: they move by a tenth per step, and so lag behind in short
        trainings. Names are ``rmse``, ``mae``, and both with ``_constant``.
        """
        self.network.load_state_dict(to_device(state, self.device))
        count = len(self._statistics)
        batches = torch.split(self._statistics, math.ceil(count / math.ceil(count / PASS)))  # of equal size
        estimate_statistics(self.network, map(as_floats, batches))
        self.network.eval()
        angles = forward_all(self.network, self._test)
        return {**_errors(angles - self._test_angles), **self._constant}

    def describe(self, facts: Mapping[str, str]) -> Description:
        """Return network, data distribution and facts for the run's record; the learner's own ``facts`` come last."""
        angles = self._data.train_angles
        ranges = (angles >= -STRAIGHT).to(torch.int64) + (angles > STRAIGHT).to(torch.int64)
        return self.described(
            {
                "Model": f"{payload_bytes(self.network.state_dict()) / 1e6:.4g} MB",
                "Test frames": f"{len(self._test)} of {len(self._data.test)}, held by no silo",
                "Ranges": f"straight is a steering angle of at most {STRAIGHT} either way",
                "BatchNorm statistics": "sent and averaged with the same weights as the model; for evaluation "
                f"re-estimated on {len(self._statistics)} training frames, drawn once from all silos'",
                "Optimizer": "a silo's goes on where its last local training ended"
                if self.settings.optimizer == "adam-kept"
                else "a new one at each local training",
                **facts,
            },
            encoder="resnet8",
            returns="steering angles in [-1, 1], shape (N,)",
            classes=("left", "straight", "right"),
            labels=ranges,
            own_statistics=False,
        )


def _errors(error: Tensor) -> dict[str, float]:
    """Return ``rmse`` and ``mae`` of errors (N,); NaN and infinite errors count as the largest float32."""
    error = error.to(torch.float64).nan_to_num(nan=LARGEST, posinf=LARGEST, neginf=-LARGEST)
    square, modulus = torch.stack([error.square().mean(), error.abs().mean()]).tolist()
    return {"rmse": math.sqrt(square), "mae": modulus}
