"""The table of speeds, each row against a reference measured in the same part."""

from __future__ import annotations

import logging
import statistics
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from device_checks import learner_class
from device_checks.rows import CheckSetup, Row
from device_checks.training_work import (
    Centralised,
    after_first_round,
    context,
    contrastive,
    finish,
    matrix_peak,
    peak_bytes,
    seconds,
    vehicles,
)
from device_checks.transport_work import SIZES, highs_seconds, ours_seconds, pot_seconds
from vnetsim.experiment import Arithmetic, DataSettings
from vnetsim.learning import Participant

GIB = 2**30
PAPERS: Mapping[str, Mapping[str, Any]] = {
    "flsimco": {
        "size": "95 silos, 5 vehicles a round x 2 steps x 512 images x 2 views, ResNet-18, bfloat16",
        "silos": 95,
        "count": 5,
        "learning": {"encoder": "resnet18", "batch": 512, "steps": 2, "bank": 0, "linear_probe": "never",
                     "precision": "bfloat16"},
        "data": {"train_images": 50_000, "test_images": 5000, "min_images": 520},
        "cifar10": {"train_images": 0, "test_images": 0, "min_images": 520},
        "tiny": {"encoder": "small", "batch": 4, "steps": 1, "bank": 40, "linear_probe": "never"},
    },
    "cdl": {
        "size": "11 silos, 11 vehicles a round in contact with two each, ResNet-8, 200 x 200, 32 images a step",
        "silos": 11,
        "count": 11,
        "learning": {"batch": 32},
        "data": {"name": "road", "train_images": 0, "test_images": 0, "image_px": 200, "partition": "drive"},
        "tiny": {"batch": 4, "test_frames": 10},
    },
    "fedefm": {
        "size": "20 silos, 5 vehicles a round in contact with two each, ResNet-18, 16 images a step",
        "silos": 20,
        "count": 5,
        "learning": {"encoder": "resnet18", "batch": 16, "steps": 12, "lr": 0.1, "overseas_steps": 4,
                     "max_teachers": 4},
        "data": {"train_images": 0, "test_images": 0, "partition": "label-skew"},
        "cifar10": {"train_images": 0, "test_images": 0, "partition": "label-skew"},
        "tiny": {"encoder": "small", "batch": 4, "steps": 1, "overseas_steps": 1, "local_test": 20},
    },
}  # fmt: skip
"""By learner: silos, vehicles a round, settings of the learner and of the data, of CIFAR-10 where its folder is given
and the learner takes it, and of the learner in a rehearsal."""
PAPER_ROUNDS = 30


@contextmanager
def engine_messages() -> Iterator[list[str]]:
    """Keep what the engines say, such as that a stack was split."""
    warnings_logged: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            warnings_logged.append(record.getMessage())

    handler, logger = Keep(), logging.getLogger("learners.engines")
    logger.addHandler(handler)
    try:
        yield warnings_logged
    finally:
        logger.removeHandler(handler)


def large_round(setup: CheckSetup, precision: str) -> list[Row]:
    """95 ResNet-18 vehicles with 520 images each, one step of 512 images x 2 views: the largest round."""
    count, per_silo, batch, encoder = (2, 8, 4, "small") if setup.tiny else (95, 520, 512, "resnet18")
    name = f"{count} vehicles x {batch} of {per_silo} images x 2 views, {encoder}, {precision}"
    lowered, dtype = ("bfloat16", torch.bfloat16) if precision == "bfloat16" else ("float32", torch.float32)
    if setup.cuda:
        torch.cuda.empty_cache()  # of the parts before
    with Arithmetic(tf32=precision == "TF32").applied(), engine_messages() as said:
        peak_flops = matrix_peak(setup.device, dtype, side=128 if setup.tiny else 8192)
        central = Centralised(setup.device, count=8 * batch, encoder=encoder, batch=batch, precision=lowered)
        (loop_s,) = seconds([partial(central.train, 4)], repetitions=3, device=setup.device)
        learner = contrastive(
            setup.device, silos=count, per_silo=per_silo, engines=["auto"], encoder=encoder, batch=batch, steps=1,
            precision=lowered,
        )["auto"]  # fmt: skip
        if setup.cuda:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        joined = vehicles(count)
        began_s = time.perf_counter()
        learner.train(joined)  # finds how many fit, and how to convolve
        finish(setup.device)
        first_s = time.perf_counter() - began_s
        times = 1 if first_s * 4 > setup.left_s else 3
        (wall_s,) = seconds([partial(learner.train, joined)], repetitions=times, device=setup.device, warm=0)
    flop = sum(learner.cost(i).work_flop for i in range(count))
    rate, central_rate = count * batch / wall_s, 4 * batch / loop_s
    share, of_central = flop / wall_s / peak_flops, rate / central_rate
    device_peak = torch.cuda.max_memory_allocated() if setup.cuda else 0
    all_bytes = torch.cuda.get_device_properties(setup.device).total_memory if setup.cuda else 0
    split = " ".join(said) or "not split"
    return [
        Row(work=name, reference=f"product of {precision} matrices, measured: {peak_flops / 1e12:.3g} TFLOP/s",
            target=">= 25 %, then 35 %",
            seen=f"{100 * share:.2f} % ({wall_s:.3g} s a round; the first {first_s:.3g} s)", met=share >= 0.25,
            values={"wall_s": wall_s, "first_s": first_s, "peak_tflops": peak_flops / 1e12, "share": share}),
        Row(work=f"{name}: images/s", reference=f"one centralised loop, batch {batch}: {central_rate:.4g} images/s",
            target=">= 0.95",
            seen=f"{of_central:.2f} x ({rate:.4g} images/s)", met=of_central >= 0.95,
            values={"ratio": of_central, "images_per_s": rate, "central_images_per_s": central_rate}),
        Row(work=f"{name}: most memory", reference=f"the device's {all_bytes / GIB:.1f} GiB",
            seen=f"device {device_peak / GIB:.1f} GiB, host {peak_bytes() / GIB:.1f} GiB; {split}",
            values={"device_bytes": float(device_peak), "host_bytes": float(peak_bytes()), "said": split}),
    ]  # fmt: skip


def paper_rounds(setup: CheckSetup, name: str) -> list[Row]:
    """Rounds at the size of a method's paper, as many as there is time for; the first warms up and does not count.

    Silos take turns. Speeds are drawn between 80 and 130 km/h.
    """
    paper = PAPERS[name]
    learning, data, rounds = paper["learning"], paper["data"], PAPER_ROUNDS
    cifar10 = bool(setup.data_root) and "cifar10" in paper
    if cifar10:
        data = {"name": "cifar10", "root": setup.data_root, **paper["cifar10"]}
    if setup.tiny:
        learning, rounds = paper["tiny"], 3
        data = {**data, "train_images": 400, "test_images": 40, "min_images": 0, "image_px": 32}
    kind = learner_class(name)
    where = context(setup.device, paper["silos"], rounds=rounds, data=DataSettings(**data))
    learner = kind.create(where, kind.Settings(**learning))
    draw = torch.Generator().manual_seed(0)
    speeds_mps = (22 + 14 * torch.rand(paper["count"], generator=draw)).tolist()
    before, taken = learner.evaluate(final=False), []
    for round_ in range(rounds):
        joined = vehicles(paper["count"], round_=round_, peers=0 if name == "flsimco" else 2,
                          speed_mps=speeds_mps.__getitem__)  # fmt: skip
        shift = round_ * paper["count"]
        turn = [
            replace(one, silo=(one.silo + shift) % paper["silos"],
                    peers=tuple(replace(peer, silo=(peer.silo + shift) % paper["silos"]) for peer in one.peers))
            for one in joined
        ]  # fmt: skip
        began_s = time.perf_counter()
        figures = learner.aggregate(learner.train(turn)).metrics
        finish(setup.device)
        taken.append(time.perf_counter() - began_s)
        if setup.left_s < 3 * max(taken):  # of which the last evaluation takes some
            break
    after = {**figures, **learner.evaluate(final=True)}
    warm_s = statistics.median(taken[1:] or taken)
    return [
        Row(work=f"{name}, {'CIFAR-10' if cifar10 else 'built-in data'}, {'tiny' if setup.tiny else paper['size']}",
            reference=f"the untrained model: {_text(before)}",
            seen=f"{warm_s:.3g} s a round, median of {len(taken)}; {_text(after)}",
            values={"s_per_round": warm_s, "rounds": float(len(taken)), **after}),
    ]  # fmt: skip


def _text(figures: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in figures.items())


def many_small(setup: CheckSetup) -> list[Row]:
    """50 vehicles x 64 images, small encoder: as a run trains them, against plain steps one after the other."""
    count, batch = (2, 4) if setup.tiny else (50, 64)
    rows = []
    for steps in (1,) if setup.tiny else (1, 8):
        ours = contrastive(setup.device, silos=count, per_silo=batch, encoder="small", batch=batch, steps=steps)
        work = f"{count} vehicles x {steps} steps x {batch} images, small encoder"
        rows.append(against_sequential(setup, work, ours, vehicles(count), vehicle_steps=count * steps))
    return rows


def small_rounds(setup: CheckSetup) -> list[Row]:
    """Rounds of CDL and FedEFM with their defaults."""
    rows = []
    small = {"batch": 4, "steps": 1} if setup.tiny else {}
    count = 3 if setup.tiny else 10
    for name in ("cdl", "fedefm"):
        ours = after_first_round(learner_class(name), setup.device, count=count, **small)
        joined = vehicles(count, round_=1, peers=min(3, count - 1))
        work = f"{name}: a round of {count} vehicles, {'tiny' if setup.tiny else 'defaults'}"
        rows.append(against_sequential(setup, work, ours, joined))
    return rows


def against_sequential(
    setup: CheckSetup, work: str, learners: Mapping[str, Any], joined: Sequence[Participant], *, vehicle_steps: int = 0
) -> Row:
    """Time a learner's round under both engines; with ``vehicle_steps``, of a round, 1 ms each is the target."""
    rounds = [partial(learners[engine].train, joined) for engine in ("sequential", "auto")]
    plain_s, wall_s = seconds(rounds, repetitions=1 if setup.tiny else 5, device=setup.device)
    ratio, each_ms = plain_s / wall_s, 1e3 * wall_s / max(vehicle_steps, 1)
    seen = f"{ratio:.2f} x ({wall_s:.3g} s)"
    return Row(work=work, reference=f"plain steps one after the other, {plain_s:.3g} s",
               target="<= 1 ms a step of a vehicle" if vehicle_steps else ">= 3 x",
               seen=f"{each_ms:.3g} ms a step of a vehicle; {seen}" if vehicle_steps else seen,
               met=each_ms <= 1 if vehicle_steps else ratio >= 3,
               values={"ratio": ratio, "sequential_s": plain_s, "wall_s": wall_s})  # fmt: skip


def host_waits(setup: CheckSetup) -> list[Row]:
    """How often the host waits for the device: for each step of a vehicle, and in the round besides, and where most."""
    rows = []
    count, batch = (2, 4) if setup.tiny else (4, 16)
    for name in ("flsimco",) if setup.tiny else ("flsimco", "cdl", "fedefm"):
        few, many = (
            waits(after_first_round(learner_class(name), setup.device, engines=["auto"], count=count, batch=batch,
                                    steps=steps)["auto"], count)
            for steps in (1, 5)
        )  # fmt: skip
        per_step = (many.total() - few.total()) / 4 / count
        besides = few.total() - per_step * count
        where = ", ".join(f"{place} {times}" for place, times in many.most_common(4))
        rows.append(Row(work=f"{name}: the host waits for the device", reference="",
                        target="0 times a step, <= 7 times in a round besides",
                        seen=f"{per_step:.3g} times a step of a vehicle, {besides:.3g} times in a round of {count} "
                             f"besides; most with 5 steps: {where or 'nowhere'}",
                        met=per_step <= 0 and besides <= 7,
                        values={"per_step": per_step, "besides": besides}))  # fmt: skip
    return rows


def waits(learner: Any, count: int) -> Counter[str]:
    """Return how often the host waits in a round after the first, by file and line."""
    joined = vehicles(count, round_=1, peers=count - 1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if torch.cuda.is_available():
            torch.cuda.set_sync_debug_mode("warn")
        try:
            learner.aggregate(learner.train(joined))
        finally:
            if torch.cuda.is_available():
                torch.cuda.set_sync_debug_mode("default")
    waited = [one for one in caught if "synchronizing CUDA operation" in str(one.message)]
    return Counter(f"{Path(one.filename).name}:{one.lineno}" for one in waited)


def transport(setup: CheckSetup) -> list[Row]:
    """The transport solver in batches of 4,096 against POT in a loop on the host, or HiGHS where POT is not there."""
    rows = []
    for n in SIZES[:1] if setup.tiny else reversed(SIZES):
        count = 8 if setup.tiny else 4096
        ours_s, pot_s = ours_seconds(n, count, setup.device), pot_seconds(n, 4 if setup.tiny else 64)
        other_s = pot_s or highs_seconds(n, 1 if setup.tiny else 6)
        name = "POT's emd2" if pot_s else "HiGHS, no verdict: POT cannot be imported here;"
        ratio = other_s / ours_s
        rows.append(Row(work=f"transport solver, n = {n}, B = {count}",
                        reference=f"{name} in a loop on the host: {1e6 * other_s:.4g} us a problem",
                        target=">= 50 x POT" if n == 49 else "", seen=f"{ratio:.3g} x ({1e6 * ours_s:.4g} us)",
                        met=ratio >= 50 if n == 49 and pot_s else None,
                        values={"ratio": ratio, "ours_s": ours_s, "other_s": other_s}))  # fmt: skip
    return rows
