"""Shapes of a network's layers, and the precision of its convolutions in training."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vnetsim.errors import InputError

Layer = nn.Conv2d | nn.Linear
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def layer_shapes(network: nn.Module, image_shape: tuple[int, int, int]) -> list[tuple[Layer, torch.Size, torch.Size]]:
    """Return each convolution and linear layer with input and output shapes, in the order of a forward pass.

    The pass is over one black image of ``image_shape``, (C, H, W); shapes begin with 1. The network's mode is restored.
    """
    seen: list[tuple[Layer, torch.Size, torch.Size]] = []

    def see(layer: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        assert isinstance(layer, Layer)
        seen.append((layer, inputs[0].shape, output.shape))

    layers = [module for module in network.modules() if isinstance(module, Layer)]
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


class Convolutional(nn.Module):
    """A network whose trunk may compute in a lower ``precision`` in training than in evaluation.

    Weights, gradients, statistics of normalisation, the layers on the trunk, and the loss keep the precision of the
    images. Double precision is never lowered.
    """

    precision: torch.dtype = torch.float32

    def __init__(self, trunk: nn.Module) -> None:
        super().__init__()
        self.trunk = trunk

    def dense(self, images: Tensor) -> Tensor:
        """Return the trunk's features, before pooling, in the precision of the images, shape (N, C', H', W')."""
        # evaluation is in training mode while it estimates the statistics of BatchNorm
        evaluation = not self.training or torch.is_inference_mode_enabled()
        if self.precision == torch.float32 or evaluation:
            full: Tensor = self.trunk(images)
            return full
        # no cache of lowered weights: all threads share it, and clearing it would change the rounding of others
        with torch.autocast(images.device.type, dtype=self.precision, cache_enabled=False):
            lowered: Tensor = self.trunk(images)
        return lowered.to(images.dtype)


def set_precision(network: nn.Module, name: str, image_shape: tuple[int, int, int]) -> None:
    """Set the training precision of a network's Convolutional parts, in place; ``name`` is a key of PRECISIONS.

    InputError if images of ``image_shape``, (C, H, W), are so small that gradients would be wrong.
    """
    if name != "float32" and _strides_over_one_pixel(network, image_shape):
        raise InputError(
            f"learning.precision = {name}: images of {image_shape[2]} x {image_shape[1]} pixels are too small for it "
            "with this network: a convolution of stride 2 would see a single pixel, where gradients come out wrong; "
            "take float32 or larger images."
        )
    for module in network.modules():
        if isinstance(module, Convolutional):
            module.precision = PRECISIONS[name]


def _strides_over_one_pixel(network: nn.Module, image_shape: tuple[int, int, int]) -> bool:
    """Return whether a convolution of stride above 1 and kernel above 1 gets images one pixel wide or high."""
    # oneDNN's weight gradient in bfloat16 is then uninitialised memory (seen with 3.13 on a CPU with avx512_bf16);
    # larger inputs and other strides are right
    return any(
        max(layer.stride) > 1 and max(layer.kernel_size) > 1 and min(inputs[2:]) == 1
        for layer, inputs, _ in layer_shapes(network, image_shape)
        if isinstance(layer, nn.Conv2d)
    )
