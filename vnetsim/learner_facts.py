"""What a learner says of itself, and every record keeps: its cost, its exchange, the series that it reports."""

from __future__ import annotations

from dataclasses import dataclass, replace

AGGREGATOR = "single"
"""The aggregator of a run that has one, over all RSUs."""

CLOUD = "cloud"
"""The aggregator that averages the RSUs' models."""


NOT_READ = "Images not read"
"""Title of what a learner says where nobody trains and images are not there: what was taken in their place."""


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """What every vehicle of a round sends to each of its neighbours; the simulator settles which exchanges complete.

    A vehicle's peers are those from which it received; where the neighbour works on what it received, or sends
    something back, they are those from which that came back.

    Args:
        before_training: vehicles exchange after the download, before their own training; else after it.
        mutual: whether an exchange counts only when both directions completed.
        send_bytes: what goes to the neighbour.
        work_flop: floating-point operations that the neighbour then does for the sender.
        return_bytes: what it sends back.
    """

    before_training: bool
    mutual: bool
    send_bytes: int
    work_flop: float = 0.0
    return_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class ModelCost:
    """Of what model a cost is, so that another model can take its place.

    Args:
        bytes: of one copy of it.
        image_flop: floating-point operations of its forward pass over one image.
        images: how many images a local training takes, each as often as it comes; None where a learner does not say,
            and so its work follows what it trains, whatever ``cost.images`` is.
        other_download_bytes: of the download, what is no model and stays as it is, such as keys.
        other_upload_bytes: of the upload, likewise.
    """

    bytes: int
    image_flop: float
    images: int | None = None
    other_download_bytes: int = 0
    other_upload_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Payload and work of one participation; properties of the learner, not of its weights.

    Args:
        download_bytes: what a vehicle receives from the RSU before it trains.
        upload_bytes: what it sends to the RSU afterwards.
        work_flop: floating-point operations of its local training.
        exchange: what it exchanges with other vehicles of the round; None for nothing. All silos have one, or none.
        steps: local steps into which the work divides equally, for paces that end it after some of them; 0 where
            a learner cannot do a part of it, or its payload depends on how much it did.
        model: the model of which this is the cost; None where a learner does not say, and so takes no ``cost.model``.
    """

    download_bytes: int
    upload_bytes: int
    work_flop: float
    exchange: Exchange | None = None
    steps: int = 0
    model: ModelCost | None = None

    def of(self, model_bytes: int, image_flop: float, images: int | None = None) -> Cost:
        """Return what the same participation costs with another model and another number of images.

        Every copy of the trained model, in whatever direction, is replaced by one of ``model_bytes``. Every pass of an
        image through it is replaced by a pass of ``image_flop`` operations. With ``images`` all passes, those of an
        exchange too, are multiplied by the ratio of ``images`` to the images that the learner trains on. Needs
        ``model``.
        """
        own = self.model
        assert own is not None

        def sent(size: int, other: int = 0) -> int:
            return round((size - other) / own.bytes * model_bytes) + other

        def work(flop: float) -> float:
            ratio = 1.0 if images is None or own.images is None else images / own.images
            return flop / own.image_flop * image_flop * ratio

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
        unit: ``"%"`` means the value is a fraction in [0, 1] to be shown in per cent; ``""`` for none.
        caption: one sentence saying what it is and where it comes from.
        group: title of the figure that it shares with others of its unit; empty for the labels.
        result: whether its last value is shown among the headline numbers; False for what explains a run (a learning
            rate, a constant predictor) and is no result of it.
    """

    name: str
    label: str
    unit: str = ""
    caption: str
    group: str = ""
    result: bool = True
