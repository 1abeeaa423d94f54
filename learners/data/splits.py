"""Holding out a test set where the data has none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vnetsim.errors import InputError
from vnetsim.experiment import DataSettings

Indices = NDArray[np.int64]

TEST_SHARE = 0.2
"""Share held out of a set without test split: the usual fifth."""
BLOCK = 50
"""Length of a stretch of time, about (frames); shorter if there are less than ten times as many."""


def gap_length(frames: int) -> int:
    """Return how many frames on each side of a test block are left out, given the number of all frames; may be 0."""
    return _block_length(frames) // 5


def _block_length(frames: int) -> int:
    """Return how many frames a block should have: BLOCK, or a tenth of all frames if that is less, at least 1."""
    return max(1, min(BLOCK, frames // 10))


def split_by_time(
    drives: NDArray[np.int64], share: float, generator: np.random.Generator
) -> tuple[Indices, Indices, Indices]:
    """Return indices of training frames and of test frames, ascending, and the block of every frame, from 0.

    Each drive is cut into blocks of nearly equal length. The test set is made of random blocks, as many as come closest
    to ``share`` of the frames, but at least one and not all. Frames of the same drive closer than ``gap_length`` to a
    test block are in neither. ``drives`` is the number, >= 0, of each frame's drive, in order of time, each drive in
    one piece, shape (N,). InputError if there are too few frames to hold any out.
    """
    frames = len(drives)
    lengths = np.diff(np.flatnonzero(np.diff(drives, prepend=-1, append=-1)))
    pieces = [
        np.full(len(piece), drive)
        for drive, length in enumerate(lengths)
        for piece in np.array_split(np.arange(length), max(1, round(length / _block_length(frames))))
    ]
    if len(pieces) < 2:
        raise InputError(f"data.root: {frames} frames are too few to hold some out by stretches of time.")
    sizes = np.array([len(piece) for piece in pieces])
    blocks = np.repeat(np.arange(len(pieces)), sizes)
    order = generator.permutation(len(pieces))
    held_out = np.cumsum(sizes[order])[:-1]
    is_test = np.isin(blocks, order[: 1 + int(np.abs(held_out - share * frames).argmin())])

    is_near = is_test.copy()
    for shift in range(1, gap_length(frames) + 1):
        same = drives[shift:] == drives[:-shift]
        is_near[shift:] |= is_test[:-shift] & same
        is_near[:-shift] |= is_test[shift:] & same
    return np.flatnonzero(~is_near), np.flatnonzero(is_test), blocks


def split_by_class(labels: NDArray[np.int64], share: float, generator: np.random.Generator) -> tuple[Indices, Indices]:
    """Return the indices of training and of test images, each in random order; InputError if no class has two.

    Of every class ``share`` is held out, rounded, but at least one image and not all; a class of one image stays in
    training.
    """
    order = generator.permutation(len(labels))
    is_test = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        members = order[labels[order] == label]
        count = min(max(round(share * len(members)), 1), len(members) - 1)
        is_test[members[:count]] = True
    if not is_test.any():
        raise InputError(f"data.root: none of {len(labels)} images can be held out for the test: no class has two.")
    return order[~is_test[order]], order[is_test[order]]


def take_first(train: Indices, test: Indices, data: DataSettings) -> tuple[Indices, Indices]:
    """Return the first ``data.train_images`` and ``data.test_images``, all for 0; InputError if there are fewer."""
    for indices, key, count in (
        (train, "data.train_images", data.train_images),
        (test, "data.test_images", data.test_images),
    ):
        if count > len(indices):
            raise InputError(f"{key}: {count} images asked for, '{data.name}' has {len(indices)}; 0 takes all.")
    return train[: data.train_images or len(train)], test[: data.test_images or len(test)]


def renumber(groups: Sequence[Any] | NDArray[np.int64]) -> Indices:
    """Return each item's group as a number from 0 without gaps; numbers are in the order of the sorted groups."""
    return np.unique(np.asarray(groups), return_inverse=True)[1].astype(np.int64)
