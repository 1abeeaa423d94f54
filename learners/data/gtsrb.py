"""GTSRB (Stallkamp et al. 2012) as torchvision stores it: photographs of German traffic signs, 43 classes.

``gtsrb/GTSRB/Training/CCCCC/TTTTT_FFFFF.ppm`` are the training images: class, track, frame. A track is one physical
sign, photographed by a car that drives towards it. ``gtsrb/GTSRB/Final_Test/Images`` holds the test images, and
``gtsrb/GT-final_test.csv`` their classes; of which track they are is not told.
"""

from __future__ import annotations

import csv
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from learners.data.image_files import existing_folder, read_images
from learners.data.sets import ImageSet, classed_set
from learners.data.splits import Indices, first, renumbered
from vnetsim.errors import InputError, RunError
from vnetsim.experiment import DataSettings
from vnetsim.random_streams import Streams

SIDE_PX = 32
CLASSES = 43
FETCH = "fetch GTSRB with --data-download"
_TRAINING_FILE = re.compile(r"(\d{5})/(\d{5})_\d{5}\.ppm")


@dataclass(frozen=True, kw_only=True)
class Gtsrb:
    """Photographs of German traffic signs, 43 classes; a silo has all images of a physical sign, or none."""

    name: ClassVar[str] = "gtsrb"
    source: ClassVar[str] = (
        "Stallkamp, Schlipsing, Salmen, Igel (2012): Man vs. computer: Benchmarking machine learning algorithms for "
        "traffic sign recognition, Neural Networks 32"
    )
    targets: ClassVar[str] = "classes"

    def load(self, data: DataSettings, streams: Streams) -> ImageSet:
        """Return GTSRB read from ``data.root``, in random order, brought to 32 x 32 or ``data.image_px``.

        A sign of which an image is among the test images too, byte for byte, is left out of the training images with
        all of its frames. The test images are those of the benchmark.

        Raises:
            InputError: the root is not given or missing, or its files are missing or damaged.
            RunError: the download fails.
        """
        what = "the folder of its files, into which --data-download fetches them"
        given = existing_folder(data.root, self.name, what)
        if data.download:
            _fetch(given)
        root = given / "gtsrb"
        files, labels, signs = _training(root)
        test_files, test_labels = _test(root)
        tested = np.isin(signs, signs[_among(files, test_files)])
        generator = streams.generator("gtsrb", "order")
        train = generator.permutation(np.flatnonzero(~tested))
        test = generator.permutation(len(test_files))
        train = first(train, data.train_images, key="data.train_images", name=self.name)
        test = first(test, data.test_images, key="data.test_images", name=self.name)
        chosen = [*(files[row] for row in train), *(test_files[row] for row in test)]
        images = read_images(chosen, grey=False, side_px=data.image_px or SIDE_PX)
        names = [path.relative_to(root).as_posix() for path in chosen]
        left_out = f"signs among the test images: {len(set(signs[tested]))}, of {tested.sum()} training images"
        return classed_set(
            self.name,
            data.root,
            train=(images[: len(train)], labels[train]),
            test=(images[len(train) :], test_labels[test]),
            class_names=tuple(map(str, range(CLASSES))),
            train_groups=renumbered(signs[train]),
            train_names=tuple(names[: len(train)]),
            test_names=tuple(names[len(train) :]),
            facts={"Left out": left_out} if tested.any() else {},
        )


def _fetch(root: Path) -> None:
    from torchvision.datasets import GTSRB  # noqa: PLC0415 - takes seconds

    try:
        for split in ("train", "test"):
            GTSRB(root=str(root), split=split, download=True)  # checks the archives' MD5
    except (RuntimeError, OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise RunError(f"data.download: GTSRB could not be fetched into '{root}': {reason}.") from error


def _training(root: Path) -> tuple[list[Path], Indices, Indices]:
    """Return the training images' files in the order of their names, their classes, and which sign each one shows."""
    folder = root / "GTSRB" / "Training"
    if not folder.is_dir():
        raise InputError(f"data.root: '{folder}' is missing; {FETCH}.")
    files, labels, signs = [], [], []
    for path in sorted(folder.glob("*/*.ppm")):
        named = _TRAINING_FILE.fullmatch(path.relative_to(folder).as_posix())
        if named is None or int(named[1]) >= CLASSES:
            raise InputError(
                f"data.root: '{path}' is not named as in GTSRB, CLASS/TRACK_FRAME.ppm with a class below {CLASSES} and "
                "five digits each; take it away."
            )
        files.append(path)
        labels.append(int(named[1]))
        signs.append(int(named[1] + named[2]))
    if not files:
        raise InputError(f"data.root: '{folder}' holds no images; {FETCH}.")
    return files, np.array(labels), np.array(signs)


def _test(root: Path) -> tuple[list[Path], Indices]:
    """Return the test images' files in the order of their list, and their classes."""
    table, folder = root / "GT-final_test.csv", root / "GTSRB" / "Final_Test" / "Images"
    files, labels = [], []
    try:
        with table.open(newline="", encoding="utf-8") as lines:
            rows = csv.DictReader(lines, delimiter=";", skipinitialspace=True)
            for row in rows:
                name, label = row.get("Filename") or "", row.get("ClassId") or ""
                if not re.fullmatch(r"[\w-]+\.ppm", name) or not label.isdecimal() or int(label) >= CLASSES:
                    raise InputError(
                        f"{table}:{rows.line_num}: expected an image's name as Filename and its class below {CLASSES} "
                        f"as ClassId, got '{name:.40}' and '{label:.40}'."
                    )
                files.append(folder / name)
                labels.append(int(label))
    except (OSError, ValueError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"data.root: '{table}' cannot be read: {reason}; {FETCH}.") from error
    return files, np.array(labels, dtype=np.int64)


def _among(files: Iterable[Path], others: Iterable[Path]) -> Indices:
    """Return which of some files have the same bytes as one of the others; files that are missing are passed over."""

    def content(path: Path) -> bytes:
        return hashlib.sha256(path.read_bytes()).digest() if path.is_file() else b""

    known = {content(path) for path in others} - {b""}
    return np.array([row for row, path in enumerate(files) if content(path) in known], dtype=np.int64)
