"""Archives of images with classes, in MedMNIST's layout and the plain one, and every fault in a line."""

import numpy as np
import pytest
import torch

from learners.data import load_images
from vnetsim.errors import InputError
from vnetsim.experiment import DataSettings
from vnetsim.random_streams import Streams

IMAGES = np.broadcast_to(np.arange(60, dtype=np.uint8)[:, None, None], (60, 8, 8))
LABELS = np.repeat([0, 1, 2], [30, 20, 10])


def load(root, seed=0, **settings):
    data = DataSettings(name="npz", root=str(root), **{"image_px": 8, **settings})
    return load_images(data, streams=Streams(seed=seed))


@pytest.fixture
def archive(tmp_path):
    def write(**arrays):
        np.savez(tmp_path / "set.npz", **arrays)
        return tmp_path / "set.npz"

    return write


def plain(**arrays):
    return {"images": IMAGES, "labels": LABELS, **arrays}


def med(**arrays):
    parts = {"train_images": IMAGES[:40], "train_labels": LABELS[:40, None].astype(np.uint8)}
    parts |= {"val_images": IMAGES[:1], "val_labels": LABELS[:1, None]}
    return parts | {"test_images": IMAGES[40:], "test_labels": LABELS[40:, None].astype(np.uint8), **arrays}


def which(images):
    return images[:, 0, 0, 0].tolist()


def test_plain_layout_holds_out_a_share_of_every_class(archive):
    images = load(archive(**plain()))
    assert images.name == "npz"
    assert images.train.shape == (48, 3, 8, 8)
    assert images.train.dtype == torch.uint8
    assert images.train_labels.dtype == torch.int64
    assert torch.bincount(images.train_labels).tolist() == [24, 16, 8]
    assert torch.bincount(images.test_labels).tolist() == [6, 4, 2]
    assert sorted(which(images.train) + which(images.test)) == list(range(60))
    for part, labels in ((images.train, images.train_labels), (images.test, images.test_labels)):
        assert labels.tolist() == LABELS[which(part)].tolist()
        assert (part == part[:, :1, :1, :1]).all()
    assert images.class_names == ("0", "1", "2")


def test_medmnist_layout_keeps_its_test_set_and_order(archive):
    images = load(archive(**med()))
    assert which(images.train) == list(range(40))
    assert which(images.test) == list(range(40, 60))
    assert images.train_labels.tolist() == LABELS[:40].tolist()
    assert images.test_labels.tolist() == LABELS[40:].tolist()
    assert images.class_names == ("0", "1", "2")
    assert which(load(archive(**med()), train_images=35).train) == list(range(35))
    assert load(archive(**med()), image_px=0).train.shape[2:] == (32, 32)


def test_classes_are_as_many_as_there_are(archive):
    many = load(archive(images=IMAGES.repeat(3, axis=0), labels=np.arange(90).repeat(2)))
    assert many.class_names == tuple(map(str, range(90)))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (plain(labels=LABELS[:-1]), "labels: 59 labels for 60 images in images"),
        (plain(images=np.uint8(0), labels=LABELS[:1]), "labels: 1 labels for 0 images in images"),
        (plain(labels=LABELS - 1), "labels: label -1 at 0 is no class; they count from 0"),
        (plain(labels=LABELS.astype(float)), r"labels: float64 of shape \(60,\) are not whole numbers"),
        (plain(labels=np.stack([LABELS, LABELS], 1)), r"labels: int64 of shape \(60, 2\) are not whole numbers, \(N"),
        (plain(labels=np.where(LABELS == 2, 60, LABELS)), "label 60 is out of range: 60 images cannot be of so many"),
        (plain(labels=LABELS + 60), "label 62 is out of range: 60 images cannot be of so many classes"),
        (plain(classes=np.array(["a", "b"])), "label 2 at 50 is out of range for 2 classes: a, b"),
        (plain(labels=LABELS * 0), r"48 training images of '.*' are of one class, 0; .* at least two classes"),
        (plain(images=IMAGES[:1], labels=LABELS[:1]), "no class has two"),
        (plain(images=IMAGES[:0], labels=LABELS[:0]), "no class has two"),
        (plain(images=IMAGES[0]), r"shape \(8, 8\)|60 labels for 8 images"),
        (plain(labels=np.arange(60)), "no class has two"),
        (med(train_labels=LABELS[:39]), "train_labels: 39 labels for 40 images in train_images"),
        (med(test_images=IMAGES[:0], test_labels=LABELS[:0]), r"test_images: shape \(0, 8, 8\) is not that of images"),
        (med(train_labels=LABELS[:40] * 0), "40 training images of .* are of one class, 0"),
    ],
)
def test_faults(archive, arrays, message):
    with pytest.raises(InputError, match=message) as caught:
        load(archive(**arrays))
    assert "\n" not in str(caught.value)


def test_missing_arrays_list_those_there_are(archive):
    with pytest.raises(InputError, match=r"set\.npz' lacks images, labels; it has x, y\."):
        load(archive(x=IMAGES, y=LABELS))
    arrays = med()
    del arrays["test_labels"]
    with pytest.raises(InputError, match=r"lacks test_labels; it has train_images, train_labels, val_images"):
        load(archive(**arrays))


def test_pickled_objects_are_refused_and_never_run(archive, tmp_path):
    class Bomb:
        def __reduce__(self):
            return (type(tmp_path).touch, (tmp_path / "executed",))

    path = archive(**plain(images=np.array([Bomb()] * 60, dtype=object)))
    with pytest.raises(InputError, match=r"set\.npz' holds Python objects"):
        load(path)
    assert not (tmp_path / "executed").exists()
