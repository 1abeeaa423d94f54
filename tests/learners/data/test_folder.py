"""One folder of images per class, with and without a test set of its own, and every fault in a line."""

import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import ExifTags, Image

from learners.data import load_images
from vnetsim.errors import InputError
from vnetsim.experiment import DataSettings
from vnetsim.random_streams import Streams

CLASSES = {"cat": 10, "ant": 20, "bee": 5}


def load(root, seed=0, **settings):
    data = DataSettings(name="folder", root=str(root), **{"image_px": 8, **settings})
    return load_images(data, streams=Streams(seed=seed))


def fill(root, classes=CLASSES, *, first=0, ending="png"):
    """Images whose colour is (number, 100 + number, 255 - number), counted on through the classes by name."""
    number = first
    for name in sorted(classes):
        (root / name).mkdir(parents=True)
        for _ in range(classes[name]):
            image = Image.new("RGB", (10, 12), (number, 100 + number, 255 - number))
            image.save(root / name / f"{number:03d}.{ending}")
            number += 1
    return root


def which(images):
    numbers = images[:, 0, 0, 0].int()
    assert torch.equal(images[:, 1, 0, 0].int(), 100 + numbers)
    return numbers.tolist()


def label_of(number):
    return int(number >= 20) + int(number >= 25)


def test_classes_by_name_and_a_share_of_each_held_out(tmp_path):
    fill(tmp_path)
    (tmp_path / ".cache").mkdir()
    for name in ("notes.txt", "ant/notes.txt", "ant/.hidden.png"):
        (tmp_path / name).touch()
    images = load(tmp_path)
    assert images.name == "folder"
    assert images.class_names == ("ant", "bee", "cat")
    assert images.train.shape == (28, 3, 8, 8)
    assert images.train.dtype == torch.uint8
    assert torch.bincount(images.test_labels).tolist() == [4, 1, 2]
    assert sorted(which(images.train) + which(images.test)) == list(range(35))
    for part, labels in ((images.train, images.train_labels), (images.test, images.test_labels)):
        assert labels.dtype == torch.int64
        assert labels.tolist() == [label_of(number) for number in which(part)]
    assert load(tmp_path, image_px=0).train.shape[2:] == (32, 32)


def test_folders_train_and_test_are_kept_apart(tmp_path):
    fill(tmp_path / "train")
    fill(tmp_path / "test", {"cat": 2, "ant": 3}, first=50)
    images = load(tmp_path)
    assert sorted(which(images.train)) == list(range(35))
    labels = dict(zip(which(images.test), images.test_labels.tolist(), strict=True))
    assert labels == {50: 0, 51: 0, 52: 0, 53: 2, 54: 2}


def test_the_first_images_are_of_all_classes_and_order_follows_the_seed(tmp_path):
    fill(tmp_path / "train")
    fill(tmp_path / "test", first=50)
    for root in (tmp_path, tmp_path / "train"):
        every, few = load(root), load(root, train_images=15, test_images=2)
        assert len(few.train_labels.unique()) == 3
        assert torch.equal(few.train, every.train[:15])
        assert torch.equal(load(root).train, every.train)
        assert not torch.equal(load(root, seed=1).train, every.train)
        with pytest.raises(InputError, match=r"data\.train_images: 99 images asked for, 'folder' has \d+; 0 takes all"):
            load(root, train_images=99)


def png_16(pixels):
    """A PNG with 16 bits a colour, which Pillow does not write."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 16, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        chunk(kind, data) for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    )


def test_pixels_of_more_than_8_bits_are_refused(tmp_path):
    """12 bits, usual in cars, would else arrive as 0 to 15."""
    fill(tmp_path, {"a": 4, "b": 4}, ending="tiff")
    place = tmp_path / "a" / "000.tiff"
    twelve_bits = np.full((4, 4, 3), 4095, dtype=np.uint16)
    for data in (png_16(twelve_bits), b"P6\n4 4\n65535\n" + twelve_bits.astype(">u2").tobytes()):
        place.write_bytes(data)
        with pytest.raises(InputError, match=r"000\.tiff' has pixels of more than 8 bits"):
            load(tmp_path)
    for kind in (np.float32, np.uint16):
        Image.fromarray(np.full((4, 4), 1, dtype=kind)).save(place)
        with pytest.raises(InputError, match=r"000\.tiff' has pixels of more than 8 bits"):
            load(tmp_path)


def test_images_are_turned_upright(tmp_path):
    fill(tmp_path, {"a": 4, "b": 4}, ending="jpg")
    pixels = np.zeros((16, 16), dtype=np.uint8)
    pixels[:, 8:] = 200  # the right half is light: turned a quarter clockwise, the lower half
    for path in tmp_path.glob("*/*"):
        image = Image.fromarray(pixels)
        exif = image.getexif()
        exif[ExifTags.Base.Orientation] = 6
        image.save(path, exif=exif)
    images = load(tmp_path)
    assert images.train[:, :, :3].max() < 30
    assert images.train[:, :, 5:].min() > 170


def test_unreadable_images_are_counted_and_named(tmp_path):
    fill(tmp_path)
    broken = [tmp_path / "ant" / f"{number:03d}.png" for number in range(5)]
    for path in broken:
        path.write_bytes(path.read_bytes()[:45])
    broken[0].write_bytes(b"no image")
    with pytest.raises(InputError, match=r"data\.root: 5 of 35 images cannot be read: .*; replace them") as caught:
        load(tmp_path)
    assert f": {str([*map(str, broken)])[1:-1]}; replace" in str(caught.value)
    assert "\n" not in str(caught.value)
    for path in (tmp_path / "ant").iterdir():
        path.write_bytes(b"")
    with pytest.raises(InputError, match=r"20 of 35 images cannot be read: .* and 15 more; replace") as caught:
        load(tmp_path)
    assert str(caught.value).count(".png") == 5


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ({"cat": 4}, r"3 training images of '.*' are of one class, cat; learning needs at least two classes"),
        ({"cat": 1}, "none of 1 images can be held out for the test"),
        ({}, "none of 0 images can be held out"),
        ({"cat": 4, "dog": 0}, r"'.*dog' holds no images"),
        ({"cat": 1, "dog": 1}, "no class has two"),
    ],
)
def test_too_few_classes_or_images(tmp_path, classes, message):
    with pytest.raises(InputError, match=message):
        load(fill(tmp_path, classes))


def test_a_class_may_be_called_train(tmp_path):
    images = load(fill(tmp_path, {"stop": 2, "train": 2}))
    assert images.class_names == ("stop", "train")
    assert sorted(images.test_labels.tolist()) == [0, 1], "of two images one is held out"


def test_faults_of_folders_train_and_test(tmp_path):
    fill(tmp_path / "train")
    (tmp_path / "test").mkdir()
    with pytest.raises(InputError, match="has no test images"):
        load(tmp_path)
    fill(tmp_path / "test", {"dog": 1, "ant": 1}, first=50)
    with pytest.raises(InputError, match=r"test' has classes that 'train' lacks: dog\."):
        load(tmp_path)
