"""Archives of imgs and ground_truths: every form they come in, and every fault in a line."""

import numpy as np
import pytest
import torch

from learners.data import load_steering
from learners.data.image_files import convert_images
from vnetsim.errors import InputError
from vnetsim.experiment import DataSettings
from vnetsim.random_streams import Streams

LEVELS = np.arange(40, dtype=np.uint8) * 6
GREY = np.broadcast_to(LEVELS[:, None, None], (40, 8, 8))
ANGLES = (np.arange(40) - 20) / 20


def load(root, seed=0, **settings):
    data = DataSettings(name="steering-npz", root=str(root), **{"image_px": 8, **settings})
    return load_steering(data, streams=Streams(seed=seed))


def write(path, imgs=GREY, ground_truths=ANGLES, **others):
    np.savez(path, imgs=imgs, ground_truths=ground_truths, **others)
    return path


def levels(images):
    assert (images == images[:, :, :1, :1]).all()
    return images[:, 0, 0, 0]


@pytest.mark.parametrize(
    "imgs",
    [
        GREY,
        GREY[..., None],
        GREY[:, None],
        np.repeat(GREY[..., None], 3, axis=3),
        np.repeat(GREY[:, None], 3, axis=1),
        GREY.astype(np.float32),
        GREY.astype(np.float64) / 255,
        GREY.astype(np.int64),
    ],
    ids=["NHW", "NHW1", "N1HW", "NHW3", "N3HW", "0..255", "0..1", "int64"],
)
@pytest.mark.parametrize(
    "angles", [ANGLES, ANGLES[:, None], np.stack([ANGLES, ANGLES * 0 + 9], axis=1).astype(np.float32)]
)
def test_every_form_gives_the_same_frames(tmp_path, imgs, angles):
    frames = load(write(tmp_path / "one.npz", imgs, angles))
    assert frames.name == "steering-npz"
    for images, of in ((frames.train, frames.train_angles), (frames.test, frames.test_angles)):
        assert images.dtype == torch.uint8
        assert images.shape[1:] == (1, 8, 8)
        assert of.dtype == torch.float32
        assert of.tolist() == pytest.approx([(level / 6 - 20) / 20 for level in levels(images).tolist()])
    assert sorted(levels(torch.cat([frames.train, frames.test])).tolist()) == LEVELS.tolist()
    assert len(frames.test) == 8


def test_colour_becomes_luma_and_images_are_resized(tmp_path):
    red = np.zeros((40, 3, 8, 4), dtype=np.uint8)
    red[:, 0] = 255
    frames = load(write(tmp_path / "one.npz", red), image_px=0)
    assert frames.train.shape[1:] == (1, 64, 64)
    assert (frames.train == 76).all()


@pytest.mark.parametrize(("highest", "level"), [(1.0, 255), (1.5, 2), (255.0, 255), (1, 1), (255, 255)])
def test_floating_point_is_shares_of_white_where_nothing_exceeds_1(highest, level):
    assert convert_images(np.full((1, 1, 1), highest), grey=True, side_px=1, where="imgs").item() == level


def test_each_archive_of_a_folder_is_a_drive_in_order_of_the_names(tmp_path):
    write(tmp_path / "b.npz", GREY + np.uint8(1))
    write(tmp_path / "a.npz")
    (tmp_path / "notes.txt").write_text("not an archive")
    frames = load(tmp_path)
    assert frames.train_drives.tolist() == (levels(frames.train) % 6).tolist()
    assert set(frames.train_drives.tolist()) == {0, 1}
    assert len(frames.train) < 80 - len(frames.test)  # gap frames
    for block in frames.train_blocks.unique():
        assert len(frames.train_drives[frames.train_blocks == block].unique()) == 1


def test_test_blocks_follow_the_seed_and_counts_keep_the_first(tmp_path):
    path = write(tmp_path / "one.npz")
    assert torch.equal(load(path).test, load(path).test)
    assert any(not torch.equal(load(path).test, load(path, seed=seed).test) for seed in range(1, 4))
    assert torch.equal(load(path, train_images=5).train, load(path).train[:5])
    for key, count in (("train_images", len(load(path).train)), ("test_images", 8)):
        message = rf"^data\.{key}: {count + 1} images asked for, 'steering-npz' has {count}; 0 takes all\.$"
        with pytest.raises(InputError, match=message):
            load(path, **{key: count + 1})


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"imgs": GREY[0]}, r"imgs: shape \(8, 8\) is not that of images"),
        ({"imgs": GREY[:, None].repeat(2, axis=1)}, r"imgs: shape \(40, 2, 8, 8\) is not that of images"),
        ({"imgs": GREY[:0]}, r"imgs: shape \(0, 8, 8\) is not that of images"),
        ({"imgs": GREY.astype(np.int64) + 22}, r"imgs: pixels from 22 to 256 are not in 0\.\.255"),
        ({"imgs": GREY - 0.5}, r"imgs: pixels from -0\.5 to"),
        ({"imgs": np.full((40, 8, 8), np.nan)}, r"imgs: pixels from nan to nan"),
        ({"imgs": np.full((40, 8, 8), "x")}, r"imgs: pixels of type <U1 are not numbers"),
        ({"ground_truths": ANGLES[:-1]}, r"ground_truths: 39 angles for 40 images in imgs"),
        ({"ground_truths": ANGLES * 1.5}, r" 13 of 40 angles are not in \[-1, 1\], the first is -1\.5 at 0"),
        ({"ground_truths": np.where(ANGLES == 0, np.nan, ANGLES)}, r"1 of 40 angles .* the first is nan at 20"),
        ({"ground_truths": np.full(40, "left")}, r"ground_truths: <U4 of shape \(40,\) are not angles"),
        ({"ground_truths": np.zeros((40, 0))}, r"ground_truths: float64 of shape \(40, 0\) are not angles"),
        ({"imgs": GREY[:1], "ground_truths": ANGLES[:1]}, "1 frames are too few"),
        ({"imgs": np.array([{}] * 40, dtype=object)}, r"one\.npz' holds Python objects; plain arrays are needed"),
    ],
)
def test_faults(tmp_path, arrays, message):
    path = write(tmp_path / "one.npz", **arrays)
    with pytest.raises(InputError, match=message) as caught:
        load(path)
    assert "\n" not in str(caught.value)


def test_files_that_are_no_archives(tmp_path):
    with pytest.raises(InputError, match=r"there is no \.npz archive in"):
        load(tmp_path)
    (tmp_path / "one.npz").write_bytes(b"no archive")
    with pytest.raises(InputError, match=r"one\.npz' is no \.npz archive that can be read"):
        load(tmp_path)
    np.save(tmp_path / "bare.npy", GREY)
    with pytest.raises(InputError, match="holds one bare array"):
        load(tmp_path / "bare.npy")
    whole = write(tmp_path / "one.npz").read_bytes()
    (tmp_path / "one.npz").write_bytes(whole[:500] + bytes(100) + whole[600:])
    with pytest.raises(InputError, match=r"one\.npz' is damaged"):
        load(tmp_path / "one.npz")
