"""Settings and metrics of the steering learners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from learners.mathematics.robust import AveragingSettings
from learners.tasks.training_settings import TrainingSettings
from vnetsim.learning import Series
from vnetsim.setting_checks import Images, Within

LOSS = Series(
    name="loss",
    label="Training loss",
    unit="",
    caption="Squared error of the steering angle, mean over the aggregated vehicles and their local steps.",
)
RMSE = Series(
    name="rmse",
    group="Error on held-out frames",
    label="Average model",
    unit="RMSE",
    caption="Root mean square error of the steering angle in [-1, 1], pooled over test frames that no silo holds.",
)
MAE = Series(
    name="mae",
    group="Absolute error on held-out frames",
    label="Average model",
    unit="MAE",
    caption="Mean absolute error of the steering angle in [-1, 1], pooled over test frames that no silo holds.",
)
RMSE_CONSTANT = Series(
    name="rmse_constant",
    group="Error on held-out frames",
    result=False,
    label="Constant predictor",
    unit="RMSE",
    caption="The constant predictor always answers the mean angle of the training frames.",
)
MAE_CONSTANT = Series(
    name="mae_constant",
    group="Absolute error on held-out frames",
    result=False,
    label="Constant predictor",
    unit="MAE",
    caption=RMSE_CONSTANT.caption,
)
GLOBAL_SERIES = (LOSS, RMSE, RMSE_CONSTANT, MAE, MAE_CONSTANT)
"""What a learner with one model at the RSU reports; the average model is that one."""

_OF_SILOS = "Average model: the mean of the models of the silos that took part so far; the others are those silos' own."
SILO_SERIES = (
    LOSS,
    RMSE,
    Series(name="rmse_silos", group="Error on held-out frames", label="Silos, mean", unit="RMSE", caption=_OF_SILOS),
    Series(
        name="rmse_best",
        group="Error on held-out frames",
        result=False,
        label="Best silo",
        unit="RMSE",
        caption=_OF_SILOS,
    ),
    Series(
        name="rmse_worst",
        group="Error on held-out frames",
        result=False,
        label="Worst silo",
        unit="RMSE",
        caption=_OF_SILOS,
    ),
    RMSE_CONSTANT,
    MAE,
    Series(
        name="mae_silos",
        group="Absolute error on held-out frames",
        label="Silos, mean",
        unit="MAE",
        caption=_OF_SILOS,
    ),
    MAE_CONSTANT,
    Series(
        name="consensus_distance",
        result=False,
        label="Consensus distance",
        unit="",
        caption="Root mean square distance of the silos' parameters from their mean, after the round's mixing, over "
        "the silos that took part so far.",
    ),
)
"""What a learner reports whose silos have models of their own."""

MIXING_WEIGHT = Series(
    name="mixing_weight",
    label="Mixing weight",
    unit="",
    caption="Weight A_ij that the receiver i gives to the model of the sender j; 0 when the sender did not take part "
    "in the mixing, because it left before it was committed or sent non-finite values.",
)


@dataclass(frozen=True, kw_only=True)
class SteeringSettings(TrainingSettings, AveragingSettings):
    """Local training, averaging at the RSU and evaluation of a steering learner.

    How an RSU averages has no effect where neighbours mix.

    The published values are a batch of 32, Adam with a learning rate of 1e-3 and a weight decay of 1e-5, a dropout of
    0.5, one step between two mixings, and more than a thousand rounds. The defaults make a run of 20 rounds learn: more
    steps in a local training, a higher learning rate, no dropout.

    Args:
        batch: frames per step, >= 2; a smaller silo gives all it has.
        steps: local steps of a local training, after which models are mixed once; the method's u, which takes every
            (u + 1)-th step of its count for the mixing.
        optimizer: ``adam``, or ``sgd`` without momentum.
        optimizer_state: ``fresh`` begins every local training without memory: CDL's published step is a plain
            gradient, which has none. ``kept`` leaves Adam's moments in the silo until its next local training, by when
            they are those of another model. The same for all steering learners, whoever averages.
        lr: learning rate; alpha_0 of the method.
        schedule: alpha_k over the rounds: ``constant``, or ``cosine``, falling from ``lr`` to 0. The method writes
            alpha_k and does not say how it changes.
        weight_decay: factor of the parameters added to their gradients.
        dropout: share of the features that the linear layer does not see during training, in [0, 1).
        test_frames: test frames to evaluate on, evenly spread over the set; 0 takes all.
    """

    batch: int = 32
    steps: int = 16
    optimizer: Literal["adam", "sgd"] = "adam"
    optimizer_state: Literal["fresh", "kept"] = "fresh"
    lr: float = 3e-3
    schedule: Literal["constant", "cosine"] = "constant"
    weight_decay: float = 1e-5
    dropout: Annotated[float, Within(0, 0.99, "", "at 1 no feature is left")] = 0.0
    test_frames: Images = 300
