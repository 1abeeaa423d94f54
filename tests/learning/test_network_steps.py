"""Networks that are no mere steps, which a file cannot hold, are refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from vnetsim.learning.network_steps import steps_of


class Chooses(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x


class Twice(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.relu(), x


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight


class Backwards(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 1 - x


@pytest.mark.parametrize("network", [Chooses(), Twice(), Own(), Backwards(), nn.Identity()])
def test_a_network_that_is_more_than_steps_is_refused(network: nn.Module) -> None:
    if isinstance(network, nn.Identity):
        assert steps_of(nn.Sequential(network)) == [("_0", "Identity", "0.", ["images"], {})]
        return
    with pytest.raises(ValueError, match=r"."):
        steps_of(network)
    assert network.training
