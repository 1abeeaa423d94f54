"""Settings and metrics of CDL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from learners.tasks.steering_settings import SteeringSettings
from learners.tasks.training_settings import Temperature
from vnetsim.learning import Series
from vnetsim.setting_checks import Share

_OF_BOTH = (
    "Divergence between the features of backbone b and sub-network s on the training frames, mean over the steps of "
    "the round's vehicles; silos in their first round have none."
)
DIVERGENCES = (
    Series(
        name="kl_b_s",
        group="Divergence of backbone and sub-network",
        result=False,
        label="KL(b || s)",
        unit="nat",
        caption=_OF_BOTH,
    ),
    Series(
        name="kl_s_b",
        group="Divergence of backbone and sub-network",
        result=False,
        label="KL(s || b)",
        unit="nat",
        caption=_OF_BOTH,
    ),
)
INFLUENCE = Series(
    name="divergence_influence",
    result=False,
    label="Influence of theta_s",
    unit="",
    caption="Factor of KL(b || s) in what the backbone descends (learning.divergence_schedule), mean over the vehicles "
    "whose silo has a sub-network.",
)
GRADIENTS = (
    Series(
        name="gradient_ratio",
        result=False,
        label="Gradient ratio",
        unit="",
        caption="|grad L_cd| / |grad L_lr|: gradient of the divergence, as weighted, over that of the steering error, "
        "both with respect to the backbone, at the first step of a local training; mean over the vehicles whose silo "
        "has a sub-network. Near 0 the divergence is nearly off.",
    ),
    Series(
        name="gradient_cosine",
        result=False,
        label="Gradient cosine",
        unit="",
        caption="Cosine between the gradients of the divergence and of the steering error with respect to the "
        "backbone, at the first step of a local training; mean over the vehicles whose silo has a sub-network. Below 0 "
        "they work against each other.",
    ),
)


@dataclass(frozen=True, kw_only=True)
class CdlSettings(SteeringSettings):
    """Settings of CDL: the task's, and those of the divergence.

    Args:
        coupling: how the two terms act. ``unit``: the backbone descends KL(b || s), the sub-network KL(s || b), each
            with the other held fixed, as in the published update equations. ``beta``: the same with the weights
            ``beta`` and 1 - ``beta`` of the published L_cd. ``joint``: both networks descend the whole of
            beta KL(b || s) + (1 - beta) KL(s || b), nothing held fixed.
        beta: weight of KL(b || s), where ``coupling`` weights it; KL(s || b) has 1 - ``beta``; in [0, 1].
        divergence_schedule: how the sub-network's influence on the backbone changes, a factor of KL(b || s) in what
            the backbone descends; under ``joint`` and ``released`` of the whole term. The description says that "once
            the distribution between silos achieves an acceptable level of synchronization, we reduce the influence of
            the sub-network", and neither when nor how; these are our readings. ``constant``: 1. ``linear``: from 1 in
            the first round to 0 after the last. ``measured``: KL(b || s) over the silo's last local training,
            divided by the largest so far.
        tau: temperature of the softmax over the features, the input of the linear layer, > 0. None is published. In the
            study ``cdl-table``, size small, the divergence's gradient was 14 to 21 times the steering error's in the
            mean at 1, and the error larger than at 4, where it was 4 %.
        variant: ``described``, or ``released``, the loss of the authors' published code for comparison. That code feeds
            sigmoids of the two networks' angles to a function that expects a logarithm: with P = sigmoid(y_b) and
            S = sigmoid(y_s) its term is beta S (log S - P) + (1 - beta) P (log P - S), gradients through both. It is
            no divergence: it falls as P and S grow, so that both angles are pulled up; a constant target of 0 ends at
            +0.10 for ``beta`` 0.5. It also sends and mixes the sub-network, which doubles the payload. Not imitated
            are that code's common first layer of both networks, its ReLU on the scaled image, its rounding of angles,
            and its copy of the backbone to the sub-network in the last silo alone. ``coupling`` and ``tau`` have no
            effect.
    """

    coupling: Literal["unit", "beta", "joint"] = "unit"
    beta: Share = 0.5
    divergence_schedule: Literal["constant", "linear", "measured"] = "constant"
    tau: Temperature = 4.0
    variant: Literal["described", "released"] = "described"
