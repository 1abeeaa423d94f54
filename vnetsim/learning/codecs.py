"""Codecs: how the model and its updates are sent over the radio link, in how many bytes and with which loss.

Bytes follow from the number of values alone, so timing stays independent of weights. Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

from vnetsim.errors import InputError
from vnetsim.experiment import DEFAULT_NAMES
from vnetsim.learner_facts import Cost
from vnetsim.plugins import Kind, plugin_errors
from vnetsim.plugins.results import NOT_NEGATIVE, number_of

FLOAT32 = DEFAULT_NAMES["codec"]
"""The codec of a run that names none: nothing is rounded, and a copy of the model has the bytes of ``cost.model``."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Sent:
    """The result of sending tensors once.

    Args:
        tensors: what the receiver decodes: tensors by name, of the names, shapes and types that were sent.
        memory: tensors by name that the codec gets back the next time, such as the error that was not sent.
    """

    tensors: Mapping[str, Any]
    memory: Mapping[str, Any] = field(default_factory=dict)


class Codec(Protocol):
    """Encodes and decodes an update: a frozen keyword-only dataclass; fields: settings of ``codec``.

    Class attributes: ``name``; ``source``, a citation; ``equations``, one a line; ``remembers``, whether it keeps
    memory in the silo between uploads.
    """

    name: ClassVar[str]
    source: ClassVar[str]
    equations: ClassVar[tuple[str, ...]]
    remembers: ClassVar[bool]

    def bytes_of(self, values: int) -> float:
        """Return the bytes on the air of an update of ``values`` values; it may depend on nothing else."""
        ...

    def send(self, tensors: Mapping[str, Any], memory: Mapping[str, Any], draws: Any) -> Sent:
        """Encode ``tensors``, and return what the receiver decodes and the silo's new memory.

        Args:
            tensors: the change of a local training, trained parameters by name; not to be changed in place.
            memory: the memory of the silo's last upload; empty before the first.
            draws: a ``torch.Generator`` on the CPU, seeded for this vehicle and round; the only source of chance.
        """
        ...


CODECS = Kind(
    name="codec",
    group="vnetsim.codecs",
    protocol=Codec,
    key="codec.name",
    table="codec",
    default=FLOAT32,
    package="learners",
    built_in={
        "float32": "learners.codecs:Float32",
        "float16": "learners.codecs:Float16",
        "int8": "learners.codecs:Int8",
        "qsgd": "learners.codecs:Qsgd",
        "top-k": "learners.codecs:TopK",
    },
)


def bytes_by(codec: Codec, values: int) -> float:
    """Return the bytes that a codec sends for so many values; RunError if it fails or returns no finite number >= 0."""
    with plugin_errors(CODECS.name, codec.name, "in bytes_of"):
        return number_of(codec.bytes_of(values), NOT_NEGATIVE, CODECS, codec, "bytes_of")


def with_codec_bytes(cost: Cost, values: int | None, *, upload: Codec | None, download: Codec | None) -> Cost:
    """Return ``cost`` with model copies in the bytes of the codecs; None as a codec keeps the bytes of its direction.

    ``values`` is the number of values of a copy, None for ``cost.model.bytes`` / 4. Other payload, such as keys and
    exchanges, keeps its bytes. InputError if ``cost.model`` is None; RunError if a codec failed.
    """
    model = cost.model
    if model is None:
        raise InputError(
            f"{CODECS.key}: the learner does not say of what model its costs are (Cost.model); leave it at '{FLOAT32}'."
        )
    count = model.bytes // 4 if values is None else values

    def size(whole: int, other: int, codec: Codec | None) -> int:
        """Return a direction's bytes with ``codec``; ``whole`` is its bytes in float32, ``other`` those of no model."""
        copies = (whole - other) / model.bytes
        return whole if codec is None else round(copies * bytes_by(codec, count)) + other

    return replace(
        cost,
        download_bytes=size(cost.download_bytes, model.other_download_bytes, download),
        upload_bytes=size(cost.upload_bytes, model.other_upload_bytes, upload),
    )
