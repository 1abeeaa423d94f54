"""Rounds of training to be timed, and what they are held against: shared by the benchmarks and the check of a GPU.

Images are random: their content costs nothing.
"""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from device_checks.tiny_data import view_one, view_two
from learners.data.sets import ImageSet
from learners.encoders import create_encoder
from learners.encoders.precision import set_precision
from learners.engines.optimizers import Sgd
from learners.engines.programs import LocalTraining
from learners.engines.silo_images import SiloImages
from learners.flsimco import FLSimCo
from learners.mathematics.losses import dual_temperature_loss
from learners.tasks.contrastive import ContrastiveSettings
from vnetsim.experiment import DataSettings, Experiment, RoundSettings, SiloSettings
from vnetsim.learning import AGGREGATOR, LearnerContext, ModelKey, Participant, Peer
from vnetsim.random_streams import Streams

SPEED_MPS = 30.0
MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)
ENGINES = ("sequential", "auto")


def images(count: int) -> ImageSet:
    generator = torch.Generator().manual_seed(0)
    pool = torch.randint(0, 256, (count + 200, 3, 32, 32), generator=generator, dtype=torch.uint8)
    labels = torch.arange(count + 200) % 10
    return ImageSet(
        name="random",
        train=pool[:count],
        train_labels=labels[:count],
        test=pool[count:],
        test_labels=labels[count:],
        class_names=tuple("0123456789"),
        mean=MEAN,
        std=STD,
    )


@contextmanager
def given(count: int) -> Iterator[None]:
    """Let learners load random images in place of a data set."""
    pool = images(count)
    with mock.patch("learners.tasks.task.load_images", return_value=pool):
        yield


def context(
    device: str, silos: int, *, approaches: int = 4, rounds: int = 10, max_staleness: int = 0, **changes: Any
) -> LearnerContext:
    """Return what learners are built from; ``changes`` are attributes of it, or tables of the experiment."""
    tables = {name: changes.pop(name) for name in ("data", "blur", "camera", "exchange", "hostile") if name in changes}
    given = Experiment(
        scenario="gaussian",
        rounds=rounds,
        silos=SiloSettings(count=silos, approaches=min(approaches, silos)),
        round=RoundSettings(quorum=1, max_staleness=max_staleness),
        **tables,
    )
    streams = Streams(seed=0).child("learner")
    return LearnerContext(
        **({"streams": streams, "device": device, "experiment": given, "districts": 1, "pictures": True} | changes)
    )


def vehicles(
    count: int, *, round_: int = 0, peers: int = 0, speed_mps: Callable[[int], float] = lambda _: SPEED_MPS
) -> list[Participant]:
    """Return participants of a round, each of whom has exchanged with so many of those after it."""

    def told(i: int) -> dict[str, Any]:
        speed = speed_mps(i)
        return {"vehicle_id": f"v{i}", "silo": i, "speed_mps": speed, "level_px": speed / 10, "neighbours": peers}

    return [
        Participant(
            round=round_, base=ModelKey(AGGREGATOR, round_), rsu_id="r", **told(i),
            peers=tuple(Peer(**told((i + j) % count)) for j in range(1, peers + 1)),
        )
        for i in range(count)
    ]  # fmt: skip


def finish(device: str) -> None:
    """Wait until the device has done what it was given."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def seconds(runs: Sequence[Callable[[], object]], *, repetitions: int, device: str, warm: int = 1) -> list[float]:
    """Return the median time of each, taken in turn: the machine's moods meet all alike."""
    times: list[list[float]] = [[] for _ in runs]
    for repetition in range(repetitions + warm):
        for run, measured in zip(runs, times, strict=True):
            begin_s = time.perf_counter()
            run()
            finish(device)
            if repetition >= warm:
                measured.append(time.perf_counter() - begin_s)
    return [statistics.median(measured) for measured in times]


def contrastive(
    device: str, *, silos: int, per_silo: int, engines: Sequence[str] = ENGINES, **settings: Any
) -> dict[str, FLSimCo]:
    """Return FLSimCo under each engine."""
    with given(silos * per_silo):
        return {
            engine: FLSimCo.create(
                context(device, silos, data=DataSettings(min_images=per_silo)),
                ContrastiveSettings(engine=engine, bank=100, **settings),
            )
            for engine in engines
        }


def after_first_round(
    kind: Any, device: str, *, engines: Sequence[str] = ENGINES, count: int = 10, **settings: Any
) -> dict[str, Any]:
    """Return CDL or FedEFM under each engine, after the first round: the second is the first whole one."""
    learners = {}
    with given(200 * count):
        for engine in engines:
            data = DataSettings(name="road") if kind.task == "steering" else DataSettings()
            learner = kind.create(context(device, count + 1, data=data), kind.Settings(engine=engine, **settings))
            learner.aggregate(learner.train(vehicles(count)))
            learners[engine] = learner
    return learners


class Centralised:
    """One model trained on all images in a plain loop: the same steps, batches, views and blur, nothing federated."""

    def __init__(
        self, device: str, *, count: int, encoder: str, batch: int, passes: int = 2, precision: str = "float32"
    ) -> None:
        self._device = torch.device(device)
        self._batch, self._passes = batch, passes
        self._silos = SiloImages(images(count).train, [np.arange(count)], device=self._device)
        network = create_encoder(encoder, seed=0)
        set_precision(network, precision, (3, 32, 32))
        self._model = network.to(device=self._device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._training = LocalTraining(silo=0, kernel_px=3.0, blurred_fraction=1.0, learning_rate=0.06, seed=0, steps=1)

    def train(self, steps: int) -> None:
        optimizer = Sgd(dict(self._model.named_parameters()), learning_rate=0.06, momentum=0.9, weight_decay=5e-4)
        generator = torch.Generator().manual_seed(0)
        for _ in range(steps):
            self.step(*self.views(generator), optimizer)

    def views(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        pool = self._silos.images(next(self._silos.draw(self._training, self._batch, generator)))
        return view_one(pool, generator, MEAN, STD), view_two(pool, generator, MEAN, STD)

    def step(self, first: Tensor, second: Tensor, optimizer: Sgd) -> None:
        self._model.train()
        loss = dual_temperature_loss(self._model(first), self._model(second))
        if self._passes == 4:  # the published code passes both views anew for the other direction
            loss = (loss + dual_temperature_loss(self._model(second), self._model(first))) / 2
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def matrix_peak(device: str, dtype: torch.dtype = torch.bfloat16, *, side: int = 8192) -> float:
    """Return FLOP/s of a large matrix product; float32 as torch is set at the time, in TF32 or not."""
    a, b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    (median,) = seconds([lambda: [a @ b for _ in range(20)]], repetitions=5, device=device)
    return 20 * 2 * side**3 / median


def peak_bytes() -> int:
    """Return the most memory of the host that this process has held (B)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
