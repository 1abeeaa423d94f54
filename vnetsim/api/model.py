"""The network that a run trained: rebuilt from its encoder's name, with the tensors of ``model.safetensors``."""

from __future__ import annotations

import importlib
import json
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from vnetsim.errors import InputError, one_line
from vnetsim.learning.kinds import ENCODERS
from vnetsim.learning.model_record import MODEL_ENTRY, MODEL_FILE, MODEL_FOLDER, ModelRecord
from vnetsim.own_packages import claim
from vnetsim.plugins import plugin_errors
from vnetsim.storage.run_directory import RunDirectory
from vnetsim.storage.structure import structure


class TrainedModel(nn.Module):
    """A trained network for images in [0, 1]; it contains the normalisation that the run used.

    It starts in evaluation mode, with gradients, on the CPU; ``to`` and ``train`` work as for any module.

    Attributes:
        encoder: name of the encoder.
        image_shape: (C, H, W) of the images it was trained on.
        classes: labels in the order of the logits; for steering, names of ranges of the angle.
        round: number of aggregated rounds.
        returns: description of the output.
        batchnorm: ``carried`` if the model contains the BatchNorm statistics that the run's evaluation used. Otherwise
            estimate them first, as the evaluation did: ``torch.optim.swa_utils.update_bn([images], model)`` with a few
            hundred images like those of training.
        mean: mean of each channel, shape (C, 1, 1), which is subtracted from images in [0, 1].
        std: standard deviation of each channel, shape (C, 1, 1), by which the difference is divided.
        network: the network without the normalisation; its tensors have the names of the file.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, record: ModelRecord, network: nn.Module) -> None:
        """Wrap ``network``, which has its trained tensors, with attributes from ``record``, in evaluation mode."""
        super().__init__()
        self.encoder = record.encoder
        self.image_shape = record.image_shape
        self.classes = record.classes
        self.round = record.round
        self.returns = record.returns
        self.batchnorm = record.batchnorm
        self.register_buffer("mean", torch.tensor(record.mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(record.std).view(-1, 1, 1), persistent=False)
        self.network = network
        self.eval()

    def forward(self, images: Tensor) -> Any:
        """Return the network's output for images (N, C, H, W), uint8 or in [0, 1]; see the attribute ``returns``."""
        return self.network(self._normalise(images))

    def features(self, images: Tensor) -> Tensor:
        """Return the input of the last linear layer, (N, features), as kNN compares it; images as for ``forward``."""
        return self.network.features(self._normalise(images))  # type: ignore[no-any-return,operator]

    def _normalise(self, images: Tensor) -> Tensor:
        """Return (images in [0, 1] - ``mean``) / ``std``; uint8 images are divided by 255 first."""
        given = images.to(self.mean.dtype) / 255 if images.dtype == torch.uint8 else images
        return (given - self.mean) / self.std


def load_model(run: RunDirectory, network: object = None, name: str = MODEL_FILE) -> TrainedModel:
    """Return the trained network of a run from the file ``name``; for ``network`` see ``vnetsim.Run.model``.

    InputError if the run has no model, its file is damaged, or ``network`` has a different architecture.
    """
    if not run.holds(name):
        several = (run.path / MODEL_FOLDER).is_dir()
        why = "name one of its RSUs, each has its own" if several else "the run has not finished, or did not train"
        raise InputError(f"{run.path}: has no {name}: {why}.")
    path: Path = run.checked_path(name)
    try:
        with safe_open(path, "pt") as file:
            found = json.loads((file.metadata() or {}).get(MODEL_ENTRY, "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: unreadable: {error}.") from error
    if not isinstance(found, dict):
        raise InputError(
            f"{path}: does not say what it is a model of; load the tensors with safetensors.torch.load_file."
        )
    record = structure(found, ModelRecord, str(path))
    if not isinstance(network, nn.Module):
        network = _build_network(record, network, run)
    try:
        # assign: the network's own tensors may be on the meta device
        network.load_state_dict(tensors, assign=True)
    except RuntimeError as error:
        raise InputError(f"{path}: its tensors are not those of the network: {one_line(error):.300}") from error
    return TrainedModel(record, network)


def _build_network(record: ModelRecord, encoder: object, run: RunDirectory) -> nn.Module:
    """Build a record's network, untrained, with ``encoder`` (class, name; None: its own); InputError if that fails."""
    claim("learners")
    architecture = importlib.import_module("learners.encoders").architecture
    if isinstance(encoder, str):
        encoder = ENCODERS.find(encoder)
    if encoder is not None and not (isinstance(encoder, type) and is_dataclass(encoder) and hasattr(encoder, "build")):
        raise InputError(
            "run.model: expected the encoder's class, its name, or a torch.nn.Module of the same architecture, got "
            f"{encoder!r}."
        )
    try:
        if encoder is None:
            built: nn.Module = architecture(record)
        else:
            trunk: Any = structure(run.settings().get("encoder", {}), encoder, "", ("encoder",))
            with plugin_errors("encoder", str(getattr(encoder, "name", encoder)), "in build"):
                built = architecture(record, trunk)
    except (RuntimeError, OverflowError) as error:  # a size that torch does not take
        raise InputError(f"{run.path}: names a network that cannot be built: {error}.") from error
    return built
