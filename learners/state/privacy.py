"""The differentially private mean of a round's uploads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from learners.mathematics.robust import AveragingSettings, PrivacySettings, clip
from vnetsim.learning import ModelKey
from vnetsim.random_streams import Streams


@dataclass(frozen=True, kw_only=True)
class PrivateMean:
    """The Gaussian mechanism on clipped changes: DP-FedAvg (McMahan et al. 2018) with a fixed denominator.

    With D_n the change of upload n from the model that its vehicle downloaded::

        x <- x + (1 / m) (sum_n D_n min(1, S / norm(D_n)) + N(0, (z S)^2))

    An upload changes the sum by at most S. BatchNorm statistics are clipped and noised like parameters; variances stay
    at least 0; counters are averaged. The noise of a model depends on ``streams``, its aggregator and version only.
    """

    settings: PrivacySettings  # S and z
    uploads: int  # m, which does not depend on how many came
    streams: Streams

    def mean(
        self,
        states: Sequence[Mapping[str, Tensor]],
        bases: Sequence[Mapping[str, Tensor]],
        present: Mapping[str, Tensor],
        newest: ModelKey,
    ) -> dict[str, Tensor]:
        """Return the model after ``present``, whose key is ``newest``, with the uploads' tensors only.

        ``states`` are the uploads, one or more, and ``bases`` the models that they started from, in the same order.
        """
        largest = AveragingSettings(clip_norm=self.settings.clip)
        clipped = [clip(state, base, largest) for state, base in zip(states, bases, strict=True)]
        generator = self.streams.generator("privacy", newest.aggregator, newest.version)
        deviation = self.settings.noise_multiplier * self.settings.clip
        result = {}
        for name, tensor in states[0].items():
            if not tensor.is_floating_point():
                result[name] = torch.stack([state[name].double() for state in states]).mean(0).round().to(tensor.dtype)
                continue
            total = torch.zeros_like(tensor, dtype=torch.float64)
            for state, base in zip(clipped, bases, strict=True):
                total += state[name].double() - base[name].double()
            if deviation:
                noise = torch.as_tensor(deviation * generator.standard_normal(tuple(tensor.shape)))
                total += noise.to(total.device)
            made = present[name].double() + total / self.uploads
            result[name] = (made.clamp_min(0) if name.endswith("running_var") else made).to(tensor.dtype)
        return result
