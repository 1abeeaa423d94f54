"""FLSimCo in one file: the paper's equations and a plain loop, without engines, plug-ins or simulated time.

A reader of the method starts here. Tests hold ``learners.flsimco`` to it. Source: Gu, Wu, Fan, Fan (2024),
"Mobility-aware federated self-supervised learning in vehicular network", arXiv:2408.00256; views, temperatures and
optimizer from the authors' code.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torchvision import transforms

State = dict[str, Tensor]


class Vehicle(NamedTuple):
    """A vehicle of one round: its speed (m/s), and the two views of a batch of its images for each local step."""

    speed_mps: float
    batches: Iterable[tuple[Tensor, Tensor]]


def draw_batches(images: Tensor, *, steps: int = 2, batch: int = 512) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield two random views of ``batch`` random images for every step; images in [0, 1], shape (N, 3, H, W)."""
    crop, jitter = transforms.RandomResizedCrop(images.shape[2:]), transforms.ColorJitter(0.4, 0.4, 0.4, 0.1)
    first = transforms.Compose([crop, transforms.RandomHorizontalFlip(), transforms.RandomGrayscale(0.2)])
    second = transforms.Compose([crop, transforms.RandomApply([jitter], 0.8), transforms.RandomGrayscale(0.4)])
    for _ in range(steps):
        chosen = images[torch.randperm(len(images))[:batch]]
        yield torch.stack([first(image) for image in chosen]), torch.stack([second(image) for image in chosen])


def dual_temperature_loss(q: Tensor, k: Tensor, *, t_alpha: float = 0.1, t_beta: float = 1.0) -> Tensor:
    """Return the loss of Eq. 6-9, shape (), for unit-length projections of two views, shape (B, D), both ways."""
    rows = []
    for similarity in (q @ k.T, k @ q.T):
        p_alpha, p_beta = ((similarity / t).softmax(dim=1).diagonal() for t in (t_alpha, t_beta))
        rows.append(((1 - p_beta) / (1 - p_alpha)).detach() * -p_alpha.log())
    return torch.stack(rows).mean()


def train_locally(model: nn.Module, vehicle: Vehicle, learning_rate: float) -> State:
    """Return the model's state after SGD on the vehicle's batches (Eq. 10); ``model`` itself does not change."""
    local = copy.deepcopy(model).train()
    optimizer = torch.optim.SGD(local.parameters(), lr=learning_rate, momentum=0.9, weight_decay=5e-4)
    for first, second in vehicle.batches:
        optimizer.zero_grad()
        dual_temperature_loss(local(first), local(second)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return local.state_dict()


def blur_level(speed_mps: float, *, exposure_s: float, focal_length_m: float, pixel_m: float) -> float:
    """Return L = H s v / Q in pixels (Eq. 2); a factor that all vehicles share cancels in the weights."""
    return exposure_s * focal_length_m * speed_mps / pixel_m


def blur_weights(levels: Sequence[float]) -> list[float]:
    """Return w_n = (S - L_n) / ((N - 1) S) with S = sum_n L_n (Eq. 11); 1 / N if that is 0 / 0; at least one level."""
    count, total = len(levels), sum(levels)
    if count == 1 or total == 0:
        return [1 / count] * count
    return [(total - level) / ((count - 1) * total) for level in levels]


def average(states: Sequence[State], weights: Sequence[float]) -> State:
    """Return sum_n w_n theta_n, BatchNorm statistics included; whole numbers are rounded."""
    mean = {}
    for name, like in states[0].items():
        value = torch.stack([weight * state[name] for weight, state in zip(weights, states, strict=True)]).sum(dim=0)
        mean[name] = value if like.is_floating_point() else value.round()
    return mean


def flsimco(model: nn.Module, rounds: Sequence[Sequence[Vehicle]], *, learning_rate: float = 0.06) -> nn.Module:
    """Train ``model``, which maps images to unit-length projections, in place with each round's vehicles; return it."""
    for number, vehicles in enumerate(rounds):
        rate = learning_rate * (1 + math.cos(math.pi * number / len(rounds))) / 2  # a cosine over the rounds
        states = [train_locally(model, vehicle, rate) for vehicle in vehicles]
        levels = [
            blur_level(vehicle.speed_mps, exposure_s=0.01, focal_length_m=0.004, pixel_m=3e-6) for vehicle in vehicles
        ]
        model.load_state_dict(average(states, blur_weights(levels)))
    return model
