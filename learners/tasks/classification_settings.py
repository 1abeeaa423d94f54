"""Settings and metrics of the learners that classify images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from learners.encoders import require_encoder
from learners.mathematics.robust import AveragingSettings
from learners.tasks.training_settings import Momentum, TrainingSettings
from vnetsim.learning import Series
from vnetsim.setting_checks import Images

DEFAULTS: Mapping[str, object] = {
    # silos large enough for a few hundred images each, which lack half of the labels
    "data.partition": "label-skew",
    "silos.count": 20,
    # two vehicles with the same images would have nothing to tell each other
    "round.distinct_silos": True,
}
"""Experiment settings of the learners that classify."""

LOSS = Series(
    name="loss",
    label="Training loss",
    unit="",
    caption="Cross-entropy over the union of labels, mean over the aggregated vehicles and their local steps.",
)
ACCURACY = Series(
    name="accuracy",
    group="Accuracy",
    label="Accuracy",
    unit="%",
    caption="Of the global model on the test images, which no vehicle holds; without a server, of the mean of the "
    "models of the silos that took part so far.",
)
SEEN_ACCURACY = Series(
    name="seen_accuracy",
    group="Accuracy",
    label="Local models, seen labels",
    unit="%",
    caption="Of each aggregated upload by itself on test images whose label its silo holds, mean over the uploads.",
)
UNSEEN_ACCURACY = Series(
    name="unseen_accuracy",
    group="Accuracy",
    label="Local models, unseen labels",
    unit="%",
    caption="Of each aggregated upload by itself on test images whose label its silo lacks, mean over the uploads "
    "of silos that lack one.",
)


@dataclass(frozen=True, kw_only=True)
class ClassificationSettings(TrainingSettings, AveragingSettings):
    """Encoder, local training, averaging and evaluation of a learner that classifies images.

    The defaults suit the built-in signs on two CPU cores.

    Args:
        encoder: ``small`` (86 thousand parameters), ``resnet18`` (11.2 million), or a plug-in of the kind encoder, by
            name or as ``path/to/file.py:Class``, whose settings are those of the table ``encoder``; with a linear head
            in place of the projection.
        batch: images per step, >= 2; a smaller silo gives all it has.
        steps: optimizer steps per local training.
        lr: learning rate of the first round; it falls along a cosine.
        momentum: of SGD, in [0, 1); a new optimizer at each local training.
        weight_decay: of SGD.
        local_test: test images, drawn at random, on which the uploads of a round are measured by themselves; 0 takes
            all.
    """

    encoder: str = "small"
    batch: int = 16
    steps: int = 12
    lr: float = 0.05
    momentum: Momentum = 0.9
    weight_decay: float = 5e-4
    local_test: Images = 500

    def __post_init__(self) -> None:
        """Refuse values without meaning.

        Raises:
            InputError: naming the key.
        """
        super().__post_init__()
        require_encoder(self.encoder)
