"""A strategy for Flower's simulation that replays the ``schedule.csv`` of a run."""

from __future__ import annotations

import csv
from itertools import groupby
from pathlib import Path
from typing import Any

from flwr.common import FitIns, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server.strategy import FedAvg


class Scheduled(FedAvg):
    """Federated averaging by a schedule; run as many rounds as it has, with as many clients as its largest round."""

    def __init__(self, file: str | Path, weights: list[Any]) -> None:
        super().__init__(fraction_evaluate=0.0, initial_parameters=ndarrays_to_parameters(weights))
        with Path(file).open(newline="") as rows:
            self.rounds = [(int(n), [*rows]) for n, rows in groupby(csv.DictReader(rows), key=lambda row: row["round"])]
        self.versions = {0: weights}

    def configure_fit(self, server_round: int, parameters: Any, client_manager: Any) -> list[Any]:  # noqa: ARG002
        updates = self.rounds[server_round - 1][1]
        clients = client_manager.sample(len(updates), min_num_clients=len(updates))
        bases = [self.versions[max(v for v in self.versions if v <= int(row["base_round"]))] for row in updates]
        tasks = [{key: float(row[key]) for key in ("silo", "weight", "work_share")} for row in updates]
        return [(c, FitIns(ndarrays_to_parameters(b), t)) for c, b, t in zip(clients, bases, tasks, strict=True)]

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> tuple[Any, dict[str, Any]]:
        if failures:
            raise RuntimeError(failures)
        sent = [(fit.metrics["weight"], parameters_to_ndarrays(fit.parameters)) for _, fit in results]
        mean = [sum(weight * layers[i] for weight, layers in sent) for i in range(len(sent[0][1]))]
        self.versions[self.rounds[server_round - 1][0] + 1] = mean
        return ndarrays_to_parameters(mean), {}
