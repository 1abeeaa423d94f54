"""The built-in codecs: what the receiver decodes of a change, on its device, and in how many bytes it was sent."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from vnetsim.errors.bounds import Within
from vnetsim.learning.codecs import Sent

Tensors = Mapping[str, Tensor]
ERROR = "error"  # name of the memory of error feedback


@dataclass(frozen=True, kw_only=True)
class Float32:
    """Nothing is rounded; a copy of the model has the bytes that ``cost.model`` says."""

    name, remembers = "float32", False
    source = "IEEE 754: single precision, as networks are trained"
    equations = ("decoded: D",)

    def bytes_of(self, values: int) -> float:
        """Return the size of ``values`` values (bytes): 4 each."""
        return 4 * values

    def send(self, tensors: Tensors, memory: Tensors, draws: torch.Generator) -> Sent:  # noqa: ARG002 - see ``Codec``
        """Return the same tensors, not copied."""
        return Sent(tensors=tensors)


@dataclass(frozen=True, kw_only=True)
class Float16:
    """Values are rounded to half precision; those beyond its largest number, 65,504, become that number."""

    name, remembers = "float16", False
    source = "IEEE 754: half precision"
    equations = (
        "decoded: v (1 + e), |e| <= 2^-11 where 2^-14 <= |v| <= 65504; below, the error is at most 2^-25",
        "bytes: 2 n",
    )

    def bytes_of(self, values: int) -> float:
        """Return the size of ``values`` values (bytes): 2 each."""
        return 2 * values

    def send(self, tensors: Tensors, memory: Tensors, draws: torch.Generator) -> Sent:  # noqa: ARG002 - see ``Codec``
        """Return the tensors rounded to half precision, in their own types."""
        largest = torch.finfo(torch.float16).max
        return Sent(tensors={name: t.clamp(-largest, largest).half().to(t.dtype) for name, t in tensors.items()})


@dataclass(frozen=True, kw_only=True)
class Int8:
    """Values are rounded at random to one of 255 levels, equally spaced up to the largest modulus of their tensor."""

    name, remembers = "int8", False
    source = "Stochastic rounding: Gupta et al. (2015): Deep learning with limited numerical precision, ICML"
    equations = (
        "decoded: q s, q = floor(v / s + u), s = max |v| / 127 of each tensor, u uniform in [0, 1); E[q s] = v",
        "bytes: n + 4 for the scale; the timed model counts as one tensor",
    )

    def bytes_of(self, values: int) -> float:
        """Return the size of a tensor of ``values`` values (bytes): 1 each, and 4 for the scale."""
        return values + 4

    def send(self, tensors: Tensors, memory: Tensors, draws: torch.Generator) -> Sent:  # noqa: ARG002 - see ``Codec``
        """Return each tensor rounded at random to its 255 levels."""
        return Sent(tensors={name: _round_at_random(tensor, draws) for name, tensor in tensors.items()})


def _round_at_random(tensor: Tensor, draws: torch.Generator) -> Tensor:
    """Round a tensor at random to multiples of its largest modulus over 127; zeros stay zeros."""
    uniform = torch.rand(tensor.shape, generator=draws, dtype=torch.float64).to(tensor.device)
    scale = tensor.abs().max().double() / 127 if tensor.numel() else tensor.sum().double()
    levels = torch.floor(tensor.double() / torch.where(scale > 0, scale, 1.0) + uniform).clamp(-127, 127)
    return (levels * scale).to(tensor.dtype)


@dataclass(frozen=True, kw_only=True)
class Qsgd:
    """Values are rounded at random to one of ``levels`` multiples of the norm of their bucket, with their sign.

    Levels have a fixed number of bits; the paper's Elias code, whose length depends on the values, is not used.

    Args:
        levels: number of positive levels, s.
        bucket: number of values that share a norm, d.
    """

    name, remembers = "qsgd", False
    source = (
        "Alistarh, Grubic, Li, Tomioka, Vojnovic (2017): QSGD: Communication-efficient SGD via gradient quantization "
        "and encoding, NeurIPS, arXiv:1610.02132"
    )
    equations = (
        "decoded: |v| sgn(v_i) x_i, |v| the Euclidean norm of the bucket",
        "x_i = (l + 1) / s with probability s |v_i| / |v| - l, else l / s, l = floor(s |v_i| / |v|)",
        "E[decoded] = v, E |decoded - v|^2 <= min(d / s^2, sqrt(d) / s) |v|^2  (Lemma 3.1)",
        "bytes: ceil(log2(2 s + 1)) n / 8, and 4 for the norm of each bucket",
    )

    levels: Annotated[int, Within(1, 2**15, "", "one bit besides the sign; 16 bits in all")] = 7
    bucket: Annotated[int, Within(1, 10**9, "values", "a norm each; larger than any model")] = 512

    def bytes_of(self, values: int) -> float:
        """Return the size of ``values`` values (bytes): bits of levels and signs, 4 bytes for each bucket's norm."""
        bits = math.ceil(math.log2(2 * self.levels + 1))
        return math.ceil(bits * values / 8) + 4 * math.ceil(values / self.bucket)

    def send(self, tensors: Tensors, memory: Tensors, draws: torch.Generator) -> Sent:  # noqa: ARG002 - see ``Codec``
        """Return the tensors rounded at random; buckets are cut from all of them in a row, the last filled with 0."""
        row = _flatten(tensors)
        padded = torch.nn.functional.pad(row.double(), (0, -len(row) % self.bucket)).view(-1, self.bucket)
        uniform = torch.rand(padded.shape, generator=draws, dtype=torch.float64).to(row.device)
        norms = padded.norm(dim=1, keepdim=True)
        level = torch.floor(self.levels * padded.abs() / torch.where(norms > 0, norms, 1.0) + uniform) / self.levels
        decoded = (norms * padded.sign() * level).view(-1)[: len(row)]
        return Sent(tensors=_unflatten(tensors, decoded))


@dataclass(frozen=True, kw_only=True)
class TopK:
    """Only the values of largest modulus are sent; the others are added to the next change of the silo.

    The error that was not sent stays in the silo. It is lost if no vehicle with the silo comes again.

    Args:
        share: share of the values that are sent; rounded up to a whole number of them.
    """

    name, remembers = "top-k", True
    source = (
        "Stich, Cordonnier, Jaggi (2018): Sparsified SGD with memory, NeurIPS, arXiv:1809.07599; error feedback: "
        "Karimireddy et al. (2019), ICML, arXiv:1901.09847"
    )
    equations = (
        "p = e + D; decoded: the k values of p of largest modulus, 0 elsewhere; e <- p - decoded",
        "sum of decoded + e = sum of D",
        "bytes: 4 k for the values and min(4 k, n / 8) for their places",
    )

    share: Annotated[float, Within(1e-6, 1, "", "one of a million values; all of them")] = 0.05

    def bytes_of(self, values: int) -> float:
        """Return bytes: 4 for each value that is sent, and for places 4 each or a bit for every value, the shorter."""
        count = self._count(values)
        return 4 * count + min(4 * count, math.ceil(values / 8))

    def send(self, tensors: Tensors, memory: Tensors, draws: torch.Generator) -> Sent:  # noqa: ARG002 - see ``Codec``
        """Return the largest values of all tensors together, 0 elsewhere; what is left, a vector, is the memory."""
        row = _flatten(tensors)
        wanted = row + memory[ERROR] if memory else row
        places = wanted.abs().topk(self._count(len(row))).indices
        decoded = torch.zeros_like(wanted)
        decoded[places] = wanted[places]
        return Sent(tensors=_unflatten(tensors, decoded), memory={ERROR: wanted - decoded})

    def _count(self, values: int) -> int:
        """Return k, how many of ``values`` values are sent."""
        return min(values, math.ceil(self.share * values))


def _flatten(tensors: Tensors) -> Tensor:
    """Return all values of the tensors as one vector, in order."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors.values()])


def _unflatten(tensors: Tensors, row: Tensor) -> dict[str, Tensor]:
    """Cut a vector into tensors with the names, shapes and types of ``tensors``; the inverse of ``_flatten``."""
    parts = torch.split(row, [tensor.numel() for tensor in tensors.values()])
    return {
        name: part.reshape(one.shape).to(one.dtype) for (name, one), part in zip(tensors.items(), parts, strict=True)
    }
