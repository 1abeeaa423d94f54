"""FedNova: uploads are divided by how far their number of steps took them, so that many steps do not weigh more.

Wang et al. (2020), Tackling the objective inconsistency problem in heterogeneous federated optimization,
arXiv:2007.07481. On the road steps differ where a pace lets vehicles stop early; with equal numbers of steps it is
FedAvg.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from learners.averaging import averaging_server, weights_of
from learners.classification_fedavg import ClassificationAveragingSettings
from learners.federated import FederatedLearner, Parts
from learners.local_training import LocalSteps
from learners.mathematics.weights import Weights, count_gradients
from learners.tasks.classification import DEFAULTS, SCALES, ClassificationTask
from vnetsim.learning import LearnerContext, Participant


class FedNova(FederatedLearner):
    """Normalised averaging of labelled images' models, also of BatchNorm's statistics; local steps are FedAvg's."""

    name, task, Settings = "fednova-classification", "classification", ClassificationAveragingSettings
    paper = (
        "Wang et al. (2020): Tackling the objective inconsistency problem in heterogeneous federated optimization, "
        "arXiv:2007.07481"
    )
    equations = (
        "a_k = [tau_k - rho (1 - rho^tau_k) / (1 - rho)] / (1 - rho), tau_k local steps with momentum rho",
        "theta^(r+1) = theta^r - tau_eff sum_k p_k (theta^r - theta_k) / a_k, tau_eff = sum_k p_k a_k",
        "p_k = n_k / n, or 1 / N  (learning.weights)",
    )
    defaults, scales = DEFAULTS, SCALES
    takes_aggregation_rule = False

    @staticmethod
    def parts(context: LearnerContext, settings: ClassificationAveragingSettings) -> Parts:
        """Return the classification task, local steps, and an RSU that normalises uploads by their steps."""
        task = ClassificationTask(context, settings)
        shares = weights_of(task, settings)

        def counts(participants: Sequence[Participant]) -> Weights:
            """Return a_k, the number of gradients in the change, of each participant."""
            steps = [one.steps_of(settings.steps) for one in participants]
            return np.array([count_gradients(one, settings.momentum) for one in steps])

        def weights(participants: Sequence[Participant]) -> Weights:
            """Return p_k / a_k, scaled to the sum 1; p_k if all a_k are equal."""
            p, a = shares(participants), counts(participants)
            return p / a / (p / a).sum() if len(set(a)) > 1 else p

        def step(participants: Sequence[Participant]) -> float:
            """Return tau_eff sum_k p_k / a_k: how far the model goes to the mean; 1 for equal a_k, or a robust mean."""
            p, a = shares(participants), counts(participants)
            return float((p * a).sum() * (p / a).sum()) if len(set(a)) > 1 and settings.aggregation == "mean" else 1.0

        server = averaging_server(context, settings, task, task.initial_state(), weights=weights, step=step)
        return Parts(task=task, local=LocalSteps(task), server=server)
