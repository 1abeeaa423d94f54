"""A round of large models averaged as they come, so that no more of them are held than are trained at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from torch import Tensor

from learners.engines.programs import Engine, Trained, TrainingJob
from learners.mathematics.robust import AveragingSettings, clipped, used_weights
from learners.mathematics.weights import RunningMean, Weights

HELD_BYTES = 2**31
"""What the models of a round may take together before they are averaged as they come."""


def averages_as_they_come(jobs: Sequence[TrainingJob], settings: AveragingSettings) -> bool:
    """Return whether a round is too large to be held, and its rule lets uploads go one by one: the weighted mean."""
    return settings.aggregation == "mean" and _bytes(jobs) > HELD_BYTES


def trained_and_averaged(
    jobs: Sequence[TrainingJob],
    engine: Engine,
    *,
    weigh: Callable[[Sequence[int]], Weights],
    sent: Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]],
    look: Callable[[int, Mapping[str, Tensor]], None],
    settings: AveragingSettings,
) -> tuple[list[Trained], list[bool], Mapping[str, Tensor]]:
    """Train jobs some at a time; return their results without states, whether each was finite, and the mean of those.

    Without an upload of positive weight the mean is empty. It has the bits of ``combine`` over all finite uploads.
    Their weights are known only once all are trained; where some are not finite, the others are therefore trained a
    second time.

    ``weigh`` weighs the uploads at some places, ``sent`` gives the part of a state that is averaged, and ``look`` is
    given place and that part of each finite upload, once. Together are trained at least ``at_once`` of the engine,
    where it says so.
    """
    size = max(1, HELD_BYTES * len(jobs) // _bytes(jobs), getattr(engine, "at_once", 1))
    places: Sequence[int] = range(len(jobs))
    results: list[Trained] = []
    finite: list[bool] = []
    while True:
        weights = used_weights(weigh(places), settings)
        mean = RunningMean()
        fine: list[bool] = []
        for start in range(0, len(places), size):
            for trained in engine.train([jobs[i] for i in places[start : start + size]]):
                fine.append(trained.finite)
                if fine[-1]:
                    upload = sent(trained.state)
                    if len(results) < len(jobs):
                        look(len(results), upload)
                    place = len(fine) - 1
                    base = jobs[places[place]].base
                    mean.add(clipped(upload, base, settings), float(weights[place]))
                if len(results) < len(jobs):
                    results.append(replace(trained, state={}, optimizer={}))
        finite = finite or fine
        if all(fine):
            return results, finite, mean.result()
        places = [i for i, one in zip(places, fine, strict=True) if one]


def _bytes(jobs: Sequence[TrainingJob]) -> int:
    """Return what the states of all jobs take, the first one's times their number; at least 1."""
    return max(1, len(jobs) * sum(tensor.nbytes for job in jobs[:1] for tensor in job.base.values()))
