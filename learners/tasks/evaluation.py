"""Evaluation: forward passes over many images, and two tests of frozen features (nearest neighbours, linear probe)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import normalize, one_hot
from torch.nn.modules.batchnorm import _BatchNorm

from learners.encoders import channels_last
from learners.engines.side_by_side import run_in_threads
from vnetsim.learning.device import cores
from vnetsim.learning.global_generators import GlobalGenerators

PENALTY = 1e-3
"""L2 penalty of the linear probe, which keeps weights finite if classes are separable."""
CHUNK_VALUES = 1 << 24
"""Most values in one chunk of a pairwise computation (64 MiB in float32)."""
PASS = 128
"""Images of one forward pass on a CPU. More do not fit its caches: 256 take twice the time per image."""
DEVICE_PASS_PIXELS = 2**21
"""Pixels of one forward pass on a GPU, which fewer images would leave mostly idle: 2,048 images of 32 x 32."""


def as_floats(images: Tensor, scale: Sequence[Tensor] = ()) -> Tensor:
    """Return uint8 images (N, C, H, W) as floats in [0, 1], in the memory layout of the networks.

    With ``scale``, mean and standard deviation of the channels, shape (1, C, 1, 1), they are normalised.
    """
    floats = images.to(torch.float32).div_(255)
    if scale:  # before the change of layout, after which it takes twice as long
        mean, std = scale
        floats.sub_(mean).div_(std)
    return channels_last(floats)


def forward_all(
    forward: Callable[[Tensor], Tensor], images: Tensor, rows: Tensor | None = None, *, scale: Sequence[Tensor] = ()
) -> Tensor:
    """Return the outputs of ``forward`` for uint8 images (N, C, H, W), shape (N, ...).

    ``rows`` selects images. ``forward`` takes the images of ``as_floats`` with ``scale`` and changes nothing, like a
    network in evaluation mode. On a CPU, passes run in threads, or in order if it draws from global generators.
    """
    # one core each: two cores on one pass of small convolutions wait for each other a third of their time
    on_cpu = images.device.type == "cpu"
    size = PASS if on_cpu else max(PASS, DEVICE_PASS_PIXELS // images[0, 0].numel())
    parts = torch.split(images if rows is None else rows, size)
    workers = min(cores(), len(parts)) if on_cpu else 1

    @torch.inference_mode()  # of the thread that calls
    def compute(part: Tensor) -> Tensor:
        """Return the outputs for a part of the images, or of ``rows`` if they are given."""
        return forward(as_floats(part if rows is None else images[part], scale))

    if workers == 1:
        return torch.cat([compute(part) for part in parts])
    calls, before = [partial(compute, part) for part in parts], GlobalGenerators()
    found = run_in_threads(calls, workers)
    if before.moved:
        before.restore()
        found = run_in_threads(calls, 1)
    return torch.cat(found)


@torch.no_grad()
def estimate_statistics(network: nn.Module, batches: Iterable[Tensor]) -> None:
    """Set BatchNorm's statistics to the batches' mean, in training mode; a network without BatchNorm is left alone."""
    # torch.optim.swa_utils.update_bn does the same, but waits for the device at every layer and batch
    layers = [layer for layer in network.modules() if isinstance(layer, _BatchNorm)]
    if not layers:
        return
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.reset_running_stats()
    network.train()
    for number, batch in enumerate(batches, start=1):
        for layer in layers:
            layer.momentum = 1 / number
        network(batch)
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum


def knn_predict(queries: Tensor, bank: Tensor, labels: Tensor, *, classes: int, k: int, temperature: float) -> Tensor:
    """Return the label that the nearest neighbours of each query vote for, shape (Q,).

    Each of the ``k`` most similar features of the bank votes for its label with weight exp(cosine / temperature) (Wu et
    al. 2018, section 3.4). Of equal votes the lowest label wins.

    Args:
        queries: features (Q, D).
        bank: labelled features (M, D), M >= 1.
        labels: their labels (M,), int64 in [0, classes).
        classes: number of labels.
        k: neighbours that vote; all of the bank if it is smaller.
        temperature: > 0; the smaller, the more weight the nearest have.
    """
    k = min(k, len(bank))
    bank = normalize(bank, dim=1)
    votes_of = one_hot(labels, classes).to(bank.dtype)
    chunk = max(1, CHUNK_VALUES // (len(bank) + k * classes))
    predictions = []
    for part in torch.split(normalize(queries, dim=1), chunk):
        similarity, neighbours = (part @ bank.T).topk(k, dim=1)
        # the largest exponent is subtracted: it cancels in the comparison and cannot overflow
        weights = ((similarity - similarity[:, :1]) / temperature).exp()
        votes = torch.bmm(weights.unsqueeze(1), votes_of[neighbours]).squeeze(1)
        predictions.append(votes.argmax(dim=1))
    return torch.cat(predictions)


def fit_linear_probe(features: Tensor, labels: Tensor, *, classes: int) -> tuple[Tensor, Tensor]:
    """Return weights (D, classes) and biases (classes,) of the multinomial logistic regression.

    They minimise the mean cross-entropy plus PENALTY / 2 times the squared weights (not the biases): a strictly convex
    problem in the weights, solved by L-BFGS from zero, so the result depends only on the data. Sums over images are on
    the features' device, the solver's steps on the CPU. Features are float64 (M, D), labels int64 (M,) in [0, classes).
    """
    from scipy.optimize import minimize  # noqa: PLC0415  scipy.optimize is slow to import and used once a run

    count, width = features.shape
    targets = one_hot(labels, classes).to(features.dtype)

    def objective(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Return the penalised loss of flat parameters and its gradient, for SciPy."""
        parameters = torch.from_numpy(flat).to(features.device).view(width + 1, classes)
        weights = parameters[:-1]
        log_p = torch.addmm(parameters[-1], features, weights).log_softmax(dim=1)
        error = (log_p.exp() - targets) / count
        gradient = torch.cat([features.T @ error + PENALTY * weights, error.sum(dim=0, keepdim=True)])
        value = -(targets * log_p).sum() / count + PENALTY / 2 * weights.square().sum()
        return float(value), gradient.ravel().cpu().numpy()

    start = np.zeros((width + 1) * classes)
    solution = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 300}).x
    found = torch.from_numpy(solution).to(features.device).view(width + 1, classes)
    return found[:-1], found[-1]


def linear_probe_accuracy(
    queries: Tensor, query_labels: Tensor, bank: Tensor, bank_labels: Tensor, *, classes: int
) -> float:
    """Return the share of queries (Q, D) that a linear probe, fitted to a bank of features (M, D), labels correctly.

    Each feature, also of the queries, is shifted and scaled to mean 0 and variance 1 over the bank; a feature that is
    constant over the bank is only shifted.
    """
    x = bank.double()
    mean, deviation = x.mean(dim=0), x.std(dim=0, correction=0)
    # a constant feature has no information; dividing by 1 keeps it at zero
    deviation = torch.where(deviation > 0, deviation, 1.0)
    weights, biases = fit_linear_probe((x - mean) / deviation, bank_labels, classes=classes)
    logits = (queries.double() - mean) / deviation @ weights + biases
    return float((logits.argmax(dim=1) == query_labels).double().mean())
