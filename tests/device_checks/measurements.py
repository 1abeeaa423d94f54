"""The table of speeds, each row against a reference measured in the same part."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from device_checks.rows import CheckSetup, NotRun, Row
from device_checks.schedule import learner_class
from device_checks.training_work import (
    Centralised,
    after_first_round,
    contrastive,
    finish,
    matrix_peak,
    peak_bytes,
    seconds,
    vehicles,
)
from device_checks.transport_work import SIZES, highs_seconds, ours_seconds, pot_seconds

GIB = 2**30


@contextmanager
def tensor_float_32(*, allowed: bool) -> Iterator[None]:
    """Compute float32 convolutions and products with TF32, or not; a process begins with other settings for each."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


@contextmanager
def warnings_kept() -> Iterator[list[str]]:
    """Keep what the engines say, such as that a stack was split."""
    warnings_logged: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            warnings_logged.append(record.getMessage())

    handler, logger = Keep(), logging.getLogger("learners.engines.batched")
    logger.addHandler(handler)
    try:
        yield warnings_logged
    finally:
        logger.removeHandler(handler)


def large_round(setup: CheckSetup, *, engine: str, precision: str, tf32: bool = False) -> list[Row]:
    """95 ResNet-18 vehicles with 520 images each, one step of 512 images x 2 views: the largest round."""
    count, per_silo, batch, encoder = (2, 8, 4, "small") if setup.tiny else (95, 520, 512, "resnet18")
    name = f"{count} vehicles x {batch} of {per_silo} images x 2 views, {encoder}, {engine}, {precision}"
    name += ", TF32" if tf32 else ""
    with tensor_float_32(allowed=tf32), warnings_kept() as said:
        peak_flops = matrix_peak(setup.device, side=128 if setup.tiny else 8192)
        central = Centralised(setup.device, count=8 * batch, encoder=encoder, batch=batch, precision=precision)
        (loop_s,) = seconds([partial(central.train, 4)], repetitions=3, device=setup.device)
        learner = contrastive(
            setup.device, silos=count, per_silo=per_silo, engines=[engine], encoder=encoder, batch=batch, steps=1,
            precision=precision,
        )[engine]  # fmt: skip
        if setup.cuda:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        joined = vehicles(count)
        began_s = time.perf_counter()
        learner.train(joined)  # finds how many fit, and how to convolve
        finish(setup.device)
        first_s = time.perf_counter() - began_s
        repetitions = 1 if first_s * 3 > setup.left_s else 3
        (wall_s,) = seconds([partial(learner.train, joined)], repetitions=repetitions, device=setup.device, warm=0)
    flop = sum(learner.cost(i).work_flop for i in range(count))
    rate, central_rate = count * batch / wall_s, 4 * batch / loop_s
    share, of_central = flop / wall_s / peak_flops, rate / central_rate
    device_peak = torch.cuda.max_memory_allocated() if setup.cuda else 0
    values = {"wall_s": wall_s, "first_s": first_s, "images_per_s": rate, "peak_tflops": peak_flops / 1e12}
    split = " ".join(said) or "not split"
    return [
        Row(work=name, reference=f"measured bf16 matrix peak, {peak_flops / 1e12:.3g} TFLOP/s",
            target=">= 25 %, then 40 %",
            seen=f"{100 * share:.2f} % ({wall_s:.3g} s a round; the first {first_s:.3g} s)",
            met=share >= 0.25, values={**values, "share": share}),
        Row(work=f"{name}: images/s", reference=f"one centralised loop, batch {batch}: {central_rate:.4g} images/s",
            target=">= 0.9",
            seen=f"{of_central:.2f} x ({rate:.4g} images/s)", met=of_central >= 0.9,
            values={"ratio": of_central, "central_images_per_s": central_rate}),
        Row(work=f"{name}: peak memory", reference="the device's memory" if setup.cuda else "the host's memory",
            target="fits, or splits by itself, logged",
            seen=f"device {device_peak / GIB:.1f} GiB, host {peak_bytes() / GIB:.1f} GiB; {split}", met=True,
            values={"device_bytes": float(device_peak), "host_bytes": float(peak_bytes()), "said": split}),
    ]  # fmt: skip


def many_small(setup: CheckSetup) -> list[Row]:
    """50 vehicles x 64 images, small encoder: stacked against one after the other."""
    count, batch = (2, 4) if setup.tiny else (50, 64)
    rows = []
    for steps in (1,) if setup.tiny else (1, 8):
        ours = contrastive(setup.device, silos=count, per_silo=batch, encoder="small", batch=batch, steps=steps)
        times = [partial(ours[engine].train, vehicles(count)) for engine in ("sequential", "batched")]
        work = f"{count} vehicles x {steps} steps x {batch} images, small encoder"
        rows.append(compared(work, *seconds(times, repetitions=repetitions(setup), device=setup.device), 5.0))
    return rows


def small_rounds(setup: CheckSetup) -> list[Row]:
    """Rounds of CDL and FedEFM with their defaults."""
    rows = []
    small = {"batch": 4, "steps": 1} if setup.tiny else {}
    count = 3 if setup.tiny else 10
    for name in ("cdl", "fedefm"):
        ours = after_first_round(learner_class(name), setup.device, count=count, **small)
        joined = vehicles(count, round_=1, peers=min(3, count - 1))
        times = [partial(ours[engine].train, joined) for engine in ("sequential", "batched")]
        work = f"{name}: a round of {count} vehicles, {'tiny' if setup.tiny else 'defaults'}"
        rows.append(compared(work, *seconds(times, repetitions=repetitions(setup), device=setup.device), 3.0))
    return rows


def transport(setup: CheckSetup) -> list[Row]:
    """The transport solver in batches of 4,096 against POT in a loop on the host, or HiGHS where POT is not there."""
    rows = []
    for n in SIZES[:1] if setup.tiny else SIZES:
        count = 8 if setup.tiny else 4096
        ours_s, pot_s = ours_seconds(n, count, setup.device), pot_seconds(n, 4 if setup.tiny else 64)
        other_s = pot_s or highs_seconds(n, 1 if setup.tiny else 6)
        name = "POT in a loop" if pot_s else "POT is not installed; HiGHS in a loop"
        ratio = other_s / ours_s
        rows.append(Row(work=f"transport solver, n = {n}, B = {count}",
                        reference=f"{name} on the host: {1e6 * other_s:.4g} us a problem",
                        target=">= 50 x POT" if n == 49 else "", seen=f"{ratio:.1f} x ({1e6 * ours_s:.4g} us)",
                        met=ratio >= 50 if n == 49 and pot_s else None,
                        values={"ratio": ratio, "ours_s": ours_s, "other_s": other_s}))  # fmt: skip
    return rows


def price_of_determinism(setup: CheckSetup) -> list[Row]:
    """A round under torch's deterministic algorithms against the same without, both with cuBLAS's fixed workspace."""
    if not setup.cuda and not setup.tiny:
        raise NotRun("the CPU's results are the same bits without a switch")
    count, batch, encoder = (2, 4, "small") if setup.tiny else (10, 512, "resnet18")
    rows = []
    for engine in ("sequential", "batched"):
        learner = contrastive(setup.device, silos=count, per_silo=batch, engines=[engine], encoder=encoder, batch=batch,
                              steps=1)[engine]  # fmt: skip

        def run(deterministic: bool, learner: Any = learner) -> None:
            torch.use_deterministic_algorithms(deterministic, warn_only=True)
            torch.backends.cudnn.deterministic = deterministic
            learner.train(vehicles(count))

        times = [partial(run, False), partial(run, True)]
        free_s, fixed_s = seconds(times, repetitions=repetitions(setup), device=setup.device)
        torch.use_deterministic_algorithms(False)
        torch.backends.cudnn.deterministic = False
        rows.append(Row(work=f"{count} vehicles x {batch} images, {encoder}, {engine}: deterministic algorithms",
                        reference="torch's defaults", seen=f"{fixed_s / free_s:.2f} times as long",
                        values={"fixed_s": fixed_s, "free_s": free_s}))  # fmt: skip
    return rows


def repetitions(setup: CheckSetup) -> int:
    """Return how often a short work is timed."""
    return 1 if setup.tiny else 5


def compared(work: str, sequential_s: float, batched_s: float, target: float) -> Row:
    """Return the row of a batched round against the sequential one."""
    ratio = sequential_s / batched_s
    return Row(
        work=f"{work}: batched",
        reference=f"sequential, {sequential_s:.3g} s",
        target=f">= {target:g} x",
        seen=f"{ratio:.2f} x ({batched_s:.3g} s)",
        met=ratio >= target,
        values={"ratio": ratio, "sequential_s": sequential_s, "batched_s": batched_s},
    )
