"""Losses: FLSimCo's dual-temperature loss, FedCo's InfoNCE, CDL's divergence of two networks, distillation.

The contrastive losses are functions of one number per row, the margin
m_i(t) = log sum_{j != i} exp(s_ij / t) - s_ii / t: -log p_i(t) = log(1 + exp m_i) and 1 - p_i(t) = 1 / (1 + exp -m_i).
Both keep all their digits when the positive pair dominates; 1 - softmax would lose them.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import log_softmax, logsigmoid


def margins(similarity: Tensor, temperature: float) -> Tensor:
    """Return the margins logsumexp_{j != i}(s_ij / t) - s_ii / t, shape (B,), at the temperature t > 0.

    ``similarity`` is s_ij between anchor i and candidate j, shape (B, B); the positives are on the diagonal.
    """
    scaled = similarity / temperature
    positive = torch.eye(similarity.shape[0], dtype=torch.bool, device=similarity.device)
    return scaled.masked_fill(positive, -torch.inf).logsumexp(dim=1) - scaled.diagonal()


def dual_temperature_rows(similarity: Tensor, *, t_alpha: float, t_beta: float) -> Tensor:
    """Return FLSimCo's loss of every anchor, Eq. 6-8, shape (B,); InfoNCE with equal temperatures.

    loss_i = stopgrad[W_i(t_beta) / W_i(t_alpha)] * (-log p_i(t_alpha)) with W_i(t) = 1 - p_i(t), hence
    d loss_i / d s_ii = -W_i(t_beta) / t_alpha: t_alpha shapes the loss within a row, t_beta weighs the rows.
    ``similarity`` is q_i . k_j of L2-normalised projections, shape (B, B), B >= 2.
    """
    margin_alpha = margins(similarity, t_alpha)
    with torch.no_grad():
        weight = (logsigmoid(margins(similarity, t_beta)) - logsigmoid(margin_alpha)).exp()
        weight = weight.clamp(max=torch.finfo(weight.dtype).max)  # beyond it the logarithm is 0: no inf * 0
    return weight * -logsigmoid(-margin_alpha)


def dual_temperature_loss(
    q: Tensor, k: Tensor, *, t_alpha: float = 0.1, t_beta: float = 1.0, negatives: Tensor | None = None
) -> Tensor:
    """Return the dual-temperature loss of two views, averaged over anchors and over (q, k) and (k, q).

    Gradients flow through all arguments; the result has the shape ().

    Args:
        q: L2-normalised projections of the first views, shape (B, D).
        k: L2-normalised projections of the second views of the same images, shape (B, D).
        t_alpha: temperature > 0, see ``dual_temperature_rows``.
        t_beta: temperature > 0, likewise.
        negatives: projections of the unaugmented images, shape (B, D), used as negatives in place of the other view
            (Eq. 5 as printed). An anchor's own image is not among its negatives.
    """
    similarity = q @ k.T
    forward, backward = similarity, similarity.T
    if negatives is not None:
        positive = torch.eye(len(q), dtype=torch.bool, device=q.device)
        forward, backward = (torch.where(positive, similarity, anchors @ negatives.T) for anchors in (q, k))
    rows = dual_temperature_rows(forward, t_alpha=t_alpha, t_beta=t_beta).mean()
    return (rows + dual_temperature_rows(backward, t_alpha=t_alpha, t_beta=t_beta).mean()) / 2


def queue_info_nce(q: Tensor, k: Tensor, queue: Tensor, *, temperature: float) -> Tensor:
    """Return InfoNCE with the negatives of a queue (He et al. 2020, Eq. 1), mean over the images.

    -log [ exp(q_i . k_i / t) / (exp(q_i . k_i / t) + sum_j exp(q_i . u_j / t)) ] = log(1 + exp m_i) with the margin
    m_i = logsumexp_j(q_i . u_j / t) - q_i . k_i / t, which keeps its digits when the positive dominates.

    Args:
        q: L2-normalised projections of the first views, shape (B, D).
        k: keys of the second views of the same images, shape (B, D).
        queue: the negatives u_j, shape (K, D), K >= 1.
        temperature: t > 0.
    """
    positive = (q * k).sum(dim=1)
    margin = (q @ queue.T / temperature).logsumexp(dim=1) - positive / temperature
    return -logsigmoid(-margin).mean()


def divergence_rows(z: Tensor, other: Tensor, *, tau: float) -> Tensor:
    """Return KL(softmax(z / tau) || softmax(other / tau)) of every row in nats, shape (B,), of features (B, d), d > 1.

    With b = softmax(z_b / tau) and s = softmax(z_s / tau), CDL's two terms are ``divergence_rows(z_b, z_s.detach())``,
    KL(b || stopgrad s), and ``divergence_rows(z_s, z_b.detach())``. Gradients flow through both arguments;
    d KL(s || b) / d z_b = (b - s) / tau.
    """
    log_p, log_q = log_softmax(z / tau, dim=1), log_softmax(other / tau, dim=1)
    return (log_p.exp() * (log_p - log_q)).sum(dim=1)


def distillation_loss(student: Tensor, teachers: Tensor, weights: Tensor, *, temperature: float) -> Tensor:
    """Return T^2 sum_j w_j KL(Q_Tj^T || Q_S^T), mean over the images, with Q^T = softmax(logits / T).

    FedEFM (Eq. 2) writes the cross-entropy CE(Q_Tj^T, Q_S^T). The two differ by the teacher's entropy, which does not
    depend on the student: the gradient on its logits is T sum_j w_j (Q_S^T - Q_Tj^T) for both.

    Args:
        student: logits, shape (N, classes).
        teachers: logits of J teachers, shape (J, N, classes), without gradients.
        weights: w_j >= 0, shape (J,).
        temperature: T > 0.
    """
    divergences = torch.stack([divergence_rows(teacher, student, tau=temperature).mean() for teacher in teachers])
    return temperature**2 * (weights * divergences).sum()
