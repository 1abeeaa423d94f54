"""How fast the vehicles of a round are trained, against one after the other and against the published code's way.

Run with ``pytest tests/benchmarks/test_training_benchmarks.py --benchmark-only -s`` or, where there is no pytest, as a
script with the repository and its ``tests/`` on PYTHONPATH. Options of the script: ``--device cuda``, ``--quick``
(leaves out ResNet-18 on a CPU). Prints ratios, and asserts nothing about time. Images are random: their content costs
nothing.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import torch
from device_checks.measurements import many_small, small_rounds
from device_checks.rows import CheckSetup
from device_checks.training_work import (
    MEAN,
    STD,
    Centralised,
    contrastive,
    images,
    seconds,
    vehicles,
)
from torch import Tensor

from learners.engines.optimizers import Sgd
from vnetsim.process import keep_freed_memory


class Published(Centralised):
    """Sequential vehicles as the published code trains them: torchvision's transforms image by image in a loader."""

    def vehicles(self, count: int, steps: int) -> None:
        from torch.utils.data import DataLoader, Dataset  # noqa: PLC0415
        from torchvision import transforms  # noqa: PLC0415

        tail = [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
        one = transforms.Compose(
            [transforms.RandomResizedCrop(32), transforms.RandomHorizontalFlip(), transforms.RandomGrayscale(0.2),
             *tail]
        )  # fmt: skip
        jitter = transforms.RandomApply([transforms.ColorJitter(0.4, 0.4, 0.4, 0.1)], 0.8)
        two = transforms.Compose([transforms.RandomResizedCrop(32), jitter, transforms.RandomGrayscale(0.4), *tail])
        pictures = [transforms.ToPILImage()(image) for image in images(self._batch * steps).train]

        class Views(Dataset[tuple[Tensor, Tensor]]):
            def __len__(self) -> int:
                return len(pictures)

            def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
                return one(pictures[index]), two(pictures[index])

        for _ in range(count):
            optimizer = Sgd(dict(self._model.named_parameters()), learning_rate=0.06, momentum=0.9, weight_decay=5e-4)
            for first, second in DataLoader(Views(), batch_size=self._batch, shuffle=True):
                self.step(first.to(self._device), second.to(self._device), optimizer)


def paper_round(device: str, *, repetitions: int = 1) -> None:
    """FLSimCo's round as published: 5 vehicles x 2 steps x 512 images x 2 views, ResNet-18.

    On a CPU, where all of it takes minutes, 2 of the 5 vehicles take 1 of the 2 steps.
    """
    count, steps, batch = (2, 1, 512) if device == "cpu" else (5, 2, 512)
    ours = contrastive(device, silos=count, per_silo=520, encoder="resnet18", batch=batch, steps=steps)
    joined = vehicles(count)
    central = Centralised(device, count=count * 520, encoder="resnet18", batch=batch)
    published = {
        passes: Published(device, count=8, encoder="resnet18", batch=batch, passes=passes) for passes in (2, 4)
    }
    central.train(1)  # the first step of a process is slower than those after it, whoever takes it
    auto, sequential, loop, two, four = seconds(
        [
            lambda: ours["auto"].train(joined),
            lambda: ours["sequential"].train(joined),
            lambda: central.train(count * steps),
            lambda: published[2].vehicles(count, steps),
            lambda: published[4].vehicles(count, steps),
        ],
        repetitions=repetitions,
        device=device,
        warm=0 if device == "cpu" else 1,  # minutes
    )
    rate = count * steps * batch / auto
    print(f"round, {count} x {steps} steps, {device}: {auto:.2f} s, {rate:.1f} images/s, centralised {loop:.1f} s")
    print(f"  of the centralised loop's images/s: {loop / auto:.2f}")
    print(f"  times faster than the sequential engine: {sequential / auto:.2f}")
    print(f"  times faster than the published way: {two / auto:.2f}; with its four encoder passes {four / auto:.2f}")


def precisions(device: str) -> None:
    """One ResNet-18 vehicle and ten small ones, in bfloat16 against float32."""
    for encoder, count, batch in (("resnet18", 1, 128), ("small", 10, 64)):
        ours = {
            precision: contrastive(
                device, silos=count, per_silo=520, encoder=encoder, batch=batch, steps=1, precision=precision
            )["auto"]
            for precision in ("float32", "bfloat16")
        }
        joined = vehicles(count)
        full, lowered = seconds(
            [partial(learner.train, joined) for learner in ours.values()],
            repetitions=3 if encoder == "resnet18" else 9,
            device=device,
        )
        print(
            f"{count} x {batch} images, {encoder}, {device}: float32 {full:.2f} s, bfloat16 {lowered:.2f} s: "
            f"{full / lowered:.2f} x"
        )


def main(arguments: Sequence[str]) -> None:
    keep_freed_memory()  # as vnetsim does
    device = arguments[arguments.index("--device") + 1] if "--device" in arguments else "cpu"
    cpu = device == "cpu"
    name = platform.processor() or platform.machine() if cpu else torch.cuda.get_device_name(device)
    print(f"{name}, {os.cpu_count()} cores, torch {torch.__version__} with {torch.get_num_threads()} threads")
    precisions(device)
    setup = CheckSetup(device=device, tiny=False, ends_s=0)
    for row in (*many_small(setup), *small_rounds(setup)):
        print(f"{row.work}, {device}: {row.seen}; {row.reference}")
    if not (cpu and "--quick" in arguments):
        paper_round(device)


@pytest.mark.benchmark
def test_training(benchmark: Any) -> None:
    benchmark.pedantic(main, args=(["--quick"] if os.environ.get("VNETSIM_QUICK") else [],), rounds=1, iterations=1)


if __name__ == "__main__":
    main(sys.argv[1:])
