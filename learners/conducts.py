"""The built-in conducts of hostile and lazy vehicles.

D is the change that the vehicle's own local training made, C the number of classes, n the number of uploads of a round,
f the number of hostile ones among them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from vnetsim.errors.bounds import Within
from vnetsim.learning.conduct import Hostile, HostileRound, Sends

Tensors = Mapping[str, Tensor]
Factor = Annotated[float, Within(0, 1e6, "", "a direction of its own; float32 ends soon after")]


@dataclass(frozen=True, kw_only=True)
class Honest:
    """Nobody is hostile."""

    name, flips_labels = "honest", False
    source = "as federated learning assumes"
    equations: ClassVar[tuple[str, ...]] = ("sent: D",)

    def send(self, given: HostileRound) -> Sequence[Sends]:
        """Return each hostile vehicle's own change; no memory."""
        return [Sends(change=one.change) for one in given.hostile]


@dataclass(frozen=True, kw_only=True)
class LabelFlip(Honest):
    """Hostile vehicles train on wrong labels. Only learners of classes have labels."""

    name, flips_labels = "label-flip", True
    source = (
        "Tolpegin et al. (2020): Data poisoning attacks against federated learning systems, ESORICS, arXiv:2007.08432; "
        "here all labels are mirrored"
    )
    equations = ("label: y <- C - 1 - y", "sent: D of that training")


@dataclass(frozen=True, kw_only=True)
class SignFlip:
    """Hostile vehicles send the opposite of their change.

    Args:
        factor: c.
    """

    name, flips_labels = "sign-flip", False
    source = "Li et al. (2019): RSA: Byzantine-robust stochastic aggregation methods, AAAI"
    equations = ("sent: -c D",)

    factor: Factor = 1.0

    def send(self, given: HostileRound) -> Sequence[Sends]:
        """Return each vehicle's change times -``factor``."""
        return [Sends(change={name: -self.factor * t for name, t in one.change.items()}) for one in given.hostile]


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """Hostile vehicles enlarge their change, so that it outweighs the others in the mean.

    Args:
        factor: c.
    """

    name, flips_labels = "scaling", False
    source = (
        "Bagdasaryan et al. (2020): How to backdoor federated learning, AISTATS, arXiv:1807.00459 (model replacement)"
    )
    equations = ("sent: c D",)

    factor: Factor = 10.0

    def send(self, given: HostileRound) -> Sequence[Sends]:
        """Return each vehicle's change times ``factor``."""
        return [Sends(change={name: self.factor * t for name, t in one.change.items()}) for one in given.hostile]


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Hostile vehicles add Gaussian noise to every value of their change.

    Args:
        deviation: standard deviation of the noise, s.
    """

    name, flips_labels = "noise", False
    source = "Blanchard et al. (2017): Machine learning with adversaries, NeurIPS (Gaussian attack); here added to D"
    equations = ("sent: D + N(0, s^2)",)

    deviation: Annotated[float, Within(0, 1e6, "", "no noise; float32 ends soon after")] = 0.1

    def send(self, given: HostileRound) -> Sequence[Sends]:
        """Return each vehicle's change plus noise; without noise if ``deviation`` is 0."""
        return [Sends(change=_with_noise(one.change, self.deviation, one)) for one in given.hostile]


@dataclass(frozen=True, kw_only=True)
class FreeRider:
    """Lazy vehicles return the model that they downloaded, perhaps with a little noise to hide it.

    In simulated time they take as long as an honest vehicle.

    Args:
        deviation: standard deviation of the noise.
    """

    name, flips_labels = "free-rider", False
    source = (
        "Fraboni, Vidal, Lorenzi (2021): Free-rider attacks on model aggregation in federated learning, AISTATS, "
        "arXiv:2006.11901"
    )
    equations = ("sent: 0, or N(0, s^2)",)

    deviation: Annotated[float, Within(0, 1e6, "", "no noise; float32 ends soon after")] = 0.0

    def send(self, given: HostileRound) -> Sequence[Sends]:
        """Return for each vehicle a change of zero, with noise added if ``deviation`` is above 0."""
        zeros = [{name: torch.zeros_like(tensor) for name, tensor in one.change.items()} for one in given.hostile]
        pairs = zip(zeros, given.hostile, strict=True)
        return [Sends(change=_with_noise(zero, self.deviation, one)) for zero, one in pairs]


@dataclass(frozen=True, kw_only=True)
class Replay:
    """Hostile vehicles send the first change of their silo again and again.

    The first change is that of the first hostile vehicle with the silo; it stays with the silo.
    """

    name, flips_labels = "replay", False
    source = "stale updates sent again; the same change is sent each time"
    equations = ("sent: D of the silo's first hostile local training",)

    def send(self, given: HostileRound) -> Sequence[Sends]:
        """Return for each vehicle the first change of its silo, which is remembered and sent in all later rounds."""
        first = [{**one.change, **one.memory} for one in given.hostile]
        return [Sends(change=one, memory=one) for one in first]


@dataclass(frozen=True, kw_only=True)
class Alie:
    """A little is enough: all hostile vehicles of a round send one change, which hides in the spread of the others.

    With few uploads the formula gives z = 0 (n = 3 or 4 with f = 1), and the attack then does nothing.
    Implementations differ in the side: the authors' code takes the deviations off gradients, which adds them to
    changes.

    Args:
        knows: ``honest``: mean and standard deviation are those of the round's honest changes, which the attacker is
            assumed to know. ``own``: those of the hostile vehicles' own changes, as in the paper.
        deviations: z, how many standard deviations from the mean; 0 for the formula.
    """

    name, flips_labels = "alie", False
    source = (
        "Baruch, Baruch, Goldberg (2019): A little is enough: circumventing defenses for distributed learning, "
        "NeurIPS, arXiv:1902.06156"
    )
    equations = (
        "sent: mean - z sd, coordinate by coordinate",
        "z = Phi^-1((n - f - s) / (n - f)), s = floor(n / 2 + 1) - f; at least 0, and s at least 1",
    )

    knows: Literal["honest", "own"] = "honest"
    deviations: Annotated[float, Within(0, 1e6, "", "the formula; float32 ends soon after")] = 0.0

    def send(self, given: HostileRound) -> Sequence[Sends]:
        """Return one change for all, made of honest changes; of own ones if ``knows`` says so or nobody is honest."""
        own = [one.change for one in given.hostile]
        known = list(given.honest) if self.knows == "honest" and given.honest else own
        z = self.deviations or alie_deviations(len(own) + len(given.honest), len(own))
        change: dict[str, Tensor] = {}
        for name, like in own[0].items():
            rows = torch.stack([one[name].double() for one in known])
            change[name] = (rows.mean(dim=0) - z * rows.std(dim=0, correction=0)).to(like.dtype)
        return [Sends(change=change) for _ in own]


def alie_deviations(uploads: int, hostile: int) -> float:
    """Return ALIE's z for a round of ``uploads`` uploads, ``hostile`` of them hostile; >= 0, and 0 if all are."""
    honest = uploads - hostile
    supporters = max(1, math.floor(uploads / 2 + 1) - hostile)
    share = (honest - supporters) / honest if honest else 0.0
    return max(0.0, NormalDist().inv_cdf(share)) if share > 0 else 0.0


@dataclass(frozen=True, kw_only=True)
class Ipm:
    """Inner product manipulation: all hostile vehicles of a round send the opposite of the honest mean, scaled.

    Without an honest vehicle in the round they send zeros.

    Args:
        factor: epsilon; small values deceive medians and Krum, large ones the mean.
    """

    name, flips_labels = "ipm", False
    source = (
        "Xie, Koyejo, Gupta (2020): Fall of empires: breaking Byzantine-tolerant SGD by inner product manipulation, "
        "UAI, arXiv:1903.03936"
    )
    equations = ("sent: -epsilon mean of the honest changes",)

    factor: Factor = 0.5

    def send(self, given: HostileRound) -> Sequence[Sends]:
        """Return one change for all: -``factor`` times the mean of the honest ones, or zeros."""
        change = {name: torch.zeros_like(like) for name, like in given.hostile[0].change.items()}
        for name, like in change.items() if given.honest else ():
            mean = torch.stack([one[name] for one in given.honest]).double().mean(dim=0)
            change[name] = (-self.factor * mean).to(like.dtype)
        return [Sends(change=change) for _ in given.hostile]


def _with_noise(change: Tensors, deviation: float, who: Hostile) -> Tensors:
    """Return a change plus Gaussian noise drawn with ``who.draws``; the change itself for deviation 0."""
    if deviation == 0:
        return change
    return {
        name: tensor + deviation * torch.randn(tensor.shape, generator=who.draws, dtype=tensor.dtype).to(tensor.device)
        for name, tensor in change.items()
    }
