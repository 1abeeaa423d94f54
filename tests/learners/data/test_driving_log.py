"""Logs of the Udacity simulator: paths as people have them, three cameras, drives, blocks, every fault in a line."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from learners.data import load_steering
from learners.data.driving_log import number_drives
from learners.data.splits import gap_length, split_by_time
from vnetsim.errors import InputError
from vnetsim.experiment import DataSettings
from vnetsim.random_streams import Streams

HEADER = "center,left,right,steering,throttle,brake,speed\n"


def load(root, seed=0, **settings):
    return load_steering(DataSettings(name="driving-log", root=str(root), **settings), streams=Streams(seed=seed))


def save(path, level, size=(32, 16)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", size, int(level)).save(path)


def stamp(camera, second, milli=0):
    return f"{camera}_2016_12_01_13_{second // 60:02d}_{second % 60:02d}_{milli:03d}.png"


def record(folder, rows=40, *, path="IMG/{}", header="", cameras=("center", "left", "right"), drives=1):
    """A log whose row r has images of level 6 r (+ 1 left, + 2 right) and the angle (r - 19.5) / 19.5."""
    lines = []
    for row in range(rows):
        second = row + 100 * (row * drives // rows)
        names = [stamp(camera, second) for camera in cameras]
        for camera, name in enumerate(names):
            save(folder / "IMG" / name, 6 * row + camera)
        written = [path.format(name) for name in names] + [""] * (3 - len(names))
        lines.append(",".join([*written, str((row - 19.5) / 19.5), "0.5", "0", "30.1"]) + "\n")
    log = folder / "driving_log.csv"
    log.write_text(header + "".join(lines))
    return log


def rows_of(images):
    """The rows that images of a recorded log are of, and their camera."""
    levels = images.flatten(1)[:, 0].long()
    return (levels // 6).tolist(), (levels % 6).tolist()


@pytest.mark.parametrize("header", ["", HEADER])
def test_frames_and_angles_are_those_of_the_log(tmp_path, header):
    record(tmp_path, header=header, cameras=("center",), drives=2)
    frames = load(tmp_path)
    assert frames.name == "driving-log"
    assert frames.train.shape[1:] == frames.test.shape[1:] == (1, 64, 64)
    assert frames.train.dtype == torch.uint8
    for images, angles in ((frames.train, frames.train_angles), (frames.test, frames.test_angles)):
        rows, cameras = rows_of(images)
        assert set(cameras) == {0}
        assert rows == sorted(rows)
        assert angles.tolist() == pytest.approx([(row - 19.5) / 19.5 for row in rows])
    assert frames.train_drives.tolist() == [row // 20 for row in rows_of(frames.train)[0]]
    rows = rows_of(frames.train)[0] + rows_of(frames.test)[0]
    assert sorted(rows) == list(range(40))  # a log so short has no gap
    assert len(frames.test) == 8
    assert frames.train_angles.dtype == torch.float32


@pytest.mark.parametrize(
    "path",
    [
        "IMG/{}",
        ' "IMG/{}"',
        "{}",
        "./IMG/{}",
        "IMG\\{}",
        "/home/someone/recording/IMG/{}",
        "C:\\Users\\Some One\\Desktop\\IMG\\{}",
        "nowhere/{}",
        '"  IMG/{}"',
    ],
)
def test_images_are_found_wherever_the_log_says_they_were(tmp_path, path):
    record(tmp_path / "moved", path=path)
    rows = rows_of(load(tmp_path / "moved").train)[0]
    assert len(rows) == 32


def test_separators_of_windows_below_the_log_and_a_byte_order_mark(tmp_path):
    log = record(tmp_path, path="{}")
    (tmp_path / "IMG").rename(tmp_path / "images")
    log.write_text("".join(f"images\\{line}\n" for line in log.read_text().splitlines()), encoding="utf-8-sig")
    assert len(load(tmp_path).train) == 32


@pytest.mark.parametrize("separator", [", ", ";"])
def test_decimal_commas(tmp_path, separator):
    log = record(tmp_path)
    angles = load(tmp_path).train_angles
    lines = [line.split(",") for line in log.read_text().splitlines()]
    lines = [[*cells[:3], *(cell.replace(".", ",") for cell in cells[3:])] for cells in lines]
    log.write_text("".join(separator.join(cells) + "\n" for cells in lines))
    assert torch.equal(load(tmp_path).train_angles, angles)
    log.write_text(log.read_text().replace(separator, ","))
    with pytest.raises(InputError, match=r"csv:1: 10 columns instead of 7: .*; write decimal commas as points\."):
        load(tmp_path)


def merged(folder, path):
    """Two recordings whose images have the same names, and one log of both; the second's levels are 1 higher."""
    lines = ""
    for number, name in enumerate(("first", "second")):
        lines += record(folder / name, path=path.format(name), cameras=("center",)).read_text()
        for file in (folder / name / "IMG").iterdir() if number else ():
            save(file, np.asarray(Image.open(file))[0, 0] + 1)
    (folder / "driving_log.csv").write_text(lines)


@pytest.mark.parametrize("path", ["{}/IMG/{{}}", "/home/someone/{}/IMG/{{}}", "C:\\Users\\{}\\IMG\\{{}}"])
def test_recordings_whose_images_share_names_are_kept_apart(tmp_path, path):
    merged(tmp_path, path)
    frames = load(tmp_path)
    rows, recording = rows_of(torch.cat([frames.train, frames.test]))
    assert sorted(zip(recording, rows, strict=True))[:2] == [(0, 0), (0, 1)]
    assert recording.count(1) > 30
    assert len({*zip(recording, rows, strict=True)}) == len(rows)


def test_two_images_that_would_be_one_file_are_refused(tmp_path):
    merged(tmp_path, "/home/someone/{}/IMG/{{}}")
    (tmp_path / "first" / "IMG").rename(tmp_path / "IMG")
    (tmp_path / "second" / "IMG").rename(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=r"csv:\d+: '/home/someone/second/.* and the image '.*/first/.* would both be"):
        load(tmp_path)
    log = tmp_path / "driving_log.csv"
    log.write_text(log.read_text().replace("/second/", "/first/"))
    assert len(load(tmp_path).train) > 32, "a line may stand twice"


def test_drives_by_the_time_in_the_names():
    names = [stamp("center", second) for second in (0, 5, 11, 12, 3, 4)]
    assert number_drives(names).tolist() == [0, 0, 1, 1, 2, 2]  # 6 s later; then a time before
    assert number_drives([stamp("center", 0), stamp("center", 5, 1)]).tolist() == [0, 1]
    assert number_drives([stamp("center", 0), "image7.jpg", stamp("center", 99)]).tolist() == [0, 0, 0]
    assert number_drives(["image7.jpg", "image8.jpg"]).dtype == number_drives(names).dtype == np.int64
    assert number_drives([stamp("center", 0), "center_2016_13_41_25_61_61_000.jpg"]).tolist() == [0, 0]


@pytest.mark.parametrize(("frames", "long", "gap"), [(2, 1, 0), (19, 1, 0), (200, 20, 4), (2550, 50, 10)])
def test_blocks_are_a_tenth_of_all_frames_and_at_most_50_and_gaps_a_fifth_of_them(frames, long, gap):
    train, test, blocks = split_by_time(np.zeros(frames, dtype=np.int64), 0.2, np.random.default_rng(0))
    assert blocks.tolist() == [frame // long for frame in range(frames)]
    assert min(len(train), len(test)) > 0
    assert gap_length(frames) == gap


@given(
    lengths=st.lists(st.integers(1, 700), min_size=1, max_size=6),
    share=st.floats(0.02, 0.98),
    seed=st.integers(0, 2**32),
)
def test_neighbouring_frames_never_fall_on_both_sides(lengths, share, seed):
    drives = np.repeat(np.arange(len(lengths)), lengths)
    if len(drives) < 2:
        return
    train, test, blocks = split_by_time(drives, share, np.random.default_rng(seed))
    assert len(train) > 0
    assert len(test) > 0
    nearest = np.abs(train[:, None] - test[None]) + len(drives) * (drives[train][:, None] != drives[test][None])
    assert nearest.min() > gap_length(len(drives))
    unused = np.setdiff1d(np.arange(len(drives)), np.concatenate([train, test]))
    for frame in unused:
        assert np.abs(test[drives[test] == drives[frame]] - frame).min() <= gap_length(len(drives))
    assert set(blocks[test]).isdisjoint(blocks[train])
    for block in np.unique(blocks):
        members = np.flatnonzero(blocks == block)
        assert len(np.unique(drives[members])) == 1
        assert len(members) == members[-1] - members[0] + 1 <= 75


def replaced_line(log, line, text):
    lines = log.read_text().splitlines()
    lines[line - 1] = text
    log.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a.jpg,b.jpg,c.jpg,0.1,0,0", r"driving_log\.csv:3: 6 columns instead of 7: centre, left"),
        ("a.jpg,b.jpg,c.jpg,0.1,0,0,1,9", r"driving_log\.csv:3: 8 columns instead of 7"),
        ("a.jpg,b.jpg,c.jpg,straight,0,0,1", r"driving_log\.csv:3: steering 'straight' is not a number"),
        ("a.jpg,b.jpg,c.jpg,,0,0,1", r"driving_log\.csv:3: steering '' is not a number"),
        ("a.jpg,b.jpg,c.jpg,nan,0,0,1", r"driving_log\.csv:3: steering nan is not in \[-1, 1\]"),
        ("a.jpg,b.jpg,c.jpg,inf,0,0,1", r"driving_log\.csv:3: steering inf is not in \[-1, 1\]"),
        ("a.jpg,b.jpg,c.jpg,-1.5,0,0,1", r"driving_log\.csv:3: steering -1\.5 is not in \[-1, 1\]"),
        ("a.jpg,b.jpg,c.jpg,1.5,0,0,1", r"driving_log\.csv:3: steering 1\.5 is not in \[-1, 1\]"),
        (",b.jpg,c.jpg,0.1,0,0,1", r"driving_log\.csv:3: no centre image"),
    ],
)
def test_a_faulty_line_is_named(tmp_path, line, message):
    log = record(tmp_path, rows=10, header=HEADER)
    replaced_line(log, 3, line)
    with pytest.raises(InputError, match=message) as caught:
        load(tmp_path)
    assert "\n" not in str(caught.value)


def test_the_first_missing_image_is_named(tmp_path):
    log = record(tmp_path, rows=20)
    for line in (6, 7, 12):
        replaced_line(log, line, f"gone/{line}.jpg,,,0,0,0,0")
    with pytest.raises(InputError, match=r"csv:6: the image 'gone/6\.jpg' is missing; looked there, in") as caught:
        load(tmp_path)
    assert "\n" not in str(caught.value)


def test_an_unreadable_image_is_named_with_its_line(tmp_path):
    record(tmp_path, rows=20)
    (tmp_path / "IMG" / stamp("center", 4)).write_bytes(b"no image")
    with pytest.raises(InputError, match=r"images cannot be read: .*driving_log\.csv:5: '.*_04_000\.png'; replace"):
        load(tmp_path)


@pytest.mark.parametrize("content", ["", HEADER, "\n\n"])
def test_an_empty_log(tmp_path, content):
    (tmp_path / "driving_log.csv").write_text(content)
    with pytest.raises(InputError, match=r"driving_log\.csv: the log is empty"):
        load(tmp_path)


def test_a_log_that_is_not_there_or_no_text(tmp_path):
    with pytest.raises(InputError, match=r"driving_log\.csv' does not exist; driving-log needs"):
        load(tmp_path)
    (tmp_path / "driving_log.csv").write_bytes(b"\xff\xfe\x00,,,")
    with pytest.raises(InputError, match=r"driving_log\.csv' cannot be read as text"):
        load(tmp_path)
