"""How far FedEFM's weights EMD_ij are from 1: by training overseas, rounds before, noise in the teacher, encoder.

Run with ``pytest tests/benchmarks/test_emd_weights.py --benchmark-only -s`` or as a script with the repository on
PYTHONPATH. Prints the smallest, mean and largest weight over the teachers of all silos, each a neighbour of all, on
built-in signs, one or all labels in a silo; asserts nothing. Takes about two minutes of one core, most of it ResNet-18.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from learners.fedefm import FedEFM, FedEFMSettings
from vnetsim.experiment import BlurSettings, DataSettings
from vnetsim.experiment.camera import Camera
from vnetsim.learning import AGGREGATOR, LearnerContext, ModelKey, Participant, Peer
from vnetsim.random_streams import Streams

SEED = 100
TEACHERS = 2


def learner_of(*, silos: int, unseen_share: float, **settings: Any) -> FedEFM:
    data = DataSettings(partition="label-skew", unseen_share=unseen_share, train_images=150 * silos, test_images=100)
    context = LearnerContext(
        streams=Streams(seed=SEED).child("learner"), device="cpu", rounds=20, silos=silos, approaches=1,
        max_staleness=0, data=data, blur=BlurSettings(), camera=Camera(),
    )  # fmt: skip
    return FedEFM.create(context, FedEFMSettings(max_teachers=TEACHERS, local_test=1, **settings))


def group(round_: int, silos: int, *, met: bool) -> list[Participant]:
    peers = [Peer(vehicle_id=f"v{i}", silo=i, speed_mps=0.0, level_px=0.0, neighbours=silos - 1) for i in range(silos)]
    return [
        Participant(
            round=round_, base=ModelKey(AGGREGATOR, round_), vehicle_id=f"v{i}", rsu_id="r", silo=i,
            speed_mps=0.0, level_px=0.0, peers=tuple(peers[i + 1 :] + peers[:i]) if met else (), neighbours=silos - 1,
        )
        for i in range(silos)
    ]  # fmt: skip


def similarities(learner: FedEFM, vehicles: list[Participant], copies: list[dict[str, Any]]) -> list[float]:
    """Return the weights over all pairs of a vehicle and a copy."""
    return [
        value
        for alike in learner._local._similarities([learner._start(one) for one in vehicles], copies)
        for value in alike.values()
    ]


def weights(learner: FedEFM, vehicles: list[Participant], copies: list[dict[str, Any]]) -> str:
    found = similarities(learner, vehicles, copies)
    return f"{min(found):.4f}  {sum(found) / len(found):.4f}  {max(found):.4f}"


def with_noise(learner: FedEFM, share: float) -> dict[str, Any]:
    """Return the global model with noise of a share of its weights' standard deviation."""
    generator = torch.Generator().manual_seed(SEED)
    return {name: noisy(tensor, share, generator) for name, tensor in learner._models.newest().items()}


def noisy(tensor: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Return weights with noise of a share of their standard deviation; statistics and counters as they are."""
    if not tensor.is_floating_point() or tensor.ndim < 2:
        return tensor
    return tensor + share * tensor.std() * torch.randn(tensor.shape, generator=generator)


def rows(*, encoder: str, silos: int, rounds: tuple[int, ...], steps: tuple[int, ...]) -> Iterator[str]:
    for unseen_share in (0.0, 1.0):
        learner = learner_of(silos=silos, unseen_share=unseen_share, encoder=encoder)
        done = 0
        for before in rounds:
            while done < before:  # plain training: what is compared are copies of one model
                learner.aggregate(learner.train(group(done, silos, met=False)))
                done += 1
            vehicles = group(done, silos, met=True)
            where = f"{encoder:8}  {100 * unseen_share:3.0f} %  {before:2} rounds"
            for overseas in steps:
                learner._local._abroad = learner._task.training(learner._local._plain.loss, steps=overseas)
                copies = learner._local._overseas(vehicles)
                yield f"{where}  {overseas:3} steps overseas  {weights(learner, vehicles, copies)}"
            for share in (0.01, 0.1, 0.3, 1.0):
                copies = [{"noisy": with_noise(learner, share)} for _ in vehicles]
                yield f"{where}  noise of {share:4.2f} std    {weights(learner, vehicles, copies)}"


def table() -> None:
    print(f"\nencoder   unseen  before    teacher             least   mean    largest of {TEACHERS} teachers a silo")
    for row in rows(encoder="small", silos=6, rounds=(1, 8), steps=(4, 20, 100)):
        print(row, flush=True)
    if "--quick" not in sys.argv:
        for row in rows(encoder="resnet18", silos=3, rounds=(1,), steps=(4,)):
            print(row, flush=True)


def test_weights_of_teachers(benchmark: Any) -> None:
    benchmark.pedantic(table, rounds=1, iterations=1)


if __name__ == "__main__":
    table()
