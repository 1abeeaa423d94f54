"""Short runs of the papers' sizes from recorded schedules; each goes on where the last command ended."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from device_checks import schedule as schedules
from device_checks.rows import CheckSetup, Row, Unfinished


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
        tiny={"encoder": "small", "batch": 4, "steps": 1, "bank": 40, "knn_k": 5, "linear_probe": "never"},
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


def paper_run(setup: CheckSetup, *, schedule_file: str = "") -> list[Row]:
    """Learn the rounds of a schedule at a paper's size; on CIFAR-10 where its folder is given and the learner takes it.

    Args:
        setup: of the check.
        schedule_file: in this folder; the check's own without.
    """
    schedule = schedules.read(HERE / schedule_file if schedule_file else Path(setup.schedule))
    name = schedule["learner"]
    size = SIZES[name]
    limit = 2 if setup.tiny else setup.rounds
    if limit:
        schedule["participants"] = schedule["participants"][:limit]
        schedule["rounds"] = min(schedule["rounds"], limit)
    cifar10 = bool(setup.data_root) and size.cifar10 is not None
    data = {**({"name": "cifar10", "root": setup.data_root, **(size.cifar10 or {})} if cifar10 else size.data)}
    learning = size.learning
    if setup.tiny:
        learning, data = size.tiny, {**data, **size.tiny_data}
    kept = Path(setup.folder) / f"paper_run_{name}.pt"
    what = [schedule["scenario"], name, limit, data, setup.tiny, setup.seed, setup.device]
    learner: Any = schedules.create(schedule, setup.device, seed=setup.seed, data=data, learning=learning)
    row = _RowOf(
        f"{name} from {schedule['scenario']}, {'CIFAR-10' if cifar10 else 'built-in data'}, "
        f"{'tiny' if setup.tiny else size.size}, seed {setup.seed}",
        len(schedule["participants"]),
    )
    first, wall_s, curve = 0, 0.0, [{"round": 0, **learner.evaluate(final=False)}]
    if kept.exists():
        state = torch.load(kept, map_location="cpu", weights_only=True)
        if json.loads(state["what"]) == what:
            learner.load_state_dict(state["learner"])
            first, wall_s, curve = int(state["round"]), float(state["wall_s"]), json.loads(state["curve"])
    began_s, slowest_s = time.perf_counter(), 0.0
    every = max(1, schedule["rounds"] // 20)
    done, last = first, len(schedule["participants"])
    replayed = schedules.replay(schedule, learner, first=first, evaluate=lambda round_: (round_ + 1) % every == 0)
    for round_, figures in replayed:
        done = round_ + 1
        if done % every == 0 or done == last:
            curve.append({"round": done, **figures})
        now_s = time.perf_counter()
        slowest_s, began_s, wall_s = max(slowest_s, now_s - began_s), now_s, wall_s + now_s - began_s
        if setup.left_s < 3 * slowest_s + 5 and done < last:
            _keep(kept, what, learner, done, wall_s, curve)
            raise Unfinished([row.of(done, wall_s, curve)])
    _keep(kept, what, learner, done, wall_s, curve)
    return [row.of(done, wall_s, curve)]


def _keep(path: Path, what: list[Any], learner: Any, done: int, wall_s: float, curve: list[Any]) -> None:
    new = path.with_suffix(".new")
    state = {name: tensor.detach().cpu() for name, tensor in learner.state_dict().items()}
    content = {
        "what": json.dumps(what), "learner": state, "round": done, "wall_s": wall_s, "curve": json.dumps(curve)
    }  # fmt: skip
    torch.save(content, new)
    new.replace(path)


@dataclass(frozen=True)
class _RowOf:
    """The row of a run, as far as it is."""

    work: str
    rounds: int

    def of(self, done: int, wall_s: float, curve: list[Any]) -> Row:
        last = {name: value for name, value in curve[-1].items() if name != "round"}
        return Row(
            work=self.work,
            reference="the untrained model: " + _text({k: v for k, v in curve[0].items() if k != "round"}),
            seen=f"after {done} of {self.rounds} rounds, {wall_s:.1f} s: {_text(last)}",
            values={"rounds": float(done), "wall_s": wall_s, "curve": json.dumps(curve)},
        )


def _text(figures: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in figures.items())
