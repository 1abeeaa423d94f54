"""A short run of the paper's size from a recorded schedule; it goes on where the last command ended."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import torch

from device_checks import schedule as schedules
from device_checks.rows import CheckSetup, Row, Unfinished

PAPER = {"encoder": "resnet18", "batch": 512, "steps": 2, "bank": 0, "linear_probe": "never", "precision": "bfloat16"}
TINY = {"encoder": "small", "batch": 4, "steps": 1, "bank": 40, "knn_k": 5, "linear_probe": "never"}


def paper_run(setup: CheckSetup) -> list[Row]:
    """Learn the rounds of the schedule with ResNet-18, 2 steps of 512 images; CIFAR-10 where its folder is given."""
    schedule = schedules.read(Path(setup.schedule))
    limit = 2 if setup.tiny else setup.rounds
    if limit:
        schedule["participants"] = schedule["participants"][:limit]
        schedule["rounds"] = min(schedule["rounds"], limit)
    data: dict[str, Any] = {"min_images": 4 if setup.tiny else 520}
    if setup.data_root:
        data |= {"name": "cifar10", "root": setup.data_root, "train_images": 0, "test_images": 0}
    else:
        data |= (
            {"train_images": 400, "test_images": 20} if setup.tiny else {"train_images": 50_000, "test_images": 5000}
        )
    if setup.tiny:
        data |= {"min_images": 0}
    kept = Path(setup.folder) / "paper_run.pt"
    what = [schedule["scenario"], schedule["learner"], limit, data, setup.tiny, setup.seed, setup.device]
    learner: Any = schedules.create(
        schedule, setup.device, seed=setup.seed, data=data, learning=TINY if setup.tiny else PAPER
    )
    first, wall_s, curve = 0, 0.0, [{"round": 0, **learner.evaluate(final=False)}]
    if kept.exists():
        state = torch.load(kept, map_location="cpu", weights_only=True)
        if json.loads(state["what"]) == what:
            learner.load_state_dict(state["learner"])
            first, wall_s, curve = int(state["round"]), float(state["wall_s"]), json.loads(state["curve"])
    began_s, slowest_s = time.perf_counter(), 0.0
    every = max(1, schedule["rounds"] // 20)
    replayed = schedules.replay(schedule, learner, first=first, evaluate=lambda round_: (round_ + 1) % every == 0)
    done = first
    for round_, figures in replayed:
        done = round_ + 1
        if "knn_accuracy" in figures or done == len(schedule["participants"]):
            curve.append({"round": done, **figures})
        now_s = time.perf_counter()
        slowest_s, began_s, wall_s = max(slowest_s, now_s - began_s), now_s, wall_s + now_s - began_s
        if setup.left_s < 3 * slowest_s + 5 and done < len(schedule["participants"]):
            _keep(kept, what, learner, done, wall_s, curve)
            raise Unfinished([_row(setup, schedule, done, wall_s, curve)])
    _keep(kept, what, learner, done, wall_s, curve)
    return [_row(setup, schedule, done, wall_s, curve)]


def _keep(path: Path, what: list[Any], learner: Any, done: int, wall_s: float, curve: list[Any]) -> None:
    new = path.with_suffix(".new")
    state = {name: tensor.detach().cpu() for name, tensor in learner.state_dict().items()}
    content = {
        "what": json.dumps(what), "learner": state, "round": done, "wall_s": wall_s, "curve": json.dumps(curve)
    }  # fmt: skip
    torch.save(content, new)
    new.replace(path)


def _row(setup: CheckSetup, schedule: dict[str, Any], done: int, wall_s: float, curve: list[Any]) -> Row:
    data = "CIFAR-10" if setup.data_root else "built-in signs"
    size = "tiny" if setup.tiny else "ResNet-18, 2 x 512 images, bfloat16"
    last = {name: value for name, value in curve[-1].items() if name != "round"}
    return Row(
        work=f"{schedule['learner']} from {schedule['scenario']}, {data}, {size}, seed {setup.seed}",
        reference="the untrained model: " + _text({k: v for k, v in curve[0].items() if k != "round"}),
        seen=f"after {done} of {len(schedule['participants'])} rounds, {wall_s:.1f} s: {_text(last)}",
        values={"rounds": float(done), "wall_s": wall_s, "curve": json.dumps(curve)},
    )


def _text(figures: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in figures.items())
