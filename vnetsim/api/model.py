"""The network that a run trained, built from what ``model.safetensors`` says of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from vnetsim.errors import InputError
from vnetsim.learning.network_steps import INPUT, METHODS, MODEL_ENTRY, Step
from vnetsim.storage.run_directory import RunDirectory

FILE = "model.safetensors"


class TrainedModel(nn.Module):
    """A trained network that takes images as they are; what a run used to prepare them is part of it.

    In evaluation mode, with gradients, on the CPU; ``to`` and ``train`` are those of any module. It is built from data
    alone: nothing of the run directory is run.

    Args:
        record: the metadata of ``model.safetensors``.
        tensors: its tensors by name.

    Attributes:
        encoder: name of the network.
        arguments: what it was built with.
        image_shape: (C, H, W) of the images it was trained on.
        classes: labels in the order of the logits; for steering, names of ranges of the angle.
        round: rounds that were aggregated.
        returns: what it gives for images, in words.
        batchnorm: whether the model carries the statistics that the run's evaluation used (``carried``), or they are
            to be estimated with ``estimate_statistics`` first, as the run's evaluation did.
        mean: of each channel, shape (C, 1, 1); images in [0, 1] are normalised with it.
        std: likewise.
        network: holds the layers; its tensors have the names of the file.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, record: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.encoder = str(record["encoder"])
        self.arguments = dict(record["arguments"])
        self.image_shape = tuple(int(side) for side in record["image_shape"])
        self.classes = tuple(str(name) for name in record["classes"])
        self.round = int(record["round"])
        self.returns = str(record["returns"])
        self.batchnorm = str(record["batchnorm"])
        self.register_buffer("mean", torch.tensor(record["mean"]), persistent=False)
        self.register_buffer("std", torch.tensor(record["std"]), persistent=False)
        self.network = nn.Module()
        self._steps: list[Step] = [_checked(step) for step in record["steps"]]
        for _, kind, layer, _, arguments in self._steps:
            if layer:  # the last of a layer's steps places it
                _place(self.network, layer.removesuffix("."), getattr(nn, kind)(**arguments))
        known = self.network.state_dict().keys()
        self.network.load_state_dict({name: tensor for name, tensor in tensors.items() if name in known})
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        """Return what the network makes of images; see the attribute ``returns``.

        Args:
            images: shape (N, C, H, W), uint8, or floating-point in [0, 1].
        """
        return self._follow(images)[self._steps[-1][0]]

    def features(self, images: Tensor) -> Tensor:
        """Return what the last linear layer is given, shape (N, features): the features that a run's kNN compares.

        Args:
            images: see ``forward``.
        """
        last = [inputs[0] for _, kind, _, inputs, _ in self._steps if kind == "Linear"]
        return self._follow(images)[last[-1]]

    @torch.no_grad()
    def estimate_statistics(self, images: Tensor) -> None:
        """Replace the BatchNorm statistics by those of these images, a few hundred like those of training.

        Args:
            images: see ``forward``.
        """
        layers = [module for module in self.modules() if isinstance(module, nn.BatchNorm2d)]
        momenta = [layer.momentum for layer in layers]
        training = self.training
        for layer in layers:
            layer.reset_running_stats()
            layer.momentum = None  # the plain mean over what passes
        self.train()
        try:
            self._follow(images)
        finally:
            for layer, momentum in zip(layers, momenta, strict=True):
                layer.momentum = momentum
            self.train(training)

    def _follow(self, images: Tensor) -> dict[str, Tensor]:
        """Return the results of all steps by name."""
        given = images.to(self.mean.dtype) / 255 if images.dtype == torch.uint8 else images
        values: dict[str, Tensor] = {INPUT: (given - self.mean) / self.std}
        for name, kind, layer, inputs, _ in self._steps:
            call = self.network.get_submodule(layer.removesuffix(".")) if layer else getattr(Tensor, kind)
            values[name] = call(*(values[one] if isinstance(one, str) else one for one in inputs))
        return values


def _place(network: nn.Module, path: str, layer: nn.Module) -> None:
    """Put a layer where its name says, below modules that only hold others."""
    *parents, name = path.split(".")
    place = network
    for parent in parents:
        if parent not in dict(place.named_children()):
            place.add_module(parent, nn.Module())
        place = place.get_submodule(parent)
    place.add_module(name, layer)


def _checked(step: Any) -> Step:
    """Return a step, when it is a layer of PyTorch or a harmless method of tensors; a file may come from anybody."""
    name, kind, layer, inputs, arguments = step
    if layer:
        known = getattr(nn, kind, None)
        if not (isinstance(known, type) and issubclass(known, nn.Module) and kind[:1].isupper()):
            raise ValueError(f"no layer of torch.nn: {kind}")
    elif kind not in METHODS:
        raise ValueError(f"no method that a step may call: {kind}")
    return str(name), str(kind), str(layer), list(inputs), dict(arguments)


def load_model(run: RunDirectory) -> TrainedModel:
    """Return the network of a run.

    Raises:
        InputError: there is none, its file is damaged, or the learner does not say how to build it.
    """
    if not run.holds(FILE):
        raise InputError(f"{run.path}: has no {FILE}: the run has not finished, or did not train.")
    path: Path = run.checked(FILE)
    try:
        with safe_open(path, "pt") as file:
            record = json.loads((file.metadata() or {}).get(MODEL_ENTRY, "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(f"{path}: unreadable: {error}.") from error
    if "steps" not in record:
        raise InputError(
            f"{path}: does not say how its network is built, as the learner or an earlier version left it; load the "
            "tensors with safetensors.torch.load_file."
        )
    try:
        return TrainedModel(record, tensors)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise InputError(f"{path}: says of its network what does not fit: {error}.") from error
