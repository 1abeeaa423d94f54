"""Settings and metrics of the learners that classify images."""

from __future__ import annotations

from dataclasses import dataclass

from learners.encoders import ENCODERS
from learners.training_settings import TrainingSettings, at_least, in_unit_interval
from vnetsim.errors import unknown_name
from vnetsim.learning import Series

LOSS = Series(
    name="loss",
    label="Training loss",
    unit="",
    caption="Cross-entropy over the union of labels, mean over the aggregated vehicles and their local steps.",
)
ACCURACY = Series(
    name="accuracy",
    label="Accuracy",
    unit="%",
    caption="Of the global model on the test images, which no vehicle holds.",
)
SEEN_ACCURACY = Series(
    name="seen_accuracy",
    label="Local models, seen labels",
    unit="%",
    caption="Of each aggregated upload by itself on test images whose label its silo holds, mean over the uploads.",
)
UNSEEN_ACCURACY = Series(
    name="unseen_accuracy",
    label="Local models, unseen labels",
    unit="%",
    caption="Of each aggregated upload by itself on test images whose label its silo lacks, mean over the uploads "
    "of silos that lack one.",
)


@dataclass(frozen=True, kw_only=True)
class ClassificationSettings(TrainingSettings):
    """Encoder, local training, averaging and evaluation of a learner that classifies images.

    The defaults suit the built-in signs on two CPU cores.

    Args:
        encoder: ``small`` (86 thousand parameters) or ``resnet18`` (11.2 million), with a linear head in place of the
            projection.
        batch: images per step, >= 2; a smaller silo gives all it has.
        steps: optimizer steps per visit.
        lr: learning rate of the first round; it falls along a cosine.
        momentum: of SGD, in [0, 1); a new optimizer at each visit.
        weight_decay: of SGD.
        local_test: test images, drawn at random, on which the uploads of a round are measured by themselves; 0 takes
            all.
    """

    encoder: str = "small"
    batch: int = 16
    steps: int = 12
    lr: float = 0.05
    momentum: float = 0.9
    weight_decay: float = 5e-4
    local_test: int = 500

    def __post_init__(self) -> None:
        """Refuse values without meaning.

        Raises:
            InputError: naming the key.
        """
        super().__post_init__()
        if self.encoder not in ENCODERS:
            raise unknown_name("encoder", self.encoder, ENCODERS, where="learning.encoder")
        at_least(self, local_test=0)
        in_unit_interval(self, "momentum", with_one=False)
