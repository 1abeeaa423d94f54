"""ResNet-8, the steering network: the trunk of DroNet (Loquercio et al. 2018) with one linear output."""

from __future__ import annotations

import itertools
from collections import OrderedDict

from torch import Tensor, nn

from learners.encoders import seeded
from learners.encoders.precision import Convolutional
from vnetsim.errors import InputError

WIDTHS = (32, 32, 64, 128)
LEAST_PX = 5


class PreActivationBlock(nn.Module):
    """Two 3x3 convolutions, each behind normalisation and ReLU, beside a 1x1 shortcut (He et al. 2016, identity maps).

    The stride is that of the first convolution and the shortcut.
    """

    def __init__(self, inputs: int, outputs: int, *, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            OrderedDict(
                bn1=nn.BatchNorm2d(inputs),
                relu1=nn.ReLU(),
                conv1=nn.Conv2d(inputs, outputs, 3, stride, padding=1),
                bn2=nn.BatchNorm2d(outputs),
                relu2=nn.ReLU(inplace=True),
                conv2=nn.Conv2d(outputs, outputs, 3, padding=1),
            )
        )
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output, shape (N, outputs, ceil(H / stride), ceil(W / stride))."""
        result: Tensor = self.residual(x) + self.shortcut(x)
        return result


class ResNet8(Convolutional):
    """Images to a steering angle, by way of the features on which CDL compares two networks.

    A 5x5 convolution and a 3x3 max-pool, both of stride 2, three pre-activation stages of stride 2, and a linear layer
    on all positions of the last one: 314,657 parameters for grey images of 200 x 200. There is no dropout in here;
    who trains applies it to the features, so that what CDL compares has none.

    Raises:
        InputError: when the images are smaller than 5 x 5 pixels.
    """

    def __init__(self, image_shape: tuple[int, int, int]) -> None:
        channels, height, width = image_shape
        if min(height, width) < LEAST_PX:
            raise InputError(
                f"images of {width} x {height} pixels are too small for ResNet-8: it takes {LEAST_PX} x {LEAST_PX} "
                "at least; raise data.image_px."
            )
        trunk: OrderedDict[str, nn.Module] = OrderedDict(
            conv1=nn.Conv2d(channels, WIDTHS[0], 5, 2, padding=2), pool=nn.MaxPool2d(3, 2)
        )
        for i, (inputs, outputs) in enumerate(itertools.pairwise(WIDTHS), start=1):
            trunk[f"stage{i}"] = PreActivationBlock(inputs, outputs, stride=2)
        super().__init__(nn.Sequential(trunk))
        self.width = WIDTHS[-1] * _positions(height) * _positions(width)
        self.fc = nn.Linear(self.width, 1)

    def dense(self, images: Tensor) -> Tensor:
        """Return the features before they are flattened, shape (N, 128, H', W'), of images in [0, 1]."""
        return super().dense(images * 2 - 1)

    def features(self, images: Tensor) -> Tensor:
        """Return z, the input of the linear layer, shape (N, width), each value at least 0."""
        return self.dense(images).flatten(1).relu()

    def head(self, features: Tensor) -> Tensor:
        """Return the steering angle for features, shape (N,)."""
        angle: Tensor = self.fc(features).squeeze(1)
        return angle

    def forward(self, images: Tensor) -> Tensor:
        """Return the steering angle, shape (N,), of images in [0, 1], shape (N, C, H, W)."""
        return self.head(self.features(images))


def create_resnet8(image_shape: tuple[int, int, int], *, seed: int) -> ResNet8:
    """Return a new network on the CPU with weights that depend on ``image_shape`` and ``seed`` alone; see ``seeded``.

    Raises:
        InputError: see ``ResNet8``.
    """
    return seeded(lambda: ResNet8(image_shape), seed=seed)


def _positions(pixels: int) -> int:
    """Return how many positions of the last stage a side of ``pixels`` pixels gives."""
    side = ((pixels + 1) // 2 - 3) // 2 + 1
    for _ in range(3):
        side = (side + 1) // 2
    return side
