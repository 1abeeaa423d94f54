"""Facts that a learner declares and records contain: its cost, its exchange, its metrics, how private it is."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

AGGREGATOR = "single"
"""Name of the aggregator when a run has only one, for all RSUs."""

CLOUD = "cloud"
"""Name of the aggregator that averages the RSUs' models."""

NOT_READ = "Images not read"
"""Title of a learner's note, in a run without training and without images, on what it assumed instead of them."""

DELTA = 1e-5
"""The delta of every epsilon on a page."""

PRIVACY = "Privacy"
"""Title of the fact that says how private a run's models are."""


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """The exchange of a vehicle with each of its neighbours in a round; the simulator decides which exchanges complete.

    A vehicle's peers are the neighbours from which it received. If neighbours work on what they receive or send
    something back, the peers are those whose reply arrived.

    Args:
        before_training: whether vehicles exchange between download and training; otherwise after training.
        mutual: whether an exchange counts only when both directions completed.
        send_bytes: size of what a vehicle sends to a neighbour.
        work_flop: floating-point operations that the neighbour then does for the sender.
        return_bytes: size of the neighbour's reply.
    """

    before_training: bool
    mutual: bool
    send_bytes: int
    work_flop: float = 0.0
    return_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class ModelCost:
    """The model that a cost belongs to, so that the cost of another model can be computed.

    Args:
        bytes: size of one copy.
        image_flop: floating-point operations of its forward pass over one image.
        images: images of one local training, repeated ones counted each time; None if the learner does not declare it:
            the work then depends on what it trains, and ``cost.images`` has no effect.
        other_download_bytes: the part of the download that is not a model, such as keys; it does not change.
        other_upload_bytes: the same part of the upload.
    """

    bytes: int
    image_flop: float
    images: int | None = None
    other_download_bytes: int = 0
    other_upload_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Payload and work of one participation.

    Args:
        download_bytes: size of what a vehicle receives from the RSU before it trains.
        upload_bytes: size of what it sends to the RSU afterwards.
        work_flop: floating-point operations of its local training.
        exchange: what it exchanges with other vehicles of the round; None for nothing. All silos have one, or none.
        steps: number of equal local steps, for paces that stop training after some of them; 0 if the learner cannot
            do only a part, or its payload depends on how much it did.
        model: the model with this cost; None if the learner does not declare it: ``cost.model`` is then refused.
    """

    download_bytes: int
    upload_bytes: int
    work_flop: float
    exchange: Exchange | None = None
    steps: int = 0
    model: ModelCost | None = None

    def of(self, model_bytes: int, image_flop: float, images: int | None = None) -> Cost:
        """Return the cost of the same participation with another model; ``model`` must not be None.

        Every transferred copy of the model has ``model_bytes``, and every pass of an image takes ``image_flop``
        operations. ``images`` scales all passes, also those of an exchange, by its ratio to ``model.images``; if
        one of both is None, their number stays.
        """
        own = self.model
        assert own is not None

        def sent(size: int, other: int = 0) -> int:
            """Return the new size of a payload of ``size`` bytes with ``other`` bytes that are not the model."""
            return round((size - other) / own.bytes * model_bytes) + other

        def work(flop: float) -> float:
            """Return the new operations in place of ``flop``."""
            passes = flop / own.image_flop
            if images is not None and own.images is not None:
                passes = passes / own.images * images  # in this order exact where each image passes equally often
            return passes * image_flop

        exchange = self.exchange and replace(
            self.exchange,
            send_bytes=sent(self.exchange.send_bytes),
            work_flop=work(self.exchange.work_flop),
            return_bytes=sent(self.exchange.return_bytes),
        )
        return replace(
            self,
            download_bytes=sent(self.download_bytes, own.other_download_bytes),
            upload_bytes=sent(self.upload_bytes, own.other_upload_bytes),
            work_flop=work(self.work_flop),
            exchange=exchange,
            model=replace(own, bytes=model_bytes, image_flop=image_flop),
        )


@dataclass(frozen=True, kw_only=True)
class Series:
    """A metric that a learner reports, so that the report can draw it without knowing the learner.

    Args:
        name: key in the dictionaries that ``aggregate`` and ``evaluate`` return.
        label: axis label.
        unit: ``"%"`` for a fraction in [0, 1] to be shown in per cent; ``""`` for none.
        caption: one sentence saying what it is and where it comes from.
        group: title of the figure that it shares with other metrics of its unit; empty for their labels.
        result: whether its last value is a headline number; False for values that only explain a run, such as a
            learning rate or a constant predictor.
    """

    name: str
    label: str
    unit: str = ""
    caption: str
    group: str = ""
    result: bool = True


def epsilon(times: int, noise_multiplier: float, delta: float = DELTA) -> float:
    """Return epsilon for data that were used ``times`` times, each with Gaussian noise of z times the sensitivity.

    rho = k / (2 z^2) of zero-concentrated differential privacy, which adds up over uses, and epsilon = rho + 2 sqrt(rho
    ln(1 / delta)): Bun and Steinke (2016), Propositions 1.3 and 1.6, Lemma 1.7. 0 without uses, infinite without noise.
    """
    if times == 0:
        return 0.0
    if noise_multiplier == 0:
        return math.inf
    rho = times / (2 * noise_multiplier**2)
    return rho + 2 * math.sqrt(rho * math.log(1 / delta))


def privacy_facts(learning: Mapping[str, Any], took_part: Iterable[tuple[str, int, object]]) -> dict[str, str]:
    """Return a sentence on the privacy of a run, by its title ``PRIVACY``; {} unless ``learning.dp`` has a clip.

    ``learning`` are the learner's settings. ``took_part`` has (vehicle, silo, key of the mean that it entered) of each
    upload that was averaged. Data that enter one mean n times change it by n times the clip, so they count n^2 uses.
    """
    given = learning.get("dp") or {}
    if not given.get("clip"):
        return {}
    uploads, noise = list(took_part), given.get("noise_multiplier", 0.0)

    def words(each: Iterable[tuple[object, object]]) -> str:
        """Return epsilon of the data used most often, in words; ``each`` has (owner, mean) of each upload."""
        uses = Counter[object]()
        for (whose, _), times in Counter(each).items():
            uses[whose] += times**2
        most = max(uses.values(), default=0)
        return f"{epsilon(most, noise):.4g} (used {most} times)"

    by_vehicle, by_silo = (words((who[i], mean) for *who, mean in uploads) for i in range(2))
    return {
        PRIVACY: (
            f"epsilon at delta = {DELTA:g}, of the data used most often: {by_vehicle} if "
            f"each vehicle has its own, {by_silo} if each silo is one person's "
            "(rho = uses / (2 z^2), epsilon = rho + 2 sqrt(rho ln(1 / delta))). "
            "It compares models with and without these data; for other data in their place uses count four times. "
            "Assumed: RSUs are trusted, models alone are published, no other figure of this page, and who took part "
            "is public, so no sampling adds to it"
        )
    }
