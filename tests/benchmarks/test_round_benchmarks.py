"""What a round costs besides its training: on a Ray cluster, and in memory; prints, and asserts nothing.

Run with ``pytest tests/benchmarks/test_round_benchmarks.py --benchmark-only -s``, or as a script with the repository
and its ``tests/`` on PYTHONPATH: ``ray`` for rounds of 50 and 500 small vehicles on two workers of a cluster of
this machine, ``memory`` for the most memory that a round of many updates holds. Images are random.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import pytest
import torch
from device_checks.training_work import contrastive, vehicles
from torch import Tensor, nn

import learners.state.streaming
from learners.engines.ray_engine import RayEngine
from vnetsim.learning.device import peak_memory
from vnetsim.runs.ray_cluster import connected

TRAININGS = (50, 500)


def _sum_of_weights(network: nn.Module, *_: object) -> tuple[Tensor, dict[str, Tensor]]:
    loss = torch.stack([parameter.sum() for parameter in network.parameters()]).sum()
    return loss, {"loss": loss}


def on_ray(workers: int = 2) -> None:
    """Rounds of local trainings of the small encoder that compute next to nothing, on workers against this process."""
    from ray import cloudpickle  # noqa: PLC0415 - an extra

    torch.set_num_threads(1)
    learner: Any = contrastive("cpu", silos=50, per_silo=8, encoder="small", batch=8, steps=1)["batched"]
    program = replace(learner._local._program, loss=_sum_of_weights, prepare=lambda _: {})
    jobs = [replace(learner._local._job(learner._start(one)), program=program) for one in vehicles(50)]
    here = learner._task.engine
    begin_s = time.perf_counter()
    with connected({"num_cpus": workers, "include_dashboard": False, "object_store_memory": 200_000_000}):
        cloudpickle.register_pickle_by_value(sys.modules[__name__])  # no worker can import this file
        there = RayEngine("batched", torch.device("cpu"), here)
        there.train(jobs)
        print(f"a cluster of {workers} workers until its first round of 50 vehicles has ended: {_since(begin_s):.1f} s")
        for count in TRAININGS:
            many = jobs * (count // len(jobs))
            taken = []
            for engine in (here, there):
                begin_s, cpu_s = time.perf_counter(), time.process_time()
                engine.train(many)
                taken.append((_since(begin_s), time.process_time() - cpu_s))
            (alone_s, _), (ray_s, cpu_s) = taken
            print(
                f"{count} vehicles: {alone_s:.2f} s here with one thread, {ray_s:.2f} s on {workers} workers; "
                f"this process's own time for them {cpu_s:.2f} s, {1000 * cpu_s / count:.2f} ms a vehicle",
                flush=True,
            )


def memory_of(held_bytes: int, *, count: int) -> None:
    """Train and average a round of ``count`` vehicles, ResNet-18, two images; print the most memory held."""
    learners.state.streaming.HELD_BYTES = held_bytes
    learner = contrastive("cpu", silos=4, per_silo=8, encoder="resnet18", batch=2, steps=1)["sequential"]
    before = peak_memory()["host"]
    joined = [one for _ in range(count // 4) for one in vehicles(4)]
    learner.aggregate(learner.train(joined))
    how = "held" if held_bytes > 2**40 else f"as they come, {held_bytes / 2**30:.3g} GiB at a time"
    print(
        f"{count} updates of ResNet-18, {how}: {(peak_memory()['host'] - before) / 2**30:.2f} GiB more than before",
        flush=True,
    )


def memory() -> None:
    """Each in a process of its own, whose peak tells."""
    for count, held in ((24, 2**50), (24, 2**28), (48, 2**28)):
        subprocess.run([sys.executable, __file__, "memory-of", str(held), str(count)], check=True)


def _since(begin_s: float) -> float:
    return time.perf_counter() - begin_s


@pytest.mark.benchmark
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed (pip install 'vnetsim[ray]')")
def test_ray(benchmark: Any) -> None:
    benchmark.pedantic(on_ray, rounds=1, iterations=1)


@pytest.mark.benchmark
def test_memory(benchmark: Any) -> None:
    benchmark.pedantic(memory, rounds=1, iterations=1)


if __name__ == "__main__":
    what, *numbers = sys.argv[1:]
    if what == "memory-of":
        memory_of(int(numbers[0]), count=int(numbers[1]))
    else:
        {"ray": on_ray, "memory": memory}[what]()
