"""Settings and metrics of FedEFM."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from learners.mathematics.transport import Solver
from learners.tasks.classification_settings import ACCURACY, LOSS, ClassificationSettings
from learners.tasks.training_settings import Steps, Temperature
from vnetsim.learning import Series
from vnetsim.setting_checks import Share, Within

_SIMILARITY = (
    "Earth mover's similarity of the dense features of a vehicle's model and of its copy that was trained at the "
    "host's data, on the vehicle's own images (FedEFM Eq. 3): the weight of that teacher, where positive. Over all "
    "copies that taught in the round."
)
EMD = Series(
    name="emd",
    group="Earth mover's similarity",
    result=False,
    label="EMD weights, mean",
    unit="EMD",
    caption=_SIMILARITY,
)
EMD_LEAST = Series(
    name="emd_least",
    group="Earth mover's similarity",
    result=False,
    label="EMD weights, smallest",
    unit="EMD",
    caption=_SIMILARITY,
)
EMD_LARGEST = Series(
    name="emd_largest",
    group="Earth mover's similarity",
    result=False,
    label="EMD weights, largest",
    unit="EMD",
    caption=_SIMILARITY,
)
TEACHERS = Series(
    name="teachers",
    result=False,
    label="Returned copies per vehicle",
    unit="",
    caption="Copies of its model that an aggregated vehicle got back from neighbours and learned from, mean.",
)
TAUGHT_LOSS = {
    "literal": "Before a copy came back the cross-entropy over the union of labels; with copies the sum of Eq. 2 "
    "(divergence in place of the soft cross-entropy), mean over the aggregated vehicles and their local steps.",
    "labels-once": "Before a copy came back the cross-entropy over the union of labels; with copies (1 - beta) of it "
    "and beta of the divergence from the teachers, mean over the aggregated vehicles and their local steps.",
}
_OF_SILOS = "Of the models of the silos that took part so far, on the test images, which no vehicle holds."
OWN_ACCURACY = (
    ACCURACY,  # one metric with and without a server, so that the two can be compared
    Series(name="accuracy_silos", group="Accuracy", label="Silos, mean", unit="%", caption=_OF_SILOS),
    Series(name="accuracy_best", group="Accuracy", result=False, label="Best silo", unit="%", caption=_OF_SILOS),
    Series(name="accuracy_worst", group="Accuracy", result=False, label="Worst silo", unit="%", caption=_OF_SILOS),
)
"""Accuracy where silos have models of their own."""
EXCHANGED = replace(
    EMD,
    unit="",
    label="EMD similarity",
    caption="Earth mover's similarity of the sender's model and its copy that was trained at the receiver's data, on "
    "the sender's images (FedEFM Eq. 3): the weight of that teacher, where positive.",
)


def loss_series(reading: str) -> Series:
    """Return the training loss as a reading of Eq. 2 and 11 has it."""
    return replace(LOSS, caption=TAUGHT_LOSS[reading])


@dataclass(frozen=True, kw_only=True)
class FedEFMSettings(ClassificationSettings):
    """Settings of FedEFM: the task's, and those of overseas training and distillation.

    The method publishes neither ``beta`` nor ``temperature``. With w_j = relu(EMD_ij), where relu is ours,
    D_j = CE(Q_Tj^T, Q_S^T) and C = CE(Q_S, y), the readings of its Eq. 2 and 11, which taken together would sum over j
    twice, are:

    - ``literal``: sum_j w_j [ beta T^2 D_j + (1 - beta) C ]. It is what Eq. 2 prints, whose weight stands before the
      gradient of all of L_MD, and what the text says: the objective for each j is controlled by the corresponding EMD.
      So it is the default. Labels then count (1 - beta) sum_j w_j: twice as much as in plain training with four
      teachers alike and beta 0.5.
    - ``labels-once``: beta T^2 sum_j w_j D_j + (1 - beta) C, the sum of Eq. 11 with weights. Labels count 1 - beta.

    Without a returned copy both are C. Either way beta scales the step on the labels: a fair comparison gives FedAvg
    other learning rates as well.

    Args:
        beta: share of the teachers in the loss, in [0, 1].
        temperature: T, of the softened outputs, > 0.
        reading: of Eq. 2 and 11, see above.
        overseas_steps: optimizer steps of each copy at its host.
        max_teachers: returned copies that a vehicle uses at most, the first in order of arrival; its work is
            reckoned with so many, whoever comes back.
        similarity: when EMD_ij is measured: ``visit``, once before a vehicle's first step, on a batch of its images;
            ``step``, at every local step on the step's own images, with the student as it then is. No gradient flows
            through it either way.
        solver: what solves the transport problems of EMD_ij: ``pot``, POT's network simplex, one after the other on the
            host; ``interior-point``, all at once on the device; ``auto``, ``pot`` for a learner on the CPU, where it
            was measured to be the faster one, else ``interior-point``. Similarities agree to 1e-9, at worst to 1e-6.
        server: ``rsu`` averages the uploads, and vehicles start from its model. ``none`` is the method without one:
            every silo keeps a model of its own, which stays with its data. What vehicles bring to their hosts for
            overseas training are these models, so nothing more is sent, and nothing goes to the RSU: before it trains,
            a vehicle mixes the models of its peers with its silo's by Metropolis-Hastings weights, which is our reading
            of what is not described. An exchange then counts when both came back. How an RSU averages (``aggregation``,
            ``clip_norm``) has no effect.
        variant: ``emd`` is the method. ``guest-average`` follows the released code, which has neither similarity nor
            distillation: plain local training, then half the local model and half the mean of the models trained
            overseas. There a vehicle averages the guests that it trained itself, whose models differ; here all
            start alike, so it averages its own copies that came back.
    """

    beta: Share = 0.5
    temperature: Temperature = 3.0
    reading: Literal["literal", "labels-once"] = "literal"
    overseas_steps: Steps = 4
    max_teachers: Annotated[int, Within(1, 100_000, "", "a round of more vehicles fits no memory")] = 4
    similarity: Literal["visit", "step"] = "visit"
    solver: Solver = "auto"
    server: Literal["rsu", "none"] = "rsu"
    variant: Literal["emd", "guest-average"] = "emd"
