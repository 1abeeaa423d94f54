"""The architecture of a trained network, by its name."""

from __future__ import annotations

import torch
from torch import nn

from learners.encoders import Classifier, Encoder
from learners.encoders.resnet8 import ResNet8
from vnetsim.errors import InputError
from vnetsim.learning.kinds import ENCODERS, EncoderTrunk
from vnetsim.learning.model_record import ModelRecord


def architecture(record: ModelRecord, encoder: EncoderTrunk | None = None) -> nn.Module:
    """Return the network that a record names, without weights: its tensors take no memory until they are loaded.

    ``encoder`` is the record's with its settings, where that does not come with vnetsim.

    Raises:
        InputError: vnetsim has no network of that name.
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
