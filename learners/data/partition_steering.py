"""Dealing the frames of drives to the silos: IID, by drive, by stretch of time, or by the sign of the angle."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from learners.data.partition import Indices
from learners.data.steering_set import SteeringSet
from vnetsim.errors import InputError, unknown_name
from vnetsim.experiment import DataSettings

STRAIGHT = 0.05
"""Angles up to this are neither to the left nor to the right."""
FITTING = ("iid", "drive", "block", "sign")
_OF_CLASSES = ("dirichlet", "approach", "label-skew")


def partition_steering(
    frames: SteeringSet,
    *,
    silos: int,
    approaches: int,  # noqa: ARG001 - the partitions of images with classes need it, and callers treat both alike
    settings: DataSettings,
    generator: np.random.Generator,
) -> list[Indices]:
    """Return the training frames that each silo holds, in random order.

    Every frame goes to exactly one silo.

    - ``iid``: frames at random, equally many to within one.
    - ``drive``: with as many silos as drives or more, each silo holds frames of one drive, drawn at random; else every
      drive goes to one silo as a whole.
    - ``block``: likewise with blocks in place of drives, but a block is cut into silos in order of time, so that each
      holds consecutive frames.
    - ``sign``: likewise with the angles below -STRAIGHT, above STRAIGHT, and between, drawn at random.

    Drives, blocks and signs are shared out so that the silos' sizes differ as little as their own sizes allow.

    Args:
        frames: the set.
        silos: number of silos, >= 1.
        approaches: number of approach directions; no partition of frames depends on it.
        settings: ``partition`` and ``min_images``.
        generator: source of all draws.

    Returns:
        Indices into the training frames for each silo.

    Raises:
        InputError: when a silo would get fewer frames than ``min_images`` (or none), or the partition needs classes.
    """
    kind = settings.partition
    count = len(frames.train_angles)
    if kind in _OF_CLASSES:
        raise InputError(
            f"data.partition: '{kind}' needs images with classes; frames with steering angles are dealt by one of"
            f" {', '.join(FITTING)}."
        )
    if kind == "iid":
        order = generator.permutation(count)
        shards = [order[silo::silos] for silo in range(silos)]
    elif kind == "drive":
        shards = _by_unit(frames.train_drives.numpy(), silos, generator, in_order=False)
    elif kind == "block":
        shards = _by_unit(frames.train_blocks.numpy(), silos, generator, in_order=True)
    elif kind == "sign":
        angles = frames.train_angles.numpy()
        signs = np.where(np.abs(angles) <= STRAIGHT, 0, np.sign(angles)).astype(np.int64)
        shards = _by_unit(signs, silos, generator, in_order=False)
    else:
        raise unknown_name("partition", kind, FITTING, where="data.partition")
    needed = max(settings.min_images, 1)
    least = min(len(shard) for shard in shards)
    if least < needed:
        raise InputError(
            f"data: partition '{kind}' of {count} training frames leaves a silo of {silos} with {least}, and {needed}"
            " are needed; lower silos.count or data.min_images, or raise data.train_images."
        )
    return [generator.permutation(shard) for shard in shards]


def _by_unit(units: NDArray[np.int64], silos: int, generator: np.random.Generator, *, in_order: bool) -> list[Indices]:
    """Share out the frames so that a silo holds as few units as possible.

    Args:
        units: which drive, block or sign each frame belongs to, shape (N,).
        silos: number of silos.
        generator: source of all draws.
        in_order: whether a unit that several silos share is cut into consecutive pieces instead of at random.
    """
    members = [np.flatnonzero(units == unit) for unit in np.unique(units)]
    members = [members[unit] for unit in generator.permutation(len(members))]
    return _whole(members, silos) if silos < len(members) else _shared(members, silos, generator, in_order=in_order)


def _whole(members: list[Indices], silos: int) -> list[Indices]:
    """Give every unit to one silo: the largest unit first, each to the silo that holds least."""
    shards: list[Indices] = [np.empty(0, dtype=np.int64)] * silos
    for unit in sorted(members, key=len, reverse=True):
        silo = min(range(silos), key=lambda silo: len(shards[silo]))
        shards[silo] = np.concatenate([shards[silo], unit])
    return shards


def _shared(members: list[Indices], silos: int, generator: np.random.Generator, *, in_order: bool) -> list[Indices]:
    """Give every silo frames of one unit: a silo to each unit, then one more to the unit whose silos are largest."""
    hands: list[list[int]] = [[unit] for unit in range(len(members))]
    for silo in range(len(members), silos):
        largest = max(range(len(members)), key=lambda unit: len(members[unit]) / len(hands[unit]))
        hands[largest].append(silo)
    shards: list[Indices] = [np.empty(0, dtype=np.int64)] * silos
    for unit, hand in zip(members, hands, strict=True):
        cards = unit if in_order else generator.permutation(unit)
        for silo, piece in zip(hand, np.array_split(cards, len(hand)), strict=True):
            shards[silo] = piece
    return shards
