"""kNN vote and linear probe against slow or independent versions."""

import threading
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]
from sklearn.pipeline import make_pipeline  # type: ignore[import-untyped]
from sklearn.preprocessing import StandardScaler  # type: ignore[import-untyped]
from torch.optim.swa_utils import update_bn

from learners.encoders import create_encoder
from learners.tasks import evaluation
from learners.tasks.contrastive import ContrastiveSettings, ContrastiveTask
from learners.tasks.evaluation import (
    estimate_statistics,
    fit_linear_probe,
    forward_all,
    knn_predict,
    linear_probe_accuracy,
)
from vnetsim.learning.global_generators import seeded

LINEAR = {"knn_accuracy", "linear_accuracy"}


def blobs(seed: int, count: int, classes: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    """Return overlapping clouds (count, 5) and their labels."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes, (count,), generator=generator)
    centres = torch.eye(5)[:classes]
    return centres[labels] + 0.7 * torch.randn(count, 5, generator=generator), labels


def slow_knn(
    queries: np.ndarray, bank: np.ndarray, labels: np.ndarray, classes: int, k: int, temperature: float
) -> list[int]:
    predictions = []
    for query in queries:
        similarity = [float(query @ b / np.linalg.norm(query) / np.linalg.norm(b)) for b in bank]
        nearest = sorted(range(len(bank)), key=lambda j: -similarity[j])[:k]
        votes = [0.0] * classes
        for j in nearest:
            votes[labels[j]] += np.exp(similarity[j] / temperature)
        predictions.append(int(np.argmax(votes)))
    return predictions


@given(st.integers(0, 10**6), st.integers(1, 60), st.sampled_from([0.002, 0.1, 1.0]))
def test_knn_equals_the_slow_version(seed, k, temperature):
    bank, labels = blobs(seed, 40)
    queries, _ = blobs(seed + 1, 15)
    predicted = knn_predict(queries.double(), bank.double(), labels, classes=3, k=k, temperature=temperature)
    expected = slow_knn(queries.double().numpy(), bank.double().numpy(), labels.numpy(), 3, k, temperature)
    assert predicted.tolist() == expected


def test_no_more_similarities_are_held_at_once_than_a_chunk_has(monkeypatch):
    bank, labels = blobs(0, 50)
    whole = knn_predict(blobs(1, 33)[0], bank, labels, classes=3, k=7, temperature=0.1)
    held = []
    topk = torch.Tensor.topk
    monkeypatch.setattr(torch.Tensor, "topk", lambda t, *a, **k: held.append(tuple(t.shape)) or topk(t, *a, **k))
    monkeypatch.setattr(evaluation, "CHUNK_VALUES", 10 * (50 + 7 * 3))
    assert torch.equal(knn_predict(blobs(1, 33)[0], bank, labels, classes=3, k=7, temperature=0.1), whole)
    assert held == [(10, 50)] * 3 + [(3, 50)]


def test_of_equal_votes_the_lowest_label_wins():
    bank = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    assert knn_predict(bank, bank, torch.tensor([2, 1]), classes=3, k=2, temperature=0.1).tolist() == [1, 1]


def test_linear_probe_equals_scikit_learn():
    features, labels = blobs(3, 200)
    weights, biases = fit_linear_probe(features.double(), labels, classes=3)
    reference = LogisticRegression(C=1 / (1e-3 * 200), tol=1e-8, max_iter=1000).fit(features.numpy(), labels.numpy())
    np.testing.assert_allclose(weights, reference.coef_.T, atol=1e-3)
    centred = biases - biases.mean()
    np.testing.assert_allclose(centred, reference.intercept_ - reference.intercept_.mean(), atol=1e-3)


def test_linear_probe_is_unchanged_by_scaling_shifts_and_constant_features():
    parts = blobs(4, 60), blobs(6, 60, classes=1)  # most have label 0: biases matter
    bank, bank_labels = (torch.cat(rows) for rows in zip(*parts, strict=True))
    queries, labels = blobs(5, 100)
    accuracy = linear_probe_accuracy(queries, labels, bank, bank_labels, classes=3)
    logistic = LogisticRegression(C=1 / (1e-3 * 120), tol=1e-8, max_iter=1000)
    reference = make_pipeline(StandardScaler(), logistic).fit(bank.numpy(), bank_labels.numpy())
    assert accuracy == reference.score(queries.numpy(), labels.numpy())

    def stretched(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([1000 * x[:, :2] + 3000, x[:, 2:] / 1000, torch.full((len(x), 1), 0.25)], dim=1)

    assert linear_probe_accuracy(stretched(queries), labels, stretched(bank), bank_labels, classes=3) == accuracy


@pytest.mark.parametrize("batchnorm", ["average", "local"])
def test_measures_the_given_state_reproducibly(tiny, context, batchnorm):  # noqa: ARG001  the images
    for probe, names in (("final", {"knn_accuracy"}), ("every", LINEAR), ("never", {"knn_accuracy"})):
        task = ContrastiveTask(context, ContrastiveSettings(batchnorm=batchnorm, linear_probe=probe))
        assert set(task.evaluate(task.initial_state(), final=False)) == names
        assert LINEAR - {one.name for one in task.series()} == ({"linear_accuracy"} if probe == "never" else set())
    described: Any = task.describe({})
    assert described.network.own_statistics == (batchnorm == "average")
    task = ContrastiveTask(context, ContrastiveSettings(batchnorm=batchnorm))
    state = create_encoder("small", seed=1).state_dict()
    copy = {name: tensor.clone() for name, tensor in state.items()}
    rng = torch.random.get_rng_state()
    first = task.evaluate(state, final=True)
    task.evaluate(create_encoder("small", seed=2).state_dict(), final=False)
    assert task.evaluate(state, final=True) == first
    assert set(first) == LINEAR
    assert first["knn_accuracy"] > 0.5  # colours are easy even for random features
    assert all(torch.equal(state[name], copy[name]) for name in state)
    assert torch.equal(torch.random.get_rng_state(), rng)


def test_recalibrated_statistics_are_those_of_the_bank(tiny, context, monkeypatch):
    monkeypatch.setattr("learners.tasks.contrastive.PASS", 48)
    task: Any = ContrastiveTask(context, ContrastiveSettings(batchnorm="local"))
    task.evaluate(task.initial_state(), final=False)
    center, spread = (torch.tensor(c).view(1, 3, 1, 1) for c in (tiny.mean, tiny.std))
    stem, norm = task.network.trunk[0], task.network.trunk[1]
    with torch.no_grad():
        responses = stem((tiny.train / 255 - center) / spread)
    torch.testing.assert_close(norm.running_mean, responses.mean(dim=(0, 2, 3)), rtol=1e-4, atol=1e-5)
    assert norm.momentum == 0.1


def test_passes_go_side_by_side_on_a_core_each_to_the_same_bits(monkeypatch):
    encoder = create_encoder("small", seed=0).eval()
    images = torch.randint(0, 256, (70, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    threads = torch.get_num_threads()
    together = threading.Barrier(2, timeout=60)  # broken, and so an error, where one pass waits for another's end

    def forward(part: torch.Tensor) -> torch.Tensor:
        together.wait()
        assert (torch.get_num_threads(), torch.is_inference_mode_enabled()) == (1, True)
        return encoder.features(part)

    monkeypatch.setenv("VNETSIM_CORES", "2")
    monkeypatch.setattr("learners.tasks.evaluation.PASS", 35)
    two = forward_all(forward, images)
    monkeypatch.setenv("VNETSIM_CORES", "1")
    where: set[int] = set()
    assert torch.equal(
        two, forward_all(lambda part: where.add(threading.get_ident()) or encoder.features(part), images)
    )
    assert where == {threading.get_ident()}
    assert torch.get_num_threads() == threads


def test_passes_that_draw_are_made_in_order(monkeypatch):
    images = torch.zeros(70, 3, 8, 8, dtype=torch.uint8)
    monkeypatch.setattr("learners.tasks.evaluation.PASS", 10)
    found = []
    for cores in ("3", "1"):
        monkeypatch.setenv("VNETSIM_CORES", cores)
        with seeded(5):
            found.append(forward_all(lambda part: part[:, 0, 0, 0] + torch.rand(len(part)), images))
    with seeded(5):
        expected = torch.cat([torch.rand(10) for _ in range(7)])
    assert all(torch.equal(one, expected) for one in found)


@pytest.mark.parametrize(("side", "sizes"), [(32, [2048, 952]), (2000, [128] * 2 + [44])])
def test_passes_on_another_device_are_large_and_one_after_the_other(side, sizes):
    images = torch.empty(sum(sizes), 1, side, side, dtype=torch.uint8, device="meta")
    seen: list[tuple[int, int]] = []
    forward_all(lambda part: seen.append((threading.get_ident(), len(part))) or part[:, 0, 0, 0], images)
    assert seen == [(threading.get_ident(), size) for size in sizes]


def test_estimated_statistics_are_those_of_torch_to_the_bit():
    ours, theirs = (create_encoder("small", seed=0) for _ in range(2))
    batches = torch.rand(7, 3, 16, 16, generator=torch.Generator().manual_seed(1)).split(3)
    estimate_statistics(ours, batches)
    update_bn(batches, theirs)
    assert all(map(torch.equal, ours.state_dict().values(), theirs.state_dict().values()))
    assert [m.momentum for m in ours.modules() if hasattr(m, "momentum")] == [
        m.momentum for m in theirs.modules() if hasattr(m, "momentum")
    ]
