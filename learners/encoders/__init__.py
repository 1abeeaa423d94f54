"""Convolutional trunks that turn images into features, with a projection, a classifier or a steering angle on top.

ResNet-8, the steering network, is the trunk of DroNet (Loquercio et al. 2018) with one linear output.
"""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from learners.encoders.precision import Convolutional, layer_shapes
from vnetsim.errors import InputError, unknown_name
from vnetsim.learning.global_generators import seeded as seeded_globally
from vnetsim.learning.kinds import ENCODERS, EncoderTrunk
from vnetsim.learning.model_record import ModelRecord
from vnetsim.plugins import is_class, plugin_errors

PROJECTION = 128
RESNET8_WIDTHS = (32, 32, 64, 128)
LEAST_PX = 5
"""Smallest side of an image for ResNet-8 (px)."""
Network = TypeVar("Network", bound=nn.Module)


class _Features(Convolutional):
    """A convolutional trunk with ``width`` output channels, and the mean over positions."""

    def __init__(self, trunk: nn.Module, width: int) -> None:
        super().__init__(trunk)
        self.width = width

    def features(self, images: Tensor) -> Tensor:
        """Return the mean of the trunk's features over the positions, shape (N, C), of images (N, 3, H, W)."""
        return self.pooled(self.dense(images))

    @staticmethod
    def pooled(dense: Tensor) -> Tensor:
        """Return the mean of dense features over the positions, shape (N, C)."""
        return dense.mean(dim=(2, 3))


class Encoder(_Features):
    """Features and their linear projection to the unit sphere, for contrastive learning."""

    def __init__(self, trunk: nn.Module, width: int) -> None:
        super().__init__(trunk, width)
        self.fc = nn.Linear(width, PROJECTION)

    def forward(self, images: Tensor) -> Tensor:
        """Return projections of unit length, shape (N, 128)."""
        return normalize(self.fc(self.features(images)), dim=1)


class Classifier(_Features):
    """Features and a linear head that returns the logits of ``classes`` classes."""

    def __init__(self, trunk: nn.Module, width: int, classes: int) -> None:
        super().__init__(trunk, width)
        self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor, *, with_dense: bool = False) -> Tensor | tuple[Tensor, Tensor]:
        """Return logits, shape (N, classes); if ``with_dense``, (dense features (N, C, H', W'), logits)."""
        dense = self.dense(images)
        logits: Tensor = self.head(self.pooled(dense))
        return (dense, logits) if with_dense else logits


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions, the first of stride 2, beside a 1x1 convolution of stride 2 (He et al. 2016)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride=2, bias=False), nn.BatchNorm2d(outputs))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output for (N, inputs, H, W), shape (N, outputs, ceil(H / 2), ceil(W / 2))."""
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        result: Tensor = self.relu(y + self.shortcut(x))
        return result


@dataclass(frozen=True, kw_only=True)
class Small:
    """A residual network of three blocks for 32 x 32 images, made to train on a CPU: 86 thousand parameters."""

    name = "small"
    source = "built in; blocks of He et al. (2016), arXiv:1512.03385"

    def build(self) -> tuple[nn.Module, int]:
        """Return the trunk, which makes (N, 64, H', W') of images (N, 3, H, W), and its output channels, 64."""
        widths = (16, 16, 32, 64)
        trunk: OrderedDict[str, nn.Module] = OrderedDict(
            conv1=nn.Conv2d(3, widths[0], 3, padding=1, bias=False),
            bn1=nn.BatchNorm2d(widths[0]),
            relu=nn.ReLU(inplace=True),
        )
        for i, (inputs, outputs) in enumerate(itertools.pairwise(widths), start=1):
            trunk[f"layer{i}"] = ResidualBlock(inputs, outputs)
        return nn.Sequential(trunk), widths[-1]


@dataclass(frozen=True, kw_only=True)
class ResNet18:
    """ResNet-18 for 32 x 32 images as FLSimCo's code builds it: 3x3 stem of stride 1, no max-pool, 512 -> 128."""

    name = "resnet18"
    source = "He et al. (2016): Deep residual learning for image recognition, arXiv:1512.03385"

    def build(self) -> tuple[nn.Module, int]:
        """Return the trunk, which makes (N, 512, H', W') of images (N, 3, H, W), and its output channels, 512."""
        from torchvision.models import resnet18  # noqa: PLC0415  torchvision is slow to import and only needed here

        network = resnet18()
        trunk: OrderedDict[str, nn.Module] = OrderedDict(
            conv1=nn.Conv2d(3, 64, 3, padding=1, bias=False), bn1=network.bn1, relu=network.relu
        )
        trunk.update((f"layer{i}", getattr(network, f"layer{i}")) for i in range(1, 5))
        return nn.Sequential(trunk), 512


class PreActivationBlock(nn.Module):
    """Two 3x3 convolutions, each after normalisation and ReLU, plus a 1x1 shortcut (He et al. 2016, identity maps).

    The first convolution and the shortcut have the stride.
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
        """Return the block's output for (N, inputs, H, W), shape (N, outputs, ceil(H / stride), ceil(W / stride))."""
        return torch.add(self.residual(x), self.shortcut(x))


class ResNet8(Convolutional):
    """Steering angles of images; CDL compares two networks by the features before the linear layer.

    A 5x5 convolution and a 3x3 max-pool, both of stride 2, three pre-activation stages of stride 2, and a linear layer
    on all positions of the last one: 314,657 parameters for grey images of 200 x 200. Training applies dropout to the
    features, outside this class, so that CDL compares features without dropout. InputError if the images are smaller
    than 5 x 5 pixels.
    """

    def __init__(self, image_shape: tuple[int, int, int]) -> None:
        channels, height, width = image_shape
        if min(height, width) < LEAST_PX:
            raise InputError(
                f"images of {width} x {height} pixels are too small for ResNet-8: it takes {LEAST_PX} x {LEAST_PX} "
                "at least; raise data.image_px."
            )
        trunk: OrderedDict[str, nn.Module] = OrderedDict(
            conv1=nn.Conv2d(channels, RESNET8_WIDTHS[0], 5, 2, padding=2), pool=nn.MaxPool2d(3, 2)
        )
        for i, (inputs, outputs) in enumerate(itertools.pairwise(RESNET8_WIDTHS), start=1):
            trunk[f"stage{i}"] = PreActivationBlock(inputs, outputs, stride=2)
        super().__init__(nn.Sequential(trunk))
        self.width = RESNET8_WIDTHS[-1] * _last_side(height) * _last_side(width)
        self.fc = nn.Linear(self.width, 1)

    def dense(self, images: Tensor) -> Tensor:
        """Return the features before they are flattened, shape (N, 128, H', W'), of images in [0, 1]."""
        return super().dense(images * 2 - 1)

    def features(self, images: Tensor) -> Tensor:
        """Return z, the input of the linear layer, shape (N, width), each value at least 0."""
        return self.dense(images).flatten(1).relu()

    def head(self, features: Tensor) -> Tensor:
        """Return the steering angle, shape (N,), given the result of ``features``, shape (N, width)."""
        return torch.squeeze(self.fc(features), 1)

    def forward(self, images: Tensor) -> Tensor:
        """Return the steering angle, shape (N,), of images in [0, 1], shape (N, C, H, W)."""
        return self.head(self.features(images))


def create_resnet8(image_shape: tuple[int, int, int], *, seed: int) -> ResNet8:
    """Return a new network on the CPU, with weights from shape and seed alone; InputError for a side below LEAST_PX."""
    return build_seeded(lambda: ResNet8(image_shape), seed=seed)


def _last_side(pixels: int) -> int:
    """Return the side of ResNet-8's last feature map for images with a side of ``pixels``; 0 below LEAST_PX."""
    side = ((pixels + 1) // 2 - 3) // 2 + 1
    for _ in range(3):
        side = (side + 1) // 2
    return side


def require_encoder(name: str) -> None:
    """Raise InputError unless ``name`` is a known encoder or a ``path/to/file.py:Class``, which is not checked here."""
    if not is_class(name) and name not in ENCODERS.names():
        raise unknown_name("encoder", name, ENCODERS.names(), where="learning.encoder")


def create_encoder(name: str, *, seed: int, settings: Any = None) -> Encoder:
    """Return a new encoder on the CPU whose weights depend only on ``name``, ``settings`` and ``seed``.

    See ``build_seeded`` for their distribution; an encoder of a file draws its weights itself (``seed_and_build``).
    ``settings`` is an instance of the encoder's class; None for the defaults. InputError if there is no such encoder;
    RunError if a plug-in's encoder fails, or returns something else than a trunk and its width.
    """
    return _build_from_plugin(name, settings, seed, Encoder)


def create_classifier(name: str, *, classes: int, seed: int, settings: Any = None) -> Classifier:
    """Return a new classifier on the trunk of the encoder ``name``; weights and errors as in ``create_encoder``."""
    return _build_from_plugin(name, settings, seed, lambda trunk, width: Classifier(trunk, width, classes))


def _build_from_plugin(name: str, settings: Any, seed: int, make: Callable[[nn.Module, int], Network]) -> Network:
    """Return the network that ``make`` makes of an encoder's trunk and width; errors as in ``create_encoder``."""
    given = ENCODERS.find(name)() if settings is None else settings
    if isinstance(given, (Small, ResNet18)):
        return build_seeded(lambda: make(*given.build()), seed=seed)

    def build() -> Network:
        """Return the network of a plug-in's trunk; RunError if it fails or its trunk's output has another shape."""
        with plugin_errors("encoder", given.name, "in build"):
            trunk, width = given.build()
            seen = trunk(torch.zeros(2, 3, 32, 32))
            if seen.ndim != 4 or seen.shape[:2] != (2, width):
                raise ValueError(
                    f"its trunk makes {tuple(seen.shape)} of images (2, 3, 32, 32), expected (2, {width}, H', W')"
                )
            return make(trunk, width)

    return seed_and_build(build, seed=seed)


def build_seeded(build: Callable[[], Network], *, seed: int) -> Network:
    """Return the network of ``build``, on the CPU, with weights that depend only on the architecture and ``seed``.

    Conv2d follows He et al. (2015, fan out) with bias 0; weights and biases of Linear are uniform within
    +-1 / sqrt(fan in); BatchNorm2d starts as the identity. Other layers keep the weights that ``build`` drew from the
    global random state, which is not changed.
    """
    with torch.random.fork_rng(devices=()):  # torch's meta device would draw nothing, but imports SymPy: half a second
        network = build()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu", generator=generator)
                if module.bias is not None:
                    module.bias.zero_()
            elif isinstance(module, nn.Linear):
                bound = 1 / math.sqrt(module.in_features)
                module.weight.uniform_(-bound, bound, generator=generator)
                module.bias.uniform_(-bound, bound, generator=generator)
            elif isinstance(module, nn.BatchNorm2d):
                module.reset_parameters()
    return network


def seed_and_build(build: Callable[[], Network], *, seed: int) -> Network:
    """Return ``build()``, with the global random generators seeded with ``seed`` meanwhile and then restored."""
    with seeded_globally(seed):
        return build()


def architecture(record: ModelRecord, encoder: EncoderTrunk | None = None) -> nn.Module:
    """Return the network that a record names, without the record's weights.

    Its tensors are on torch's meta device, except those that ``encoder`` builds. ``encoder`` is the record's encoder;
    None if it comes with vnetsim. InputError if vnetsim has no such network.
    """
    own = None if encoder is None else encoder.build()
    with torch.device("meta"):
        if record.network == ResNet8.__name__ and encoder is None:
            channels, height, width = record.image_shape
            return ResNet8((channels, height, width))
        if encoder is None and record.encoder in ENCODERS.built_in:
            own = ENCODERS.find(record.encoder)().build()
        if own is not None and record.network == Classifier.__name__:
            return Classifier(own[0], own[1], len(record.classes))
        if own is not None and record.network == Encoder.__name__:
            return Encoder(own[0], own[1])
    raise InputError(
        f"the network is '{record.network or 'not named'}' on the encoder '{record.encoder}', and does not come with "
        "vnetsim: pass the encoder's class, or a network of the same architecture, as run.model(NETWORK)."
    )


def channels_last(images: Tensor) -> Tensor:
    """Return images (N, C, H, W) in the memory layout channels-last, copied only if they have another."""
    return images.contiguous(memory_format=torch.channels_last)


def forward_flop(encoder: nn.Module, image_shape: tuple[int, int, int]) -> int:
    """Return the FLOP of one (C, H, W) image's forward pass, two per multiply-add; only Conv2d and Linear count."""
    # each output value is a dot product with weight[0]: (inputs / groups) x kernel, or inputs
    seen = layer_shapes(encoder, image_shape)
    return sum(2 * outputs.numel() * layer.weight[0].numel() for layer, _, outputs in seen)
