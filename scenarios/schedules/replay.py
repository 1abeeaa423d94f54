"""Federated averaging in plain PyTorch by the ``schedule.csv`` of a run; copy it and change what you like."""

import copy
import csv
from itertools import groupby
from pathlib import Path

import torch
from torch import Tensor, nn


def replay(
    file: str | Path, model: nn.Module, silos: dict[int, tuple[Tensor, Tensor]], *, steps: int = 8, lr: float = 0.05
) -> dict[str, Tensor]:
    """Return the last model; ``silos[k]`` has the images and labels of silo k, ``model`` the initial weights."""
    versions = {0: copy.deepcopy(model.state_dict())}
    with Path(file).open(newline="") as rows:
        for number, updates in groupby(csv.DictReader(rows), key=lambda row: int(row["round"])):
            mean = {name: torch.zeros_like(value) for name, value in versions[0].items()}
            for row in updates:
                base = max(version for version in versions if version <= int(row["base_round"]))
                model.load_state_dict(versions[base])
                optimizer = torch.optim.SGD(model.parameters(), lr)
                images, labels = silos[int(row["silo"])]
                for _ in range(round(steps * float(row["work_share"]))):
                    optimizer.zero_grad()
                    nn.functional.cross_entropy(model(images), labels).backward()
                    optimizer.step()
                for name, value in model.state_dict().items():
                    mean[name] += float(row["weight"]) * value
            versions[number + 1] = mean
    return versions[max(versions)]
