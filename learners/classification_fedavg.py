"""FedAvg on the classification task: the baseline of FedEFM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from learners.federated import FederatedLearner, Parts, federated_averaging
from learners.tasks.classification import DEFAULTS, SCALES, ClassificationSettings, ClassificationTask
from vnetsim.learning import LearnerContext


class ClassificationFedAvg(FederatedLearner):
    """Local SGD on the cross-entropy; all uploads have equal weights."""

    name: ClassVar[str] = "fedavg-classification"
    task: ClassVar[str] = "classification"
    paper: ClassVar[str] = (
        "McMahan et al. (2017): Communication-efficient learning of deep networks from decentralized data; "
        "as baseline of FedEFM"
    )
    equations: ClassVar[tuple[str, ...]] = (
        "loss: L_i = CE(Q, y) over the union of labels, steps of SGD from Theta",
        "average: Theta = 1 / N sum_i theta_i  (McMahan et al., Algorithm 1, with silos of one size)",
    )
    defaults: ClassVar[Mapping[str, object]] = DEFAULTS
    scales: ClassVar[Mapping[str, Mapping[str, object]]] = SCALES
    Settings: ClassVar[type] = ClassificationSettings

    @staticmethod
    def parts(context: LearnerContext, settings: ClassificationSettings) -> Parts:
        """Return the classification task, local steps on its cross-entropy, and weights 1 / N for N uploads."""
        return federated_averaging(context, settings, ClassificationTask(context, settings))
