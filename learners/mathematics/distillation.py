"""Learning from other models: how alike two networks see an image, and how a student follows its teachers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from learners.mathematics.losses import divergence_rows
from learners.mathematics.transport import Solver, emd_problem, solve

Problem = tuple[Tensor, Tensor, Tensor]
"""Costs and both marginals of transport problems."""

LARGEST_SIDE = 7
"""Dense features are pooled to at most so many rows and columns: 49 positions, as FedEFM does."""


def dense_similarity(u: Tensor, v: Tensor, solver: Solver = "auto") -> Tensor:
    """Return the earth mover's similarity of two networks' dense features (FedEFM, Eq. 3), mean over the images.

    Args:
        u: dense features of one network, shape (N, C, H, W).
        v: those of J networks for the same images, shape (J, N, C, H, W).
        solver: see ``learners.mathematics.transport.solve``.

    Returns:
        A value in [-1, 1] for each of the J networks, float64, shape (J,); 1 for one that sees every image alike, NaN
        where a feature is not finite.
    """
    cost, a, b = dense_problem(u, v)
    return 1 - solve(cost, a, b, solver)[0].mean(dim=1)


def dense_similarities(problems: Sequence[Problem], solver: Solver = "auto") -> list[Tensor]:
    """Return the ``dense_similarity`` of each of several ``dense_problem``s, all solved as one batch."""
    cost, a, b = (torch.cat([part.flatten(0, 1) for part in parts]) for parts in zip(*problems, strict=True))
    shapes = [(len(one), one.shape[1]) for one, _, _ in problems]
    values = solve(cost, a, b, solver)[0].split([networks * images for networks, images in shapes])  # type: ignore[no-untyped-call]
    return [1 - value.view(shape).mean(dim=1) for value, shape in zip(values, shapes, strict=True)]


def dense_problem(u: Tensor, v: Tensor) -> Problem:
    """Return the transport problems of ``dense_similarity``: costs (J, N, n, n) and marginals (J, N, n), n <= 49."""
    there = _positions(v.flatten(0, 1))
    return emd_problem(_positions(u).expand(len(v), -1, -1, -1), there.view(*v.shape[:2], *there.shape[1:]))


def _positions(dense: Tensor) -> Tensor:
    """Return (N, C, H, W) as feature vectors by position in float64, shape (N, n, C), n <= 49."""
    height, width = (min(side, LARGEST_SIDE) for side in dense.shape[2:])
    return adaptive_avg_pool2d(dense.double(), (height, width)).flatten(2).mT


def distillation_loss(student: Tensor, teachers: Tensor, weights: Tensor, *, temperature: float) -> Tensor:
    """Return T^2 sum_j w_j KL(Q_Tj^T || Q_S^T), mean over the images, with Q^T = softmax(logits / T).

    FedEFM (Eq. 2) writes the cross-entropy CE(Q_Tj^T, Q_S^T). It differs by the teacher's entropy, which no student
    changes: the gradient on the student's logits is T sum_j w_j (Q_S^T - Q_Tj^T) either way, and this value is 0 where
    all agree.

    Args:
        student: logits, shape (N, classes).
        teachers: logits of J teachers, shape (J, N, classes); no gradient should flow into them.
        weights: w_j >= 0, shape (J,).
        temperature: T > 0.
    """
    divergences = torch.stack([divergence_rows(teacher, student, tau=temperature).mean() for teacher in teachers])
    return temperature**2 * (weights * divergences).sum()
