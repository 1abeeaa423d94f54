"""When the weights EMD of FedEFM are not inert: the further copies have moved, the smaller they are."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import pytest
from test_emd_weights import group, learner_of, similarities, with_noise


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def test_weights_fall_with_noise_and_with_steps_overseas() -> None:
    learner = learner_of(silos=3, unseen_share=0.0, encoder="small", lr=0.05)
    learner.aggregate(learner.train(group(0, 3, met=False)))
    vehicles = group(1, 3, met=True)
    same = similarities(learner, vehicles, [{"same": learner._models.newest()}] * 3)
    assert same == pytest.approx([1.0] * 3, abs=1e-12)
    noise = [
        mean(similarities(learner, vehicles, [{"noisy": with_noise(learner, share)}] * 3)) for share in (0.1, 0.3, 1)
    ]
    assert 0.99 > noise[0] > noise[1] > noise[2] > 0
    trained = []
    for steps in (2, 16):
        learner._local._abroad = learner._task.training(learner._local._plain.loss, steps=steps)
        trained.append(mean(similarities(learner, vehicles, learner._local._overseas(vehicles))))
    assert 0.99 > trained[0] > trained[1] > 0
