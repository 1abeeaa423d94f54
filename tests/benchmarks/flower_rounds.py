"""Rounds of FedAvg in Flower's simulation, for test_other_simulators.py: 50 clients, 10 a round, the small classifier.

Run by a Python that has Flower and finds the repository: ``python flower_rounds.py ROUNDS STEPS BATCH IMAGES``. Prints
a line after each round. One client trains at a time.
"""

from __future__ import annotations

import sys
from typing import Any

import flwr
import numpy as np
import torch
from flwr.client import ClientApp, NumPyClient
from flwr.common import Context, ndarrays_to_parameters
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.simulation import run_simulation

CLIENTS, CLASSES, A_ROUND = 50, 8, 10


def network() -> Any:
    from learners.encoders import create_classifier  # noqa: PLC0415 - in the clients' processes as well

    return create_classifier("small", classes=CLASSES, seed=0)


def weights_of(model: Any) -> list[Any]:
    return [value.numpy() for value in model.state_dict().values()]


class Client(NumPyClient):  # type: ignore[misc]
    """SGD on random images, as many as a silo of vnetsim's has."""

    def __init__(self, number: int, steps: int, batch: int, images: int) -> None:
        torch.set_num_threads(1)
        generator = torch.Generator().manual_seed(number)
        self._images = torch.rand(images, 3, 32, 32, generator=generator)
        self._labels = torch.randint(CLASSES, (images,), generator=generator)
        self._steps, self._batch, self._generator = steps, batch, generator

    def fit(self, parameters: Any, config: Any) -> tuple[list[Any], int, dict[str, float]]:  # noqa: ARG002
        model = network()
        names = model.state_dict()
        model.load_state_dict({name: torch.as_tensor(value) for name, value in zip(names, parameters, strict=True)})
        model.train()
        optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
        for _ in range(self._steps):
            drawn = torch.randperm(len(self._images), generator=self._generator)[: self._batch]
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(self._images[drawn]), self._labels[drawn]).backward()
            optimizer.step()
        return weights_of(model), len(self._images), {}


class Timed(FedAvg):  # type: ignore[misc]
    """FedAvg that says when a round is over."""

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
        done = super().aggregate_fit(server_round, results, failures)
        assert len(results) == A_ROUND, failures
        print(f"round {server_round}", flush=True)
        return done


def main(rounds: int, steps: int, batch: int, images: int) -> None:
    def client(context: Context) -> Any:
        return Client(int(context.node_config["partition-id"]), steps, batch, images).to_client()

    def server(_: Context) -> ServerAppComponents:
        strategy = Timed(
            fraction_fit=A_ROUND / CLIENTS,
            fraction_evaluate=0.0,
            min_fit_clients=A_ROUND,
            min_available_clients=CLIENTS,
            initial_parameters=ndarrays_to_parameters([np.asarray(value) for value in weights_of(network())]),
        )
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=rounds))

    print(f"flower {flwr.__version__}", flush=True)
    run_simulation(
        server_app=ServerApp(server_fn=server),
        client_app=ClientApp(client_fn=client),
        num_supernodes=CLIENTS,
        backend_config={"init_args": {"num_cpus": 1}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
