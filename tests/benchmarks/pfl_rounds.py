"""Rounds of FedAvg in pfl-research, for test_other_simulators.py: 50 users, 10 a round, the small classifier.

Run by a Python that has pfl and finds the repository: ``python pfl_rounds.py ROUNDS STEPS BATCH IMAGES``. Prints a
line after each round.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel

from learners.encoders import create_classifier

USERS, CLASSES, A_ROUND = 50, 8, 10


class Classifier(torch.nn.Module):
    """The small classifier with the loss and the metrics that pfl asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.network = create_classifier("small", classes=CLASSES, seed=0)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.network(images)
        return scores

    def loss(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        self.train()
        return torch.nn.functional.cross_entropy(self(images), labels)

    def metrics(self, images: torch.Tensor, labels: torch.Tensor) -> dict[str, Any]:  # noqa: ARG002
        return {}


class Clock(TrainingProcessCallback):  # type: ignore[misc]
    """Says when a round is over."""

    def after_central_iteration(
        self,
        aggregate_metrics: Metrics,  # noqa: ARG002
        model: PyTorchModel,  # noqa: ARG002
        *,
        central_iteration: int,
    ) -> tuple[bool, Metrics]:
        print(f"round {central_iteration + 1}", flush=True)
        return False, Metrics()


def user(number: int, images: int) -> Any:
    generator = torch.Generator().manual_seed(number)
    drawn = torch.rand(images, 3, 32, 32, generator=generator)
    return Dataset(raw_data=[drawn, torch.randint(CLASSES, (images,), generator=generator)])


def main(rounds: int, steps: int, batch: int, images: int) -> None:
    torch.set_num_threads(1)
    model = Classifier()
    users = {number: user(number, images) for number in range(USERS)}
    data = FederatedDataset(users.__getitem__, get_user_sampler("random", list(users)))
    FederatedAveraging().run(
        NNAlgorithmParams(rounds, evaluation_frequency=rounds + 1, train_cohort_size=A_ROUND, val_cohort_size=0),
        SimulatedBackend(training_data=data, val_data=data),
        PyTorchModel(
            model,
            partial(torch.optim.SGD, momentum=0.9),
            torch.optim.SGD(model.parameters(), 1.0),  # the server takes the mean of the changes
        ),
        NNTrainHyperParams(batch, steps * batch // images, 0.05),
        callbacks=[Clock()],
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
