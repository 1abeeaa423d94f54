"""BatchNorm statistics estimated anew, for a model that carries none or whose own lag behind its weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from torch import nn


def estimate_statistics(network: nn.Module, forward: Callable[[], object]) -> None:
    """Replace a network's BatchNorm statistics by the plain mean over the batches that ``forward`` passes through it.

    The batches are of equal size. The network's weights are not touched; it is left in training mode.
    """
    layers = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    momenta = [layer.momentum for layer in layers]
    batches: Counter[nn.Module] = Counter()

    def mean_over_batches(layer: Any, _: object) -> None:
        # torch's own, for a momentum of None, asks the device each time how many there were
        batches[layer] += 1
        layer.momentum = 1 / batches[layer]

    hooks = [layer.register_forward_pre_hook(mean_over_batches) for layer in layers]
    for layer in layers:
        layer.reset_running_stats()
    network.train()
    try:
        forward()
    finally:
        for hook in hooks:
            hook.remove()
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
