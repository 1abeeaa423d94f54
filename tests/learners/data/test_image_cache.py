"""Drawn images on disk: the same to the bit, whatever happens to the files."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from learners.data import image_cache, load_images, signs
from learners.data.image_cache import load_or_draw
from learners.data.signs import Signs
from vnetsim.experiment import DataSettings
from vnetsim.random_streams import Streams

SHAPE = (6, 3, 4, 4)
IMAGES = np.arange(6 * 48, dtype=np.uint16).astype(np.uint8).reshape(SHAPE)


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(image_cache, "LEAST_IMAGES", 5)
    return tmp_path / "vnetsim" / "images"


def never() -> np.ndarray:
    raise AssertionError("drawn again")


def get(draw: Callable[[], np.ndarray] = IMAGES.copy, *key: object, code: str = __file__) -> np.ndarray:
    found = load_or_draw(draw, SHAPE, *key, code=[code])
    np.testing.assert_array_equal(found, IMAGES, strict=True)
    return found


def test_signs_are_the_same_drawn_and_read(folder, monkeypatch):
    def load(seed: int, scatter: float = 1.0) -> list[torch.Tensor]:
        data = DataSettings(train_images=40, test_images=20)
        found = load_images(data, streams=Streams(seed=seed), settings=Signs(scatter=scatter))
        return [found.train, found.train_labels, found.test, found.test_labels, torch.tensor(found.mean + found.std)]

    drawn, others = load(0), [load(1), load(0, 0.5)]
    assert len(list(folder.iterdir())) == 6
    monkeypatch.setattr(signs, "_draw_images", never)
    for one, again in zip([drawn, *others], [load(0), load(1), load(0, 0.5)], strict=True):
        assert all(map(torch.equal, one, again))
    images, labels = drawn[:2]
    monkeypatch.undo()
    plain, classes = Signs()._draw_part(40, Streams(seed=0).generator("signs", "train"))
    assert np.array_equal(images, plain)
    assert np.array_equal(labels, classes)
    assert not any(torch.equal(images, other[0]) for other in others)


def test_other_keys_and_other_code_are_drawn_anew_and_few_images_are_not_stored(folder, tmp_path):
    code = tmp_path / "draws.py"
    code.write_text("1")
    get(IMAGES.copy, "key", code=str(code))
    get(never, "key", code=str(code)).fill(0)  # the caller's own
    get(never, "key", code=str(code))
    for changes in ("other key", "other code"):
        code.write_text(changes)
        with pytest.raises(AssertionError, match="drawn again"):
            get(never, "other key" if changes == "other key" else "key", code=str(code))
    get(IMAGES.copy, code=str(tmp_path / "not there.py"))
    assert load_or_draw(lambda: IMAGES[:4], (4, 3, 4, 4), code=[]) is not None
    assert len(list(folder.iterdir())) == 1


@pytest.mark.parametrize("damage", ["cut", "longer", "altered", "renamed", "empty", "folder", "unreadable"])
def test_a_broken_file_is_drawn_anew(damage, folder):
    get()
    (file,) = folder.iterdir()
    content = bytearray(file.read_bytes())
    if damage == "renamed":
        get(IMAGES.copy, "other")
        (other,) = set(folder.iterdir()) - {file}
        file.write_bytes(other.read_bytes())
    elif damage == "folder":
        file.unlink()
        file.mkdir()
    elif damage == "unreadable":
        file.unlink()
        file.symlink_to(file)
    else:
        content[40] ^= damage == "altered"
        file.write_bytes(
            {"cut": bytes(content[:-1]), "longer": bytes(content) + b"1", "empty": b""}.get(damage, content)
        )
    with pytest.raises(AssertionError, match="drawn again"):
        get(never)
    get()
    if damage != "folder":
        get(never)


def test_without_a_folder_that_can_be_written_images_are_drawn(folder, monkeypatch):
    folder.parent.write_text("a file where the folder should be")
    get()
    get()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    get()


def test_a_write_that_fails_leaves_nothing(folder, monkeypatch):
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    get()
    assert not list(folder.iterdir())


def test_several_writers_at_a_time(folder):
    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(lambda _: get(), range(64)):
            np.testing.assert_array_equal(found, IMAGES)
    assert len(list(folder.iterdir())) == 1
    get(never)


@pytest.mark.usefixtures("folder")
def test_the_files_not_used_for_longest_are_removed(monkeypatch):
    times, utime = iter(range(1, 100)), os.utime
    monkeypatch.setattr(os, "utime", lambda path: utime(path, (now := next(times), now)))
    monkeypatch.setattr(image_cache, "LIMIT_BYTES", 3 * (IMAGES.size + 32))
    for key in range(3):
        get(IMAGES.copy, key)
        get(never, key)
    get(never, 0)
    get(IMAGES.copy, 3)
    for key in (0, 2, 3):
        get(never, key)
    with pytest.raises(AssertionError, match="drawn again"):
        get(never, 1)
