"""Division of the training images among silos: IID, Dirichlet, label skew, major class, approach or district."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor

from learners.data.sets import SteeringSet
from vnetsim.errors import InputError
from vnetsim.experiment import DataSettings

Indices = NDArray[np.int64]

OF_CLASSES = ("iid", "dirichlet", "approach", "label-skew", "major-class", "district")
OF_ANGLES = ("iid", "drive", "block", "sign")
WITH_CLASSES, WITH_ANGLES = "images with classes", "frames with steering angles"
STRAIGHT = 0.05
"""Largest angle that counts as neither left nor right."""


def partition(
    labels: Indices,
    *,
    silos: int,
    approaches: int,
    settings: DataSettings,
    generator: Generator,
    districts: int = 1,
    groups: Indices | None = None,
) -> list[Indices]:
    """Return each silo's rows of ``labels``, silo after silo, by ``settings.partition``.

    No image is in two silos. An image is in none if no silo has its class, or if ``district`` or ``major-class`` leaves
    it over. Silo sizes differ by at most one image for ``iid``, ``dirichlet``, ``major-class`` and ``district``, and
    among the silos that share classes for ``approach``. The order inside a silo is random. ``labels`` and ``groups``
    have the shape (N,). Images with one number in ``groups``, all of one class, stay in one silo; what is said of
    images is then true of such groups.

    - ``iid``: every silo gets equally many of each class, to within one image.
    - ``dirichlet``: each silo's class shares are drawn from a Dirichlet distribution (Hsu et al. 2019, "Measuring the
      effects of non-identical data distribution") of concentration ``settings.alpha`` times the class's frequency
      relative to the mean class. Silos are filled in random order; once a class is used up, the others' shares are
      scaled up.
    - ``approach``: silo i belongs to direction i mod ``approaches``, and class c to direction c mod ``approaches``. A
      class is divided IID among the silos of its direction. With more directions than classes, direction d has class d
      mod classes, and shares it with the other directions that have it.
    - ``label-skew``: every silo has images of exactly 1 + round((1 - u) (C - 1)) of the C classes, u =
      ``settings.unseen_share`` (halves to even). The numbers of silos per class differ by at most one; a class is
      divided evenly among its silos.
    - ``major-class``: silo i has ``settings.major_share`` of its images from class i mod classes, the rest as with
      ``district`` (the data of MIDDLE's vehicles; Zhang et al. 2023, ICPP, 10.1145/3605573.3605643). If some image
      would be left over, silos are given major classes in proportion to their images (D'Hondt).
    - ``district``: silo i belongs to district i mod ``districts``, and class c to district c mod ``districts``. A silo
      has ``settings.major_share`` of its images from its district's classes, to within two images, and the rest from
      all other classes, in proportion to what is left of them; in a single district all classes are its own. Silos are
      as large as the images allow with that share; images left over are in no silo.

    Raises:
        InputError: a silo would have fewer images than ``settings.min_images``, or none; a class has too few for
            ``label-skew``; or the partition is none of these.
    """
    how: dict[str, Any] = {"approaches": approaches, "districts": districts, "settings": settings}
    if groups is None:
        shards, among = _deal_by_kind(labels, silos=silos, generator=generator, **how), ""
    else:
        _, members, group_of = np.unique(groups, return_index=True, return_inverse=True)
        holder = np.full(len(members), -1)
        for silo, held in enumerate(_deal_by_kind(labels[members], silos=silos, generator=generator, **how)):
            holder[held] = silo
        shards = [generator.permutation(np.flatnonzero(holder[group_of] == silo)) for silo in range(silos)]
        among = f", {len(members)} groups of images that stay together"
    _require_least(shards, settings, among)
    return shards


def _deal_by_kind(
    labels: Indices, *, silos: int, approaches: int, settings: DataSettings, generator: Generator, districts: int
) -> list[Indices]:
    """Return what ``partition`` does without groups, but without checking that silos have enough images."""
    kind = settings.partition
    _require_kind(kind, OF_CLASSES, WITH_CLASSES, WITH_ANGLES)
    if kind == "approach":
        shards = _deal_by_approach(labels, silos, approaches, generator)
    elif kind == "label-skew":
        shards = _deal_by_label_skew(labels, silos, settings.unseen_share, generator)
    else:
        by_class, sizes = _shuffle_by_class(labels, generator), np.unique(labels, return_counts=True)[1]
        if kind == "iid":
            shards = _deal(by_class, silos)
        elif kind == "dirichlet":
            log_shares = log_dirichlet(settings.alpha * (sizes / sizes.mean()), silos, generator)
            shards = _deal_by_shares(by_class, sizes, log_shares, generator)
        else:
            by = districts if kind == "district" else None
            shards = _deal_by_majors(by_class, sizes, silos, by, settings.major_share, generator)
    return [generator.permutation(shard) for shard in shards]


def partition_by_vehicle(
    train_silos: Tensor | None, *, silos: int, settings: DataSettings, generator: Generator
) -> list[Indices]:
    """Return, silo after silo, the rows of the training images that its vehicles saw, in random order.

    Image i is in silo ``train_silos[i]`` modulo ``silos``. InputError if ``train_silos`` is None, or a silo has fewer
    images than ``settings.min_images``, or none.
    """
    if train_silos is None:
        raise InputError(
            f"data.partition: 'vehicle' needs images that vehicles saw, and those of '{settings.name}' are not; take "
            "data.name = drive, or another partition."
        )
    of_silo = train_silos.numpy() % silos
    shards = [generator.permutation(np.flatnonzero(of_silo == silo)) for silo in range(silos)]
    cure = "lower silos.count, data.min_images or data.frame_s, raise data.train_images, or record longer"
    _require_least(shards, settings, cure=cure)
    return shards


def _require_kind(kind: str, known: Sequence[str], present: str, missing: str) -> None:
    """Raise InputError unless ``known`` has ``kind``; its message names the images that are there and those needed."""
    if kind not in known:
        raise InputError(f"data.partition: '{kind}' needs {missing}; {present} are dealt by one of {', '.join(known)}.")


def _require_least(
    shards: Sequence[Indices],
    settings: DataSettings,
    among: str = "",
    cure: str = "lower silos.count or data.min_images, or raise data.train_images",
) -> None:
    """Raise InputError, with the texts in it, unless every silo has ``settings.min_images`` and at least one."""
    least, needed = min(len(shard) for shard in shards), max(settings.min_images, 1)
    if least < needed:
        raise InputError(
            f"data: {sum(map(len, shards))} training images dealt to {len(shards)} silos (partition "
            f"'{settings.partition}'{among}) leave a silo with {least}, and {needed} are needed; {cure}."
        )


def _shuffle_by_class(labels: Indices, generator: Generator) -> Indices:
    """Return the indices of all labels, class after class in ascending order, in random order inside each class."""
    order = generator.permutation(len(labels))
    return order[np.argsort(labels[order], kind="stable")]


def _deal(by_class: Indices, parts: int) -> list[Indices]:
    """Return ``parts`` arrays, each with equally many of each class, to within one; ``by_class`` is sorted by class."""
    return [by_class[part::parts] for part in range(parts)]


def _deal_by_approach(labels: Indices, silos: int, approaches: int, generator: Generator) -> list[Indices]:
    """Return each silo's rows by ``approach`` (see ``partition``): each direction's classes, dealt to its silos."""
    _, classes = np.unique(labels, return_inverse=True)
    groups = min(int(classes.max(initial=0)) + 1, approaches)
    shards: list[Indices] = [np.empty(0, dtype=np.int64)] * silos
    by_class = _shuffle_by_class(classes, generator)
    for group in range(groups):
        members = [silo for silo in range(silos) if silo % approaches % groups == group]
        pool = by_class[classes[by_class] % groups == group]
        for silo, part in zip(members, _deal(pool, len(members)), strict=True):
            shards[silo] = part
    return shards


def _deal_by_label_skew(labels: Indices, silos: int, unseen_share: float, generator: Generator) -> list[Indices]:
    """Return rows by ``label-skew`` (see ``partition``); InputError if a class has fewer images than its silos."""
    _, classes = np.unique(labels, return_inverse=True)
    count = int(classes.max(initial=0)) + 1
    held = 1 + round((1 - unseen_share) * (count - 1))
    holders: list[list[int]] = [[] for _ in range(count)]
    for silo in range(silos):  # the classes that fewest silos hold so far, drawn among equals
        order = generator.permutation(count)
        for label in order[np.argsort([len(holders[label]) for label in order], kind="stable")][:held]:
            holders[label].append(silo)
    sizes = np.bincount(classes)
    if any(len(holding) > size for holding, size in zip(holders, sizes, strict=True)):
        most = int(sizes.min()) * count // silos
        cure = f"raise it to {math.ceil(1000 - 1000 * (most - 1) / (count - 1)) / 1000:g} or " if most else ""
        raise InputError(
            f"data.unseen_share: each of {silos} silos must have {held} of {count} classes, and the smallest class has "
            f"{sizes.min()} images; {cure}lower silos.count."
        )
    shards: list[Indices] = [np.empty(0, dtype=np.int64)] * silos
    by_class = _shuffle_by_class(classes, generator)
    for label, holding in enumerate(holders):
        if not holding:  # too few silos for every class
            continue
        neediest = sorted(holding, key=lambda silo: len(shards[silo]))  # the smallest silo gets the odd image
        for silo, part in zip(neediest, _deal(by_class[classes[by_class] == label], len(holding)), strict=True):
            shards[silo] = np.concatenate([shards[silo], part])
    return shards


def _deal_by_shares(
    by_class: Indices, sizes: Indices, log_shares: NDArray[np.float64], generator: Generator
) -> list[Indices]:
    """Return each silo's rows, equally many to within one, of class shares ~ exp(``log_shares``), shape (silos, C)."""
    silos = len(log_shares)
    ends = np.cumsum(sizes)
    next_image = ends - sizes
    shards: list[Indices] = [np.empty(0, dtype=np.int64)] * silos
    for position, silo in enumerate(generator.permutation(silos)):
        quota = len(by_class) // silos + (position < len(by_class) % silos)
        counts = _apportion(quota, log_shares[silo], ends - next_image)
        shards[silo] = np.concatenate(
            [by_class[start : start + count] for start, count in zip(next_image, counts, strict=True)]
        )
        next_image = next_image + counts
    return shards


def _deal_by_majors(
    by_class: Indices, sizes: Indices, silos: int, districts: int | None, share: float, generator: Generator
) -> list[Indices]:
    """Return each silo's rows, ``share`` of them of its major class or, with ``districts``, its district's classes."""
    groups = min(len(sizes), districts or len(sizes))
    group_of_class, places = np.arange(len(sizes)) % groups, np.arange(silos)
    have = np.bincount(group_of_class, sizes, groups).astype(np.int64)
    order = generator.permutation(silos)
    even, whole = len(by_class) // silos, np.empty(silos, dtype=np.int64)
    whole[order] = even + (places < len(by_class) % silos)
    quotas = [whole, *(np.full(silos, fewer) for fewer in range(even, -1, -1))]
    ways = [places % (districts or groups) % groups]
    if districts is None:
        ways.append(_choose_majors(sizes, silos))
    share = share if groups > 1 else 1.0
    quota, way, own = next(
        (quota, way, own)
        for quota in quotas
        for way in ways
        if (own := _count_own(have, quota, way, share)) is not None
    )
    left, counts = sizes.copy(), np.zeros((silos, len(sizes)), dtype=np.int64)

    def take(silo: int, count: int, open_classes: NDArray[np.bool_]) -> None:
        """Move ``count`` images of the open classes from ``left`` to a silo's ``counts``, in proportion to ``left``."""
        taken = _apportion(count, np.log(np.maximum(left, 1)), left * open_classes)
        counts[silo] += taken
        left[:] -= taken

    for silo in order:
        take(silo, own[silo], group_of_class == way[silo])
    rest = quota - own
    wanted = np.bincount(way, rest, groups).astype(np.int64)  # by silos of each group, from all other groups
    for silo in order:
        of_group = np.bincount(group_of_class, left, groups).astype(np.int64)
        spare = of_group.sum() - of_group - wanted
        for group in np.flatnonzero((spare < rest[silo]) & (np.arange(groups) != way[silo])):
            take(silo, int(rest[silo] - spare[group]), group_of_class == group)  # the group's own silos cannot take it
        wanted[way[silo]] -= rest[silo]
        take(silo, int(quota[silo] - counts[silo].sum()), group_of_class != way[silo])
    ends = np.cumsum(counts, axis=0) + np.cumsum(sizes) - sizes
    return [
        np.concatenate([by_class[end - count : end] for end, count in zip(*rows, strict=True)])
        for rows in zip(ends, counts, strict=True)
    ]


def _choose_majors(sizes: Indices, silos: int) -> Indices:
    """Return each silo's major class, (silos,); the silos of a class are in proportion to its images (D'Hondt)."""
    classes, places = len(sizes), np.arange(silos)
    most = np.argsort(-sizes / (places[:, None] + 1), axis=None, kind="stable")[:silos] % classes
    due = np.bincount(most, minlength=classes)
    cyclic = places % classes
    kept = places // classes < due[cyclic]
    cyclic[~kept] = np.repeat(np.arange(classes), due - np.bincount(cyclic[kept], minlength=classes))
    return cyclic


def _count_own(have: Indices, quotas: Indices, group_of_silo: Indices, share: float) -> Indices | None:
    """Return how many images of its own group each silo gets, (silos,); None if ``have`` does not fill ``quotas``."""
    # have: images of each group; quotas: all images of each silo, its own group's and others'
    silos = np.bincount(group_of_silo, minlength=len(have))
    of_group = np.bincount(group_of_silo, quotas, len(have))
    least = math.floor(share * quotas.min() + 1e-9)
    total = np.minimum(np.clip(np.rint(share * of_group), silos * least, silos * (least + 1)), have).astype(np.int64)
    own = np.full(len(quotas), least)
    for group, more in enumerate(total - silos * least):
        members = np.flatnonzero(group_of_silo == group)
        own[members[np.argsort(-quotas[members], kind="stable")][: max(more, 0)]] += 1
    left, wanted = have - total, np.bincount(group_of_silo, quotas - own, len(have))
    suffices = (total >= silos * least).all() and (wanted <= left.sum() - left).all()
    return own if suffices else None


def log_dirichlet(concentration: NDArray[np.float64], count: int, generator: Generator) -> NDArray[np.float64]:
    """Draw Dirichlet shares as logarithms up to a constant, shape (count, C); finite for any concentration > 0.

    With small concentrations all shares but one underflow. Gamma(a) variates drawn as Gamma(a + 1) U^(1/a) (Marsaglia
    and Tsang 2000) still have a logarithm, and so an order.
    """
    bounded = np.clip(concentration, 1e-100, 1e100)  # beyond, the logarithms overflow
    shape = (count, len(bounded))
    uniform = generator.uniform(np.finfo(np.float64).tiny, 1.0, size=shape)
    return np.asarray(np.log(generator.standard_gamma(bounded + 1.0, size=shape)) + np.log(uniform) / bounded)


def _apportion(quota: int, log_shares: NDArray[np.float64], room: Indices) -> Indices:
    """Return whole numbers of sum ``quota`` (at most that of ``room``) by the shares, none above its ``room``, (C,)."""
    counts: Indices = np.zeros_like(room)
    is_open = room > 0
    while quota > 0:
        scaled = np.where(is_open, log_shares, -np.inf)
        shares = np.exp(scaled - scaled.max())
        target = quota * shares / shares.sum()
        filled = is_open & (target >= room)
        if not filled.any():
            whole: Indices = np.floor(target).astype(np.int64)
            remainder = np.where(is_open, target - whole, -1.0)
            whole[np.argsort(-remainder, kind="stable")[: quota - int(whole.sum())]] += 1  # the largest remainders
            return counts + whole
        counts[filled] = room[filled]
        quota -= int(room[filled].sum())
        is_open &= ~filled
    return counts


def partition_steering(
    frames: SteeringSet, *, silos: int, settings: DataSettings, generator: Generator
) -> list[Indices]:
    """Return each silo's rows of the training frames, in random order; every frame is in exactly one silo.

    - ``iid``: frames at random, equally many to within one.
    - ``drive``: with at least as many silos as drives, each silo has random frames of one drive; otherwise every drive
      is in one silo as a whole. Sizes are as even as this allows.
    - ``block``: as ``drive``, with blocks instead of drives; silos that divide a block have consecutive frames of it.
    - ``sign``: as ``drive``, with three groups of frames: angles below -STRAIGHT, above STRAIGHT, and between.
    - ``vehicle``: see ``partition_by_vehicle``.

    InputError if a silo would get fewer frames than ``min_images`` (or none), or the partition needs classes.
    """
    kind, count = settings.partition, len(frames.train_angles)
    if kind == "vehicle":
        return partition_by_vehicle(frames.train_silos, silos=silos, settings=settings, generator=generator)
    _require_kind(kind, OF_ANGLES, WITH_ANGLES, WITH_CLASSES)
    if kind == "iid":
        shards = _deal(generator.permutation(count), silos)
    else:
        angles = frames.train_angles.numpy()
        signs = np.where(np.abs(angles) <= STRAIGHT, 0, np.sign(angles)).astype(np.int64)
        units = {"drive": frames.train_drives.numpy(), "block": frames.train_blocks.numpy(), "sign": signs}
        shards = _deal_by_unit(units[kind], silos, generator, in_order=kind == "block")
    _require_least(shards, settings)
    return [generator.permutation(shard) for shard in shards]


def _deal_by_unit(units: Indices, silos: int, generator: Generator, *, in_order: bool) -> list[Indices]:
    """Return each silo's rows, of few units, given each frame's unit, (N,); ``in_order``: consecutive in a unit."""
    members = [np.flatnonzero(units == unit) for unit in np.unique(units)]
    members = [members[unit] for unit in generator.permutation(len(members))]
    shards: list[Indices] = [np.empty(0, dtype=np.int64)] * silos
    if silos < len(members):  # whole units, the largest first, each to the smallest silo
        for unit in sorted(members, key=len, reverse=True):
            silo = min(range(silos), key=lambda silo: len(shards[silo]))
            shards[silo] = np.concatenate([shards[silo], unit])
        return shards
    parts: list[list[int]] = [[unit] for unit in range(len(members))]
    for silo in range(len(members), silos):  # one more silo for the unit with the largest silos
        largest = max(range(len(members)), key=lambda unit: len(members[unit]) / len(parts[unit]))
        parts[largest].append(silo)
    for unit, part in zip(members, parts, strict=True):
        images = unit if in_order else generator.permutation(unit)
        for silo, piece in zip(part, np.array_split(images, len(part)), strict=True):
            shards[silo] = piece
    return shards
