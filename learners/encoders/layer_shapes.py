"""What the layers of a network get and return in a forward pass."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerShapes:
    """One layer in one pass.

    Args:
        layer: a convolution or a linear layer.
        inputs: shape of what it gets.
        outputs: shape of what it returns.
    """

    layer: nn.Conv2d | nn.Linear
    inputs: torch.Size
    outputs: torch.Size


def layer_shapes(network: nn.Module, image_shape: tuple[int, int, int]) -> list[LayerShapes]:
    """Return the shapes at every convolution and linear layer in a real pass of one image (C, H, W), in order."""
    seen: list[LayerShapes] = []

    def see(layer: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        assert isinstance(layer, (nn.Conv2d, nn.Linear))
        seen.append(LayerShapes(layer=layer, inputs=inputs[0].shape, outputs=output.shape))

    layers = [module for module in network.modules() if isinstance(module, (nn.Conv2d, nn.Linear))]
    handles = [layer.register_forward_hook(see) for layer in layers]
    training = network.training
    try:
        with torch.inference_mode():
            network.eval()(torch.zeros(1, *image_shape, device=next(network.parameters()).device))
    finally:
        network.train(training)
        for handle in handles:
            handle.remove()
    return seen
