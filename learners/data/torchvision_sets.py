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
_OF_KAGGLE = {"Train": re.compile(r"Train/\d+/(\d{5})_(\d{5})_\d{5}\.png"), "Test": re.compile(r"Test/\d{5}\.png")}


@dataclass(frozen=True, kw_only=True)
class Cifar10:
    """Photographs of ten classes, 32 x 32, colour; read by torchvision, and downloaded by it if asked to."""

    name, targets, needs = "cifar10", "classes", ("data.root", "data.download")
    source = "Krizhevsky (2009): Learning multiple layers of features from tiny images"

    def load(self, data: DataSettings, streams: Streams) -> ImageSet:  # noqa: ARG002 - recorded images need no draws
        """Return CIFAR-10 read from ``data.root``; errors as ``of_torchvision``.

        ``data.train_images`` and ``data.test_images`` above 0 keep the first in file order, whose classes are mixed.
        """
        train, test = of_torchvision("CIFAR10", data, train=True), of_torchvision("CIFAR10", data, train=False)
        kept, tested = take_first(np.arange(len(train)), np.arange(len(test)), data)
        return classed_set(
            self.name, data.root, train=_part(train, kept), test=_part(test, tested), class_names=tuple(train.classes)
        )


def _part(dataset: Any, kept: Indices) -> Part:
    """Return the images of the rows ``kept``, shape (N, 3, 32, 32), and their labels, shape (N,)."""
    images = np.ascontiguousarray(dataset.data[kept].transpose(0, 3, 1, 2))
    return images, np.array(dataset.targets, dtype=np.int64)[kept]


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
        ``of_torchvision``, and InputError if an image is not named as in GTSRB.
        """
        folder = Path(data.root)
        if data.root and (folder / "Train.csv").is_file():
            files, labels, signs = _of_kaggle(folder, "Train")
            test_files, test_labels, _ = _of_kaggle(folder, "Test")
        else:
            folder /= "gtsrb"
            files, labels, signs = _training(of_torchvision("GTSRB", data, split="train")._samples)
            test_files, test_labels = _test(of_torchvision("GTSRB", data, split="test")._samples)
        tested = np.isin(signs, signs[_among(files, test_files)])
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


def _training(samples: Sequence[tuple[str, int]]) -> tuple[list[Path], Indices, Indices]:
    """Return training files, their classes and the signs on them; InputError for a name that is not GTSRB's."""
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


def _test(samples: Sequence[tuple[str, int]]) -> tuple[list[Path], Indices]:
    """Return test files in the order of their list, and their classes; InputError for other names or classes."""
    for file, label in samples:
        if Path(file).parent.name != "Images" or not 0 <= label < CLASSES:
            raise InputError(
                f"data.root: GT-final_test.csv has '{Path(file).name:.40}' with the class {label}, expected the name "
                f"of an image in Final_Test/Images and a class below {CLASSES}; fetch GTSRB again."
            )
    return [Path(file) for file, _ in samples], np.array([label for _, label in samples], dtype=np.int64)


def _of_kaggle(root: Path, split: str) -> tuple[list[Path], Indices, Indices]:
    """Return files in a split's CSV, their classes and signs (0 for test images); InputError if it is not Kaggle's."""
    table, columns = root / f"{split}.csv", ("ClassId", "Path")
    files, labels, signs = [], [], []
    try:
        with table.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            if not {*columns} <= {*(reader.fieldnames or ())}:
                raise InputError(f"{table}: it lacks {' or '.join(columns)}; {lfs_cure(table) or 'fetch it again'}.")
            for row in reader:
                label, path = (str(row[name]).strip() for name in columns)
                named = _OF_KAGGLE[split].fullmatch(path)
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


def _among(files: Iterable[Path], others: Iterable[Path]) -> Indices:
    """Return the rows of ``files`` with the same bytes as one of ``others``; missing files are skipped."""

    def content(path: Path) -> bytes:
        """Return a digest of the file's bytes; empty if there is no file."""
        return hashlib.sha256(path.read_bytes()).digest() if path.is_file() else b""

    known = {content(path) for path in others} - {b""}
    return np.array([row for row, path in enumerate(files) if content(path) in known], dtype=np.int64)


def of_torchvision(kind: str, data: DataSettings, **options: Any) -> Any:
    """Return torchvision's set ``kind``, made with ``options``, below ``data.root``; ``data.download`` fetches it.

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
