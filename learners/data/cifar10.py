"""CIFAR-10 (Krizhevsky 2009) as torchvision stores it: 50,000 training and 10,000 test images, 32 x 32, ten classes."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch

from learners.data.sets import ImageSet, channel_statistics
from vnetsim.errors import InputError, RunError
from vnetsim.errors.paths import refuse_special
from vnetsim.experiment import DataSettings
from vnetsim.random_streams import Streams


def load(data: DataSettings, *, streams: Streams) -> ImageSet:  # noqa: ARG001 - recorded images need no random draws
    """Return CIFAR-10 read from ``data.root``.

    ``data.train_images`` and ``data.test_images`` above 0 keep the first so many images in file order, whose classes
    are mixed; 0 keeps all. The normalisation constants are those of the training images kept.

    Raises:
        InputError: when the root is not given or missing, or its files are missing or damaged.
        RunError: when the download fails.
    """
    if not data.root:
        raise InputError("data.root: cifar10 needs the folder of its files: --data-root DIR [--data-download].")
    root = Path(data.root)
    if not root.is_dir():
        raise InputError(
            f"data.root: '{data.root}' is not a folder; create it or name another with --data-root DIR"
            " (--data-download then fetches CIFAR-10 into it)."
        )
    for path in sorted(root.glob("*/*")):
        refuse_special(path)
    train = _read(root, train=True, download=data.download)
    test = _read(root, train=False, download=False)
    train_images, train_labels = _tensors(train, data.train_images, "data.train_images")
    test_images, test_labels = _tensors(test, data.test_images, "data.test_images")
    mean, std = channel_statistics(train_images)
    return ImageSet(
        name="cifar10",
        train=train_images,
        train_labels=train_labels,
        test=test_images,
        test_labels=test_labels,
        class_names=tuple(train.classes),
        mean=mean,
        std=std,
    )


def _read(root: Path, *, train: bool, download: bool) -> Any:
    """Return torchvision's data set object, its faults turned into one line."""
    from torchvision.datasets import CIFAR10  # noqa: PLC0415 - takes seconds; checks of the root come first

    try:
        return CIFAR10(root=str(root), train=train, download=download)
    except (RuntimeError, OSError, EOFError, KeyError, ValueError, pickle.UnpicklingError) as error:
        # torchvision verifies every file's MD5 before it unpickles any, so a foreign file is never executed.
        reason = " ".join(str(error).split())
        if download:
            raise RunError(f"data.download: CIFAR-10 could not be fetched into '{root}': {reason}.") from error
        folder = root / CIFAR10.base_folder
        fault = "holds damaged or incomplete files" if folder.is_dir() else "is missing"
        raise InputError(f"data.root: '{folder}' {fault}; fetch CIFAR-10 again with --data-download.") from error


def _tensors(dataset: Any, count: int, key: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the first ``count`` (0: all) images as uint8 (N, 3, H, W) and their labels as int64 (N,)."""
    if count > len(dataset):
        raise InputError(f"{key}: {count} images asked for, CIFAR-10 has {len(dataset)}; 0 takes all.")
    kept = count or len(dataset)
    images = torch.from_numpy(dataset.data[:kept]).permute(0, 3, 1, 2).contiguous()
    return images, torch.tensor(dataset.targets[:kept], dtype=torch.int64)
