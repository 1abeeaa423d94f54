"""Data that were made to harm: headers that declare too much, arrays without content, logs that name other files."""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from learners.data import load_images, load_steering
from learners.data.driving_log import find_image
from learners.data.npz import Npz
from learners.data.partition_file import read_partition
from vnetsim.errors import InputError
from vnetsim.experiment import DataSettings
from vnetsim.random_streams import Streams


def member(array: np.ndarray[Any, Any], shape: tuple[int, ...] | None = None) -> bytes:
    buffer = io.BytesIO()
    header = np.lib.format.header_data_from_array_1_0(array)
    header["shape"] = array.shape if shape is None else shape
    np.lib.format.write_array_header_1_0(buffer, header)
    return buffer.getvalue() + array.tobytes()


def archive(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return path


IMAGES = np.zeros((4, 8, 8, 3), dtype=np.uint8)
LABELS = np.array([0, 1, 0, 1])


@pytest.mark.parametrize(("images", "fault"), [(2_000_000, "is damaged"), (2**50, "more than there is memory for")])
def test_a_header_that_declares_more_than_there_is(images, fault, tmp_path):
    path = archive(tmp_path / "a.npz", images=member(IMAGES, (images, 8, 8, 3)), labels=member(LABELS))
    with pytest.raises(InputError, match=rf"a\.npz' .*{fault}"):
        Npz().load(DataSettings(name="npz", root=str(path)), Streams(seed=0))


def test_labels_beyond_all_classes(tmp_path):
    labels = np.array([0, 1, 2**63 + 1, 1], dtype=np.uint64)
    path = archive(tmp_path / "a.npz", images=member(IMAGES), labels=member(labels))
    with pytest.raises(InputError, match=r"label 9223372036854775809 at 2 is no class"):
        Npz().load(DataSettings(name="npz", root=str(path)), Streams(seed=0))


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("npz", ["a.npz"]),
        ("steering-npz", ["drives/a.npz", "drives/b.npz"]),
        ("driving-log", ["driving_log.csv"]),
        ("folder", [f"pictures/{label}/{number}.png" for label in "ab" for number in range(3)]),
    ],
)
def test_pointers_of_git_lfs_are_named_as_that(name, files, tmp_path):
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 9\n")
    settings, streams = DataSettings(name=name, root=str(tmp_path / files[0].partition("/")[0])), Streams(seed=0)
    load = load_images if name in ("npz", "folder") else load_steering
    with pytest.raises(InputError, match=r"is a pointer of git-lfs: fetch the file itself by `git lfs pull`\.$"):
        load(settings, streams=streams)


def test_a_partition_that_is_a_pointer_of_git_lfs(tmp_path):
    path = tmp_path / "partition.csv"
    path.write_text("version https://git-lfs.github.com/spec/v1\n")
    data = load_images(DataSettings(train_images=20, test_images=4), streams=Streams(seed=0), pictures=False)
    with pytest.raises(InputError, match=r"partition\.csv:1: .*; 'partition\.csv' is a pointer of git-lfs"):
        read_partition(path, data, silos=2, min_images=0)


def test_a_log_opens_nothing_outside_its_folder(tmp_path):
    folder, outside = tmp_path / "drive", tmp_path / "private.png"
    (folder / "IMG").mkdir(parents=True)
    Image.new("L", (8, 8)).save(outside)
    (folder / "IMG" / "link.png").symlink_to(outside)
    (folder / "linked").symlink_to(tmp_path)
    for written in (str(outside), "../private.png", "..\\private.png", "IMG/link.png", "linked/private.png"):
        assert find_image(folder, written) is None
    # what the recording machine called it is found by its bare name
    outside.rename(folder / "IMG" / "private.png")
    assert find_image(folder, str(outside)) == folder / "IMG" / "private.png"
    assert find_image(folder, str(folder / "IMG" / "private.png")) == folder / "IMG" / "private.png"
    (tmp_path / "other name").symlink_to(folder)
    assert find_image(tmp_path / "other name", "IMG/private.png") is not None
