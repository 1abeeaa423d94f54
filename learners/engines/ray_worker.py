"""The process of a Ray cluster that trains vehicles: an actor that keeps silos and programs, one for each device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from learners.engines.batched import SideBySideEngine, create_engine
from learners.engines.programs import Engine, LocalTraining, Program, TrainingJob
from learners.engines.shipping import Flat, Received, packed_result, unpacked
from vnetsim import __version__
from vnetsim.experiment.arithmetic import Arithmetic
from vnetsim.process import prepare_process

Part = Mapping[str, Flat] | int
"""Tensors of a job, or the place of what several jobs share."""


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """What decides about bits in the process that sends, and is made the same in those that train.

    Args:
        engine: setting ``learning.engine``.
        device: ``cpu`` or ``cuda``.
        threads: of torch.
        arithmetic: TF32 and deterministic algorithms.
    """

    engine: str
    device: str
    threads: int
    arithmetic: Arithmetic


@dataclass(frozen=True, kw_only=True, eq=False)
class Parcel:
    """Some jobs of a round.

    Args:
        programs: number of the program of each job.
        trainings: what each trains.
        parts: base, given and optimizer of each.
    """

    programs: Sequence[int]
    trainings: Sequence[LocalTraining]
    parts: Sequence[tuple[Part, Part, Part]]


def versions() -> str:
    """Return what must be the same in all processes, for the same bits."""
    return f"vnetsim {__version__} with torch {torch.__version__}"


class Worker:
    """Trains what it is sent, one device for itself; the class of an actor."""

    def __init__(self, settings: WorkerSettings) -> None:
        prepare_process()
        torch.set_num_threads(settings.threads)
        settings.arithmetic.set()
        device = torch.device(settings.device)
        engine = create_engine(settings.engine, device)
        # the other vehicles of the machine are other workers'
        self._engine: Engine = SideBySideEngine(workers=1) if isinstance(engine, SideBySideEngine) else engine
        self._received: Received | None = None
        self._programs: dict[int, Program] = {}

    def versions(self) -> str:
        """Return what this process trains with; the first answer of a worker says that it has begun."""
        return versions()

    def train(self, parcel: Parcel, programs: Mapping[int, Any], shared: Mapping[int, Any]) -> list[Any]:
        """Return the results of jobs as bytes.

        Args:
            parcel: the jobs.
            programs: references to their programs, by number; those it knows are not fetched again.
            shared: references to what several jobs have in common.
        """
        import ray  # noqa: PLC0415 - an extra

        self._received = self._received or Received(ray.get)
        for number, reference in programs.items():
            if number not in self._programs:
                self._programs[number] = self._received.program(ray.get(reference))
        common = {place: unpacked(ray.get(reference)) for place, reference in shared.items()}

        def tensors(part: Part) -> Mapping[str, torch.Tensor]:
            return common[part] if isinstance(part, int) else unpacked(part)

        jobs = [
            TrainingJob(
                program=self._programs[number],
                training=training,
                base=tensors(base),
                given=tensors(given),
                optimizer=tensors(optimizer),
            )
            for number, training, (base, given, optimizer) in zip(
                parcel.programs, parcel.trainings, parcel.parts, strict=True
            )
        ]
        return [packed_result(trained) for trained in self._engine.train(jobs)]
