"""The metadata of the network in ``model.safetensors``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vnetsim.errors.paths import path_name
from vnetsim.learning import Description
from vnetsim.plugins import without_folder

MODEL_FILE, MODEL_FOLDER = "model.safetensors", "models"
"""File of a run's model, and folder of the RSUs' models if each has its own."""

MODEL_ENTRY = "vnetsim"
"""Key of the metadata; its value is JSON. There is only one, since safetensors writes several in any order."""


@dataclass(frozen=True, kw_only=True)
class ModelRecord:
    """Metadata needed, with the tensors, to use a trained network; fields as ``vnetsim.api.model.TrainedModel``."""

    encoder: str  # name of the encoder (``"file.py:Class"`` if a file defines it), or of the network if it has none
    network: str  # class of the network on the encoder, such as ``"Classifier"``; empty if the learner does not say
    image_shape: tuple[int, ...]
    classes: tuple[str, ...]
    round: int
    returns: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    batchnorm: str


def model_files(rsu_ids: Sequence[str]) -> dict[str, str]:
    """Return the path of each RSU's model file, relative to the run directory, by RSU id; no two are equal."""
    names = [path_name(rsu_id) for rsu_id in rsu_ids]
    alike = len({name.lower() for name in names}) < len(names)  # some file systems ignore case
    numbered = [path_name(str(number), name) for number, name in enumerate(names)] if alike else names
    return {rsu_id: f"{MODEL_FOLDER}/{name}.safetensors" for rsu_id, name in zip(rsu_ids, numbered, strict=True)}


def model_record(description: Description, rounds: int) -> ModelRecord:
    """Return the metadata of a learner's model after ``rounds`` rounds."""
    network, channels = description.network, description.image_shape[0]
    return ModelRecord(
        encoder=without_folder(description.encoder),
        network="" if network is None else type(network.module).__name__,
        image_shape=tuple(description.image_shape),
        classes=tuple(description.class_names),
        round=rounds,
        returns="" if network is None else network.returns,
        mean=(0.0,) * channels if network is None else network.mean,
        std=(1.0,) * channels if network is None else network.std,
        batchnorm="carried"
        if network is None or network.own_statistics
        else "to be estimated on images like those of training",
    )
