"""CIFAR-10 and GTSRB as torchvision stores them, and GTSRB as Kaggle does.

CIFAR-10 (Krizhevsky 2009) has 50,000 training and 10,000 test images, 32 x 32, of ten classes. GTSRB (Stallkamp et al.
2012) has photographs of German traffic signs, 43 classes. Training images are ``Training/CCCCC/TTTTT_FFFFF.ppm`` below
``gtsrb/GTSRB``: class, track, frame. A track is one physical sign, photographed by an approaching car; of test images,
in ``Final_Test/Images`` with their classes in ``gtsrb/GT-final_test.csv``, it is not known. Kaggle has the same images
as ``Train/C/CCCCC_TTTTT_FFFFF.png`` and ``Test/NNNNN.png``, with their classes in ``Train.csv`` and ``Test.csv``.
"""

# ruff: noqa: SLF001 - torchvision has no other name for the files of a set

from __future__ import annotations

import csv
import hashlib
import pickle
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from learners.data.image_files import lfs_cure, read_images, require_root
from learners.data.sets import ImageSet, Part, classed_set
from learners.data.splits import Indices, renumber, take_first
from vnetsim.errors import InputError, RunError, one_line
from vnetsim.experiment import DataSettings
from vnetsim.random_streams import Streams

SIDE_PX = 32
CLASSES = 43
_TRAINING_FILE = re.compile(r"(\d{5})/(\d{5})_\d{5}\.ppm")
_KAGGLE_NAMES = {"Train": re.compile(r"Train/\d+/(\d{5})_(\d{5})_\d{5}\.png"), "Test": re.compile(r"Test/\d{5}\.png")}


@dataclass(frozen=True, kw_only=True)
class Cifar10:
    """Photographs of ten classes, 32 x 32, colour; read by torchvision, and downloaded by it if asked to."""

    name, targets, needs = "cifar10", "classes", ("data.root", "data.download")
    source = "Krizhevsky (2009): Learning multiple layers of features from tiny images"

    def load(self, data: DataSettings, streams: Streams) -> ImageSet:  # noqa: ARG002 - recorded images need no draws
        """Return CIFAR-10 read from ``data.root``; errors as ``open_torchvision_set``.

        ``data.train_images`` and ``data.test_images`` above 0 keep the first in file order, whose classes are mixed.
        """
        train, test = (open_torchvision_set("CIFAR10", data, train=is_train) for is_train in (True, False))
        kept, tested = take_first(np.arange(len(train)), np.arange(len(test)), data)
        kept_images, tested_images, names = _take_rows(train, kept), _take_rows(test, tested), tuple(train.classes)
        return classed_set(self.name, data.root, train=kept_images, test=tested_images, class_names=names)


def _take_rows(dataset: Any, rows: Indices) -> Part:
    """Return images, (N, 3, 32, 32), and classes, (N,), of some rows of torchvision's CIFAR-10."""
    images = np.ascontiguousarray(dataset.data[rows].transpose(0, 3, 1, 2))
    return images, np.array(dataset.targets, dtype=np.int64)[rows]


@dataclass(frozen=True, kw_only=True)
class Gtsrb:
    """Photographs of German traffic signs, 43 classes; all images of a physical sign are in one silo."""

    name, targets, needs = "gtsrb", "classes", ("data.root", "data.download", "data.image_px")
    source = (
        "Stallkamp, Schlipsing, Salmen, Igel (2012): Man vs. computer: Benchmarking machine learning algorithms for "
        "traffic sign recognition, Neural Networks 32"
    )

    def load(self, data: DataSettings, streams: Streams) -> ImageSet:
        """Return GTSRB read from ``data.root``, in random order, resized to 32 x 32 or ``data.image_px``.

        The layout is Kaggle's if there is a ``Train.csv``, otherwise torchvision's. If an image of a sign is also among
        the test images, byte for byte, all frames of that sign are removed from the training images. Errors as
        ``open_torchvision_set``, and InputError if an image is not named as in GTSRB.
        """
        folder = Path(data.root)
        if data.root and (folder / "Train.csv").is_file():
            files, labels, signs = _read_kaggle_table(folder, "Train")
            test_files, test_labels, _ = _read_kaggle_table(folder, "Test")
        else:
            folder /= "gtsrb"
            files, labels, signs = _check_training_files(open_torchvision_set("GTSRB", data, split="train")._samples)
            test_files, test_labels = _check_test_files(open_torchvision_set("GTSRB", data, split="test")._samples)
        tested = np.isin(signs, signs[_rows_of_copies(files, test_files)])
        generator = streams.generator("gtsrb", "order")
        train = generator.permutation(np.flatnonzero(~tested))
        test = generator.permutation(len(test_files))
        train, test = take_first(train, test, data)
        chosen = [*(files[row] for row in train), *(test_files[row] for row in test)]
        images = read_images(chosen, grey=False, side_px=data.image_px or SIDE_PX)
        names = [path.relative_to(folder).as_posix() for path in chosen]
        left_out = f"signs among the test images: {len(set(signs[tested]))}, of {tested.sum()} training images"
        return classed_set(
            self.name,
            data.root,
            train=(images[: len(train)], labels[train]),
            test=(images[len(train) :], test_labels[test]),
            class_names=tuple(map(str, range(CLASSES))),
            train_groups=renumber(signs[train]),
            train_names=tuple(names[: len(train)]),
            test_names=tuple(names[len(train) :]),
            facts={"Left out": left_out} if tested.any() else {},
        )


def _check_training_files(samples: Sequence[tuple[str, int]]) -> tuple[list[Path], Indices, Indices]:
    """Return the files, their classes and the numbers of the signs on them; InputError for a name not GTSRB's."""
    # torchvision numbers the folders, which must agree with GTSRB's class numbers of the test images
    files, signs = [Path(file) for file, _ in samples], []
    for path, (_, label) in zip(files, samples, strict=True):
        named = _TRAINING_FILE.fullmatch(f"{path.parent.name}/{path.name}")
        if named is None or int(named[1]) != label:
            raise InputError(
                f"data.root: '{path}' is not named as in GTSRB, CLASS/TRACK_FRAME.ppm with five digits each and all "
                "classes from 0; take it away, or fetch GTSRB again."
            )
        signs.append(int(named[1] + named[2]))
    return files, np.array([label for _, label in samples]), np.array(signs)


def _check_test_files(samples: Sequence[tuple[str, int]]) -> tuple[list[Path], Indices]:
    """Return the files, in their order, and their classes; InputError for names or classes that are not GTSRB's."""
    for file, label in samples:
        if Path(file).parent.name != "Images" or not 0 <= label < CLASSES:
            raise InputError(
                f"data.root: GT-final_test.csv has '{Path(file).name:.40}' with the class {label}, expected the name "
                f"of an image in Final_Test/Images and a class below {CLASSES}; fetch GTSRB again."
            )
    return [Path(file) for file, _ in samples], np.array([label for _, label in samples], dtype=np.int64)


def _read_kaggle_table(root: Path, split: str) -> tuple[list[Path], Indices, Indices]:
    """Return files, classes and signs (0 in Test) of ``split``.csv, Train or Test; InputError if it is not Kaggle's."""
    table, columns = root / f"{split}.csv", ("ClassId", "Path")
    files, labels, signs = [], [], []
    try:
        with table.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            if not {*columns} <= {*(reader.fieldnames or ())}:
                raise InputError(f"{table}: it lacks {' or '.join(columns)}; {lfs_cure(table) or 'fetch it again'}.")
            for row in reader:
                label, path = (str(row[name]).strip() for name in columns)
                named = _KAGGLE_NAMES[split].fullmatch(path)
                known = label.isdecimal() and int(label) < CLASSES
                if named is None or not known or (split == "Train" and int(named[1]) != int(label)):
                    raise InputError(
                        f"{table}:{reader.line_num}: the image '{path:.80}' with the class '{label:.20}' is not named "
                        "as Kaggle does, Train/CLASS/CLASS_TRACK_FRAME.png or Test/NUMBER.png; fetch it again."
                    )
                files.append(root / path)
                labels.append(int(label))
                signs.append(int("".join(named.groups()) or 0))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{table}: cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    return files, np.array(labels, dtype=np.int64), np.array(signs, dtype=np.int64)


def _rows_of_copies(files: Iterable[Path], others: Iterable[Path]) -> Indices:
    """Return the rows of ``files`` with the same bytes as one of ``others``, ascending; missing files are skipped."""

    def digest(path: Path) -> bytes:
        return hashlib.sha256(path.read_bytes()).digest() if path.is_file() else b""

    known = {digest(path) for path in others} - {b""}
    return np.array([row for row, path in enumerate(files) if digest(path) in known], dtype=np.int64)


def open_torchvision_set(kind: str, data: DataSettings, **options: Any) -> Any:
    """Return an instance of torchvision's class ``kind`` on ``data.root``; ``data.download`` fetches the files first.

    InputError if the root is not given or missing, or its files are missing or damaged; RunError if the download fails.
    """
    what = "the folder of its files, into which --data-download fetches them"
    root = require_root(data.root, data.name, what, folder=True)
    from torchvision import datasets  # noqa: PLC0415 - takes seconds

    try:
        return getattr(datasets, kind)(root=str(root), download=data.download, **options)
    # torchvision verifies MD5 sums before it unpickles anything, so a foreign file is never executed
    except (RuntimeError, OSError, EOFError, KeyError, TypeError, ValueError, pickle.UnpicklingError) as error:
        reason = one_line(error)
        if data.download:
            raise RunError(f"data.download: {kind} could not be fetched into '{root}': {reason}.") from error
        cure = next(filter(None, map(lfs_cure, root.rglob("*"))), "fetch it with --data-download")
        raise InputError(
            f"data.root: '{root}' does not hold {kind} as torchvision stores it ({reason}); {cure}."
        ) from error
