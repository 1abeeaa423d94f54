"""A pipe or a device in the place of a file is refused before it is opened: nobody knows when it ends.

A command that waits for a pipe fails its test by the limit that all tests have.
"""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from received import MANIFEST

from learners.data.driving_log import read_log
from learners.data.image_files import read_archive, read_images
from vnetsim.errors import InputError
from vnetsim.storage.run_directory import RunDirectory

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


@pytest.mark.parametrize("name", ["a.xml", "a.toml", "a.csv"])
def test_a_link_to_a_device(name: str, refused: Refused, tmp_path: Path) -> None:
    path = tmp_path / name
    path.symlink_to("/dev/null")
    assert ": unreadable: not a file but a device; " in refused("mobility", path, "--rsu", "0,0")


def test_a_study(refused: Refused, tmp_path: Path) -> None:
    path = pipe(tmp_path / "study.toml")
    assert refusal(path) in refused("compare", path)


def test_what_goes_with_a_recording(refused: Refused, tmp_path: Path) -> None:
    recording, path = tmp_path / "fcd.xml", pipe(tmp_path / "pipe.xml")
    recording.write_text('<fcd-export><timestep time="0"/></fcd-export>')
    assert refusal(path) in refused("mobility", recording, "--rsu", path)
    assert refusal(path) in refused("mobility", recording, "--rsu", "A", "--set", f"traffic.net={path}")


def test_code(refused: Refused, tmp_path: Path) -> None:
    path = pipe(tmp_path / "own.py")
    assert refusal(path) in refused("run", "gaussian", "--learner", f"{path}:Own")


def test_the_scenario_of_a_received_folder(refused: Refused, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.write_json("manifest.json", {**MANIFEST, "kind": "run", "status": "interrupted"})
    run.put({"experiment.toml": b'scenario = "pipe"\n'})
    assert refusal(pipe(tmp_path / "pipe")) in refused("resume", tmp_path)


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


def test_a_link_to_a_file_is_as_good_as_the_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "whole.npz", images=np.ones(2))
    (tmp_path / "link.npz").symlink_to("whole.npz")
    assert list(read_archive(tmp_path / "link.npz", ["images"])) == ["images"]
