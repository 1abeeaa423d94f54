"""A strategy for Flower's simulation that replays the ``schedule.csv`` of a run."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from flwr.serverapp.strategy.strategy_utils import sample_nodes


class Scheduled(FedAvg):
    """Federated averaging by a schedule; run as many rounds as it has, with as many nodes as its largest round."""

    def __init__(self, file: str | Path) -> None:
        super().__init__(fraction_evaluate=0.0, weighted_by_key="weight")
        with Path(file).open(newline="") as rows:
            self.rounds = [(int(n), [*rows]) for n, rows in groupby(csv.DictReader(rows), key=lambda row: row["round"])]
        self.versions: dict[int, ArrayRecord] = {}

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: Any, grid: Grid) -> Iterable[Message]:  # noqa: ARG002
        self.versions.setdefault(0, arrays)
        updates = self.rounds[server_round - 1][1]
        nodes, _ = sample_nodes(grid, 0, len(updates))
        for node, row in zip(nodes, updates, strict=True):
            base = self.versions[max(v for v in self.versions if v <= int(row["base_round"]))]
            task = ConfigRecord({key: float(row[key]) for key in ("silo", "weight", "work_share")})
            yield Message(RecordDict({"arrays": base, "config": task}), node, MessageType.TRAIN)

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple[Any, Any]:
        replies = list(replies)
        if failures := [reply.error for reply in replies if reply.has_error()]:
            raise RuntimeError(failures)
        arrays, metrics = super().aggregate_train(server_round, replies)
        if arrays is not None:
            self.versions[self.rounds[server_round - 1][0] + 1] = arrays
        return arrays, metrics
