"""A pipe or a device in the place of a file is refused before it is opened: nobody knows when it ends.

A command that waits for a pipe fails its test by the limit that all tests have.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from learners.data.driving_log import read_log
from learners.data.image_files import read_archive, read_images
from vnetsim.errors import InputError

Refused = Callable[..., str]


def pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path


def refusal(path: Path) -> str:
    return f"{path}: unreadable: not a file but a pipe; name a file."


@pytest.mark.parametrize(
    "name",
    ["a.toml", "a.xml", "a.xml.gz", "a.sumocfg", "a.csv", "a.csv.gz", "a.parquet", "a"],
)
def test_a_scenario(name: str, refused: Refused, tmp_path: Path) -> None:
    path = pipe(tmp_path / name)
    assert refusal(path) in refused("mobility", path, "--rsu", "0,0")


def test_data(tmp_path: Path) -> None:
    path = pipe(tmp_path / "pipe.npz")
    for read in (
        lambda: read_archive(path, ["images"]),
        lambda: read_images([path], grey=True, side_px=8),
        lambda: read_log(path),
    ):
        with pytest.raises(InputError) as caught:
            read()
        assert str(caught.value) == refusal(path)
