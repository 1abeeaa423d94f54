"""What a round costs besides its training on a Ray cluster; prints, and asserts nothing.

Run with ``pytest tests/benchmarks/test_round_benchmarks.py --benchmark-only -s``, or as a script with the repository
and its ``tests/`` on PYTHONPATH: rounds of 50 and 500 small vehicles on two workers of a cluster of this machine.
Images are random.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from dataclasses import replace
from typing import Any

import pytest
import torch
from device_checks.training_work import contrastive, vehicles
from torch import Tensor, nn

from learners.engines.ray_engine import RayEngine
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
        there = RayEngine("batched", torch.device("cpu"))
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


def _since(begin_s: float) -> float:
    return time.perf_counter() - begin_s


@pytest.mark.benchmark
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed (pip install 'vnetsim[ray]')")
def test_ray(benchmark: Any) -> None:
    benchmark.pedantic(on_ray, rounds=1, iterations=1)


if __name__ == "__main__":
    on_ray()
