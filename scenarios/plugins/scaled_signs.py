"""A codec: one bit for every value, its sign, and the mean modulus of each tensor; the error is sent later."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vnetsim.learning.codecs import Sent


@dataclass(frozen=True, kw_only=True)
class ScaledSigns:
    """Sends signs, as EF-SignSGD does, with error feedback in the silo."""

    name = "scaled-signs"
    source = "Karimireddy et al. (2019): Error feedback fixes SignSGD and other gradient compression schemes, ICML"
    equations = ("p = e + D; decoded: mean |p| sgn(p) of each tensor; e <- p - decoded", "bytes: n / 8 + 4")
    remembers = True

    def bytes_of(self, values: int) -> float:
        """Return a bit for every value, and 4 bytes for the mean modulus."""
        return math.ceil(values / 8) + 4

    def send(self, tensors: Mapping[str, Any], memory: Mapping[str, Any], draws: Any) -> Sent:  # noqa: ARG002
        """Return the scaled signs, and what they lack as memory."""
        wanted = {name: tensor + memory.get(name, 0) for name, tensor in tensors.items()}
        decoded = {name: p.abs().mean() * p.sign() for name, p in wanted.items()}
        return Sent(tensors=decoded, memory={name: wanted[name] - decoded[name] for name in wanted})
