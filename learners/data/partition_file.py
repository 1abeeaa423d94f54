"""The partition of images over silos as a file: written by a run, read by ``data.partition``.

A CSV of five columns: ``split``, ``train`` or ``test``; ``image``, its file below the data's folder, or its number in
the set from 0; ``label`` and ``class``, number and name of its class; ``silo``, empty if no silo has it. The order of
lines is the order of a silo's images.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from learners.data.image_files import lfs_cure
from learners.data.partition import partition, partition_by_vehicle
from learners.data.sets import ImageSet
from learners.data.splits import Indices
from vnetsim.errors import InputError
from vnetsim.errors.paths import is_partition_file
from vnetsim.experiment import DataSettings

COLUMNS = ("split", "image", "label", "class", "silo")


def partition_csv(data: ImageSet, indices: Sequence[Indices]) -> bytes:
    """Return the CSV file of ``indices``, each silo's rows: silos, training images in no silo, test images."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    train_names = data.train_names or range(len(data.train_labels))
    test_names = data.test_names or range(len(data.test_labels))
    nobody = np.setdiff1d(np.arange(len(data.train_labels)), np.concatenate([*indices, []]))
    for silo, rows in [*enumerate(indices), ("", nobody)]:
        for row in rows:
            label = int(data.train_labels[row])
            writer.writerow(("train", train_names[row], label, data.class_names[label], silo))
    for row, label in enumerate(data.test_labels.tolist()):
        writer.writerow(("test", test_names[row], label, data.class_names[label], ""))
    return file.getvalue().encode("utf-8", "replace")


def divide_among_silos(data: ImageSet, *, settings: DataSettings, silos: int, **how: Any) -> list[Indices]:
    """Return each silo's rows of the training images, as ``settings.partition`` says.

    They come from a file, from what vehicles saw, or from ``partition`` with the further arguments ``how``. InputError
    if the images are too few, or the file does not fit them.
    """
    if is_partition_file(settings.partition):
        return read_partition(Path(settings.partition), data, silos=silos, min_images=settings.min_images)
    if settings.partition == "vehicle":
        return partition_by_vehicle(data.train_silos, silos=silos, settings=settings, generator=how["generator"])
    groups = None if data.train_groups is None else data.train_groups.numpy()
    return partition(data.train_labels.numpy(), silos=silos, settings=settings, groups=groups, **how)


def read_partition(path: Path, data: ImageSet, *, silos: int, min_images: int) -> list[Indices]:
    """Return each silo's rows of the training images, in the file's order.

    Training images that are not in the file, or without a silo there, are in no silo. The column label may be empty,
    otherwise it must be the image's; the column class is not read. InputError if a line does not fit the images, or a
    silo has fewer than ``min_images``, or none.
    """
    names = data.train_names or [str(row) for row in range(len(data.train_labels))]
    rows = {name: row for row, name in enumerate(names)}
    labels = dict(zip(names, data.train_labels.tolist(), strict=True))
    numbers, seen = {str(number): number for number in range(silos)}, dict[str, int]()
    shards: list[list[int]] = [[] for _ in range(silos)]
    for line, (split, image, label, _, silo) in _read_rows(path):
        if split == "test" and not silo:
            continue
        fault = _find_fault(split, image, label, labels)
        if silo and silo not in numbers:
            fault = fault or f"silo is '{silo:.40}', expected 0 to {silos - 1} (silos.count is {silos})."
        if image in seen:
            fault = f"image '{image}' is already in line {seen[image]}."
        if fault:
            raise InputError(f"{path}:{line}: {fault}")
        seen[image] = line
        if silo:
            shards[numbers[silo]].append(rows[image])
    needed = max(min_images, 1)
    for number, shard in enumerate(shards):
        if len(shard) < needed:
            raise InputError(
                f"{path}: silo {number} has {len(shard)} training images and needs {needed}; silos.count is {silos}."
            )
    return [np.array(shard, dtype=np.int64) for shard in shards]


def _find_fault(split: str, image: str, label: str, labels: Mapping[str, int]) -> str:
    """Return what is wrong with a row, "" for nothing, given ``labels`` by image; not for test rows without silo."""
    if split == "test":
        return "a test image is held by a silo; leave its silo empty."
    if split != "train":
        return f"split is '{split:.40}', expected train or test."
    if image not in labels:
        return (
            f"'{image:.100}' is none of the {len(labels)} training images of this run, such as '{next(iter(labels))}'."
        )
    if label not in ("", str(labels[image])):
        return f"label is '{label:.40}', but the image '{image}' of this run has {labels[image]}: it is another set."
    return ""


def _read_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and five values of each row below the header; InputError if the file is not such a table."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            header = next(reader, [])
            if tuple(header) != COLUMNS:
                cure = lfs_cure(path)
                got = f"'{','.join(header):.80}'{'; ' * bool(cure)}{cure}"
                raise InputError(f"{path}:1: expected the columns {','.join(COLUMNS)}, got {got}.")
            for row in reader:
                if len(row) != len(COLUMNS):
                    raise InputError(f"{path}:{reader.line_num}: expected {len(COLUMNS)} values, got {len(row)}.")
                yield reader.line_num, row
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}.") from error
