"""Short runs of the papers' sizes from recorded schedules; each goes on after the last round it had finished."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from device_checks import schedule as schedules
from device_checks.rows import CheckSetup, Row, Unfinished
from device_checks.training_work import finish


@dataclass(frozen=True, kw_only=True)
class PaperSize:
    """What is learned from a schedule, besides what the file says.

    Args:
        size: in words.
        learning: settings of the learner.
        data: settings of the built-in data.
        cifar10: likewise of CIFAR-10, where its folder is given; None for a learner that takes none.
        tiny: settings of the learner where the check is rehearsed.
        tiny_data: of the data then.
    """

    size: str
    learning: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    cifar10: Mapping[str, Any] | None = None
    tiny: Mapping[str, Any]
    tiny_data: Mapping[str, Any]


HERE = Path(__file__).parent
SIZES = {
    "flsimco": PaperSize(
        size="ResNet-18, 2 x 512 images, bfloat16",
        learning={
            "encoder": "resnet18",
            "batch": 512,
            "steps": 2,
            "bank": 0,
            "linear_probe": "never",
            "precision": "bfloat16",
        },
        data={"train_images": 50_000, "test_images": 5000, "min_images": 520},
        cifar10={"train_images": 0, "test_images": 0, "min_images": 520},
        tiny={"encoder": "small", "batch": 4, "steps": 1, "bank": 40, "linear_probe": "never"},
        tiny_data={"train_images": 400, "test_images": 20, "min_images": 0},
    ),
    "cdl": PaperSize(
        size="ResNet-8, 200 x 200, 32 images a step",
        data={"image_px": 200},
        tiny={"batch": 4, "test_frames": 10},
        tiny_data={"train_images": 110, "test_images": 20, "image_px": 32},
    ),
    "fedefm": PaperSize(
        size="ResNet-18",
        cifar10={"train_images": 0, "test_images": 0},
        tiny={"encoder": "small", "batch": 4, "steps": 1, "overseas_steps": 1, "local_test": 20},
        tiny_data={"train_images": 400, "test_images": 40},
    ),
}
"""By learner. CDL and FedEFM have the settings of their schedules: those of their studies' size paper."""


def paper_run(setup: CheckSetup, schedule_file: str) -> list[Row]:
    """Learn the rounds of a schedule at a paper's size; on CIFAR-10 where its folder is given and the learner takes it.

    The state is kept after every round. The first round of a command warms up and does not count.

    Args:
        setup: of the check.
        schedule_file: in this folder.
    """
    began_s = time.perf_counter()
    schedule = schedules.read(HERE / schedule_file)
    if setup.tiny:
        schedule["participants"] = [joined[:3] for joined in schedule["participants"][:3]]
        schedule["rounds"] = 3
    name, last = schedule["learner"], len(schedule["participants"])
    size = SIZES[name]
    cifar10 = bool(setup.data_root) and size.cifar10 is not None
    data = {"name": "cifar10", "root": setup.data_root, **(size.cifar10 or {})} if cifar10 else size.data
    learning = size.learning
    if setup.tiny:
        learning, data = size.tiny, {**data, **size.tiny_data}
    learner: Any = schedules.create(schedule, setup.device, seed=0, data=data, learning=learning)
    run = _Run(
        work=f"{name} from {schedule['scenario']}, {'CIFAR-10' if cifar10 else 'built-in data'}, "
        f"{'tiny' if setup.tiny else size.size}",
        rounds=last,
        prepared_s=time.perf_counter() - began_s,
    )
    if setup.file.exists():
        state = torch.load(setup.file, map_location="cpu", weights_only=True)
        learner.load_state_dict(state["learner"])
        run.curve, run.seconds = json.loads(state["told"])
    else:
        run.curve.append({"round": 0, **learner.evaluate(final=False)})
    every = max(1, last // 10)
    began_s = time.perf_counter()
    longest_s = 0.0
    first = len(run.seconds)
    for round_, figures in schedules.replay(schedule, learner, first=first):
        finish(setup.device)
        took_s = time.perf_counter() - began_s
        run.seconds.append(None if round_ == first else took_s)
        if (round_ + 1) % every == 0 or round_ + 1 == last:
            run.curve.append({"round": round_ + 1, **figures, **learner.evaluate(final=round_ + 1 == last)})
        # copies: a learner's tensors may be views of one row, which a file cannot hold
        state = {key: tensor.detach().cpu().clone() for key, tensor in learner.state_dict().items()}
        new = setup.file.with_suffix(".new")
        torch.save({"learner": state, "told": json.dumps([run.curve, run.seconds])}, new)
        new.replace(setup.file)
        setup.keep([run.row()])
        longest_s = max(longest_s, time.perf_counter() - began_s)
        if setup.left_s < 1.5 * longest_s and round_ + 1 < last:
            raise Unfinished
        began_s = time.perf_counter()
    return [run.row()]


@dataclass(kw_only=True)
class _Run:
    """A run as far as it is: figures, and each round's training and averaging (s), None where it was a warm-up."""

    work: str
    rounds: int
    prepared_s: float
    curve: list[dict[str, float]] = field(default_factory=list)
    seconds: list[float | None] = field(default_factory=list)

    def row(self) -> Row:
        first, *_, last = [{k: v for k, v in one.items() if k != "round"} for one in (*self.curve, self.curve[-1])]
        warm = [taken for taken in self.seconds if taken is not None]
        pace = f"{statistics.median(warm):.3g} s a round, median of {len(warm)} warm ones" if warm else "warming up"
        return Row(
            work=self.work,
            reference="the untrained model: " + _text(first),
            seen=f"{pace}; {len(self.seconds)} of {self.rounds} rounds, made ready in {self.prepared_s:.0f} s: "
            + _text(last),
            values={"s_per_round": statistics.median(warm) if warm else None, "curve": json.dumps(self.curve),
                    "seconds": json.dumps(self.seconds)},
        )  # fmt: skip


def _text(figures: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in figures.items())
