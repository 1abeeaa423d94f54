"""CIFAR-10 through torchvision: a small stand-in folder, every fault, and the real files where they are at hand."""

import hashlib
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision.datasets import CIFAR10

from learners.data import load_images
from vnetsim.errors import InputError
from vnetsim.experiment import DataSettings
from vnetsim.random_streams import Streams


def load(root, **settings):
    return load_images(DataSettings(name="cifar10", root=str(root), **settings), streams=Streams(seed=0))


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A folder in CIFAR-10's layout: two training batches of six images and a test batch of four."""
    folder = tmp_path / CIFAR10.base_folder
    folder.mkdir()
    random = np.random.default_rng(0)

    def write(name, content):
        data = pickle.dumps(content)
        (folder / name).write_bytes(data)
        return [name, hashlib.md5(data, usedforsecurity=False).hexdigest()]

    def batch(name, count):
        pixels = random.integers(0, 256, size=(count, 3072), dtype=np.uint8)
        return write(name, {"data": pixels, "labels": random.integers(10, size=count).tolist()})

    monkeypatch.setattr(CIFAR10, "train_list", [batch("data_batch_1", 6), batch("data_batch_2", 6)])
    monkeypatch.setattr(CIFAR10, "test_list", [batch("test_batch", 4)])
    names, md5 = write("batches.meta", {"label_names": [f"class {number}" for number in range(10)]})
    monkeypatch.setattr(CIFAR10, "meta", {"filename": names, "key": "label_names", "md5": md5})
    return tmp_path


def stored(root, name):
    return pickle.loads((root / CIFAR10.base_folder / name).read_bytes())


def test_images_and_labels_are_those_of_the_files(root):
    images = load(root)
    batches = [stored(root, name) for name in ("data_batch_1", "data_batch_2")]
    assert np.array_equal(images.train.flatten(1), np.concatenate([batch["data"] for batch in batches]))
    assert images.train_labels.tolist() == batches[0]["labels"] + batches[1]["labels"]
    assert np.array_equal(images.test.flatten(1), stored(root, "test_batch")["data"])
    assert images.test_labels.tolist() == stored(root, "test_batch")["labels"]
    assert images.class_names[9] == "class 9"
    assert images.train.shape == (12, 3, 32, 32)
    assert images.train.dtype == torch.uint8
    assert images.train_labels.dtype == torch.int64


def test_files_missing(tmp_path):
    with pytest.raises(InputError, match=r"does not hold CIFAR10 .*--data-download"):
        load(tmp_path)


@pytest.mark.parametrize("name", ["data_batch_2", "test_batch", "batches.meta"])
def test_a_damaged_file_is_refused_in_one_line(root, name):
    path = root / CIFAR10.base_folder / name
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(InputError, match="does not hold CIFAR10 as torchvision stores it") as caught:
        load(root)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_cifar10_is_never_unpickled(root):
    class Bomb:
        def __reduce__(self):
            return (Path.touch, (root / "executed",))

    (root / CIFAR10.base_folder / "data_batch_1").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(InputError, match="does not hold CIFAR10 as torchvision stores it"):
        load(root)
    assert not (root / "executed").exists()
