"""FedAvg on the classification task: the baseline of FedEFM."""

from __future__ import annotations

from dataclasses import dataclass

from learners.averaging import WeightSettings
from learners.federated import FederatedLearner, Parts, federated_averaging
from learners.tasks.classification import DEFAULTS, SCALES, ClassificationSettings, ClassificationTask
from vnetsim.learning import LearnerContext


@dataclass(frozen=True, kw_only=True)
class ClassificationAveragingSettings(WeightSettings, ClassificationSettings):
    """Local training on labelled images, weights of the uploads, averaging and evaluation."""


class ClassificationFedAvg(FederatedLearner):
    """Local SGD on the cross-entropy; uploads weigh by their silos' images."""

    name, task, Settings = "fedavg-classification", "classification", ClassificationAveragingSettings
    paper = (
        "McMahan et al. (2017): Communication-efficient learning of deep networks from decentralized data; "
        "as baseline of FedEFM"
    )
    equations = (
        "loss: L_i = CE(Q, y) over the union of labels, steps of SGD from Theta",
        "average: Theta = sum_i n_i / n theta_i, n_i images in silo i, n = sum_i n_i  (McMahan et al., Algorithm 1)",
        "with learning.weights = equal: Theta = 1 / N sum_i theta_i, as in FedEFM",
    )
    defaults, scales = DEFAULTS, SCALES

    @staticmethod
    def parts(context: LearnerContext, settings: ClassificationAveragingSettings) -> Parts:
        """Return the classification task, local steps on its cross-entropy, and an RSU that averages."""
        return federated_averaging(context, settings, ClassificationTask(context, settings))
