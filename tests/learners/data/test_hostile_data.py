"""Data that were made to harm: headers that declare too much, arrays without content, logs that name other files."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from learners.data.driving_log import find_image
from learners.data.image_files import read_archive
from learners.data.npz import load as load_npz
from learners.data.steering_npz import load as load_steering
from vnetsim.errors import InputError
from vnetsim.experiment import DataSettings
from vnetsim.random_streams import Streams


def member(
    array: np.ndarray[Any, Any], shape: tuple[int, ...] | None = None, version: tuple[int, int] = (1, 0)
) -> bytes:
    buffer = io.BytesIO()
    header = np.lib.format.header_data_from_array_1_0(array)
    header["shape"] = array.shape if shape is None else shape
    if version == (1, 0):
        np.lib.format.write_array_header_1_0(buffer, header)
    else:
        np.lib.format.write_array_header_2_0(buffer, header)
    return buffer.getvalue() + array.tobytes()


def archive(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return path


IMAGES = np.zeros((4, 8, 8, 3), dtype=np.uint8)
LABELS = np.array([0, 1, 0, 1])


@pytest.mark.parametrize("version", [(1, 0), (2, 0)])
@pytest.mark.parametrize("images", [2_000_000, 2**50])
def test_a_header_that_declares_more_than_there_is_takes_no_memory(
    images: int, version: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = archive(tmp_path / "a.npz", images=member(IMAGES, (images, 8, 8, 3), version), labels=member(LABELS))
    monkeypatch.setattr("numpy.lib.npyio.NpzFile.__getitem__", lambda *_: pytest.fail("it was read"))
    with pytest.raises(InputError, match=r"a\.npz': images declares \(\d+, 8, 8, 3\) of uint8, .* holds at most 768;"):
        load_npz(DataSettings(name="npz", root=str(path)), streams=Streams(seed=0))


def test_a_directory_of_the_archive_that_lies_about_its_sizes(tmp_path: Path) -> None:
    content = bytearray(archive(tmp_path / "a.npz", x=member(np.arange(9.0))).read_bytes())
    at = content.index(b"PK\x01\x02") + 24
    content[at : at + 4] = (2**31).to_bytes(4, "little")
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(InputError, match="damaged"):
        read_archive(tmp_path / "a.npz", ["x"])


def test_too_much_for_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise MemoryError

    path = archive(tmp_path / "a.npz", x=member(np.arange(9.0)))
    monkeypatch.setattr("numpy.lib.npyio.NpzFile.__getitem__", full)
    with pytest.raises(InputError, match="holds more than there is memory for"):
        read_archive(path, ["x"])


def test_an_empty_array_of_angles(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.npz", imgs=member(IMAGES), ground_truths=member(np.zeros(0)))
    with pytest.raises(InputError, match=r"ground_truths: 0 angles for 4 images in imgs"):
        load_steering(DataSettings(name="steering-npz", root=str(path)), streams=Streams(seed=0))


def test_labels_beyond_all_classes(tmp_path: Path) -> None:
    labels = np.array([0, 1, 2**63 + 1, 1], dtype=np.uint64)
    path = archive(tmp_path / "a.npz", images=member(IMAGES), labels=member(labels))
    with pytest.raises(InputError, match=r"label 9223372036854775809 at 2 is no class"):
        load_npz(DataSettings(name="npz", root=str(path)), streams=Streams(seed=0))


def test_a_log_opens_nothing_outside_its_folder(tmp_path: Path) -> None:
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
