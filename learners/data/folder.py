"""Folders of images, one per class: ``root/CLASS/*``, or ``root/train/CLASS/*`` and ``root/test/CLASS/*``.

Classes have the names of their folders, in alphabetical order. Files without an image suffix, and names that begin with
a dot, are skipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from learners.data.image_files import SUFFIXES, join_first, read_images, require_root
from learners.data.sets import ImageSet, classed_set
from learners.data.splits import TEST_SHARE, Indices, split_by_class, take_first
from vnetsim.errors import InputError
from vnetsim.experiment import DataSettings
from vnetsim.random_streams import Streams

SIDE_PX = 32


@dataclass(frozen=True, kw_only=True)
class ClassFolders:
    """One folder of images per class."""

    name, targets, needs = "folder", "classes", ("data.root", "data.image_px")
    source = "files of one's own"

    def load(self, data: DataSettings, streams: Streams) -> ImageSet:
        """Return the images of ``data.root``, in random order; InputError for missing images or fewer than two classes.

        Without folders ``train`` and ``test``, a fifth of every class is for tests (``split_by_class``).
        """
        root = require_root(data.root, self.name, "a folder with one folder of images per class", folder=True)
        generator = streams.generator("folder", "test images")
        if (root / "train").is_dir() and (root / "test").is_dir():
            names = _list_class_folders(root / "train")
            unknown = sorted(set(_list_class_folders(root / "test")) - set(names))
            if unknown:
                raise InputError(f"data.root: '{root / 'test'}' has classes that 'train' lacks: {join_first(unknown)}.")
            train_files, train_labels = _list_images(root / "train", names)
            test_files, test_labels = _list_images(root / "test", names)
            files, labels = train_files + test_files, np.concatenate([train_labels, test_labels])
            train = generator.permutation(len(train_files))
            test = len(train_files) + generator.permutation(len(test_files))
        else:
            names = _list_class_folders(root)
            files, labels = _list_images(root, names)
            train, test = split_by_class(labels, TEST_SHARE, generator)

        train, test = take_first(train, test, data)
        used = np.sort(np.concatenate([train, test]))
        images = read_images([files[index] for index in used], grey=False, side_px=data.image_px or SIDE_PX)
        return classed_set(
            self.name,
            data.root,
            train=(images[np.searchsorted(used, train)], labels[train]),
            test=(images[np.searchsorted(used, test)], labels[test]),
            class_names=tuple(names),
            train_names=tuple(files[index].relative_to(root).as_posix() for index in train),
            test_names=tuple(files[index].relative_to(root).as_posix() for index in test),
        )


def _list_class_folders(folder: Path) -> list[str]:
    """Return the names of the folders in ``folder``, in alphabetical order, without those that begin with a dot."""
    return sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def _list_images(folder: Path, names: list[str]) -> tuple[list[Path], Indices]:
    """Return images in the folders ``names`` and each one's folder index; skip missing, InputError for empty ones."""
    files: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(names):
        if not (folder / name).is_dir():
            continue
        visible = (path for path in (folder / name).iterdir() if not path.name.startswith("."))
        members = sorted(path for path in visible if path.suffix.lower() in SUFFIXES)
        if not members:
            raise InputError(
                f"data.root: '{folder / name}' holds no images ({', '.join(SUFFIXES)}); remove or fill it."
            )
        files += members
        labels += [label] * len(members)
    return files, np.array(labels, dtype=np.int64)
