"""Recordings of the Udacity simulator: ``driving_log.csv`` with the images of its centre camera.

The columns are centre, left and right image, steering in [-1, 1], throttle, brake and speed; a header line is optional.
Numbers may have decimal commas if columns are separated by a comma and a space, or by a semicolon. Images become grey
squares. A pause in the recording starts a new drive.
"""

from __future__ import annotations

import csv
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from learners.data.image_files import lfs_cure, read_images, require_root
from learners.data.sets import SteeringSet
from learners.data.splits import TEST_SHARE, renumber, split_by_time, take_first
from vnetsim.errors import InputError
from vnetsim.experiment import DataSettings
from vnetsim.random_streams import Streams

LOG = "driving_log.csv"
SIDE_PX = 64
PAUSE_S = 5.0
"""Two consecutive frames farther apart in time belong to different drives (s)."""
_COLUMNS = 7
_STAMP = re.compile(r"(\d{4}_\d\d_\d\d_\d\d_\d\d_\d\d_\d{3})\.\w+$")


class Row(NamedTuple):
    """A line of the log: "file:line" for messages, the centre camera's image as written, the angle in [-1, 1]."""

    place: str
    image: str
    steering: float


@dataclass(frozen=True, kw_only=True)
class DrivingLog:
    """Recorded drives in the layout of Udacity's simulator, ``driving_log.csv``."""

    name, targets, needs = "driving-log", "steering angles", ("data.root", "data.image_px")
    source = "files of one's own; layout of Udacity's self-driving-car-sim"

    def load(self, data: DataSettings, streams: Streams) -> SteeringSet:
        """Return the frames of ``data.root``, a log or its folder, split by time (``split_by_time``).

        InputError, with file and line, if log or images are missing or damaged.
        """
        path = require_root(data.root, self.name, f"a {LOG} or the folder in which it lies")
        log = path / LOG if path.is_dir() else path
        rows = read_log(log)
        drives = number_drives([row.image for row in rows])
        train, test, blocks = split_by_time(drives, TEST_SHARE, streams.generator("driving-log", "test blocks"))
        train, test = take_first(train, test, data)
        angles = np.array([row.steering for row in rows], dtype=np.float32)

        used = np.sort(np.concatenate([train, test]))  # so that the first fault is the first in the log
        files = _find_images(log.parent, [rows[frame] for frame in used])
        places = [rows[frame].place for frame in used]
        read = read_images(files, grey=True, side_px=data.image_px or SIDE_PX, places=places)
        images = torch.from_numpy(read)
        return SteeringSet(
            name=self.name,
            train=images[np.searchsorted(used, train)],
            train_angles=torch.from_numpy(angles[train]),
            train_drives=torch.from_numpy(renumber(drives[train])),
            train_blocks=torch.from_numpy(renumber(blocks[train])),
            test=images[np.searchsorted(used, test)],
            test_angles=torch.from_numpy(angles[test]),
        )


def read_log(path: Path) -> list[Row]:
    """Return the lines of a log in order, except a header and empty lines.

    InputError if the log is missing or empty, or a line does not have seven columns with steering in [-1, 1].
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            written = file.readlines()
        reader = csv.reader(written, skipinitialspace=True)
        lines = [
            (f"{path}:{reader.line_num}", _split(cells, written[reader.line_num - 1])) for cells in reader if any(cells)
        ]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = "does not exist" if isinstance(error, FileNotFoundError) else "cannot be read as text"
        raise InputError(f"data.root: '{path}' {reason}; driving-log needs a {LOG}.") from error
    if lines and len(lines[0][1]) == _COLUMNS and lines[0][1][3].lower().startswith("steering"):
        del lines[0]
    if not lines:
        raise InputError(f"{path}: the log is empty; record a drive or name another with --data-root PATH.")
    return [_parse_row(place, cells) for place, cells in lines]


def _split(cells: Sequence[str], line: str) -> list[str]:
    """Return stripped cells; if ``cells`` are not seven, those of ``line`` split by ", " or ";" if that gives seven."""
    for separator in (", ", ";"):
        if len(cells) != _COLUMNS and len(parts := line.split(separator)) == _COLUMNS:
            cells = [part.strip().strip('"') for part in parts]
    return [cell.strip() for cell in cells]


def _parse_row(place: str, cells: Sequence[str]) -> Row:
    """Return a Row; InputError, which begins with ``place``, unless there are seven cells with steering in [-1, 1]."""
    if len(cells) != _COLUMNS:
        cure = lfs_cure(Path(place.rpartition(":")[0]))
        if not cure and len(cells) > _COLUMNS:
            cure = "write decimal commas as points"
        raise InputError(
            f"{place}: {len(cells)} columns instead of {_COLUMNS}: centre, left and right image, steering, throttle,"
            f" brake, speed{'; ' * bool(cure)}{cure}."
        )
    try:
        steering = float(cells[3].replace(",", "."))
    except ValueError:
        raise InputError(f"{place}: steering '{cells[3]}' is not a number.") from None
    if not (math.isfinite(steering) and -1 <= steering <= 1):
        raise InputError(f"{place}: steering {steering} is not in [-1, 1].")
    return Row(place=place, image=cells[0], steering=steering)


def number_drives(images: Sequence[str]) -> NDArray[np.int64]:
    """Return the number of each frame's drive, counted from 0, given the image names in order of time, shape (N,).

    The simulator writes the time into the file's name, as in ``center_2016_12_01_13_30_48_287.jpg``. A new drive starts
    more than PAUSE_S after the frame before, or at an earlier time. If any name has no time, all frames are one drive.
    """
    stamps = [stamp[1] for stamp in map(_STAMP.search, images) if stamp]
    try:
        read = [datetime.strptime(stamp, "%Y_%m_%d_%H_%M_%S_%f") for stamp in stamps]  # noqa: DTZ007 - only differences count
    except ValueError:  # digits that are not a time
        read = []
    if len(read) < len(images):
        return np.zeros(len(images), dtype=np.int64)
    times = np.array(read, dtype="datetime64[ms]")
    pauses_s = np.diff(times, prepend=times[:1]) / np.timedelta64(1, "s")
    return np.cumsum((pauses_s < 0) | (pauses_s > PAUSE_S), dtype=np.int64)


def _find_images(folder: Path, rows: Sequence[Row]) -> list[Path]:
    """Return each row's image file; InputError if a row names none or a missing one, or two names lead to one file."""
    found: list[Path] = []
    named: dict[Path, tuple[str, str]] = {}
    for row in rows:
        written = row.image
        if not written:
            raise InputError(f"{row.place}: no centre image in this line.")
        path = find_image(folder, written)
        if path is None:
            raise InputError(
                f"{row.place}: the image '{written}' is missing; looked there, in '{folder / 'IMG'}' and in '{folder}'."
            )
        where = os.path.normpath(folder / written.replace("\\", "/"))
        other, place = named.setdefault(path, (where, row.place))
        if where != other:
            raise InputError(
                f"{row.place}: '{written}' and the image '{other}' of {place} would both be '{path}'; keep each "
                "recording in a folder of its own beside the log, and name its images FOLDER/IMG/NAME."
            )
        found.append(path)
    return found


def find_image(folder: Path, written: str) -> Path | None:
    """Return the path of an image that a log in ``folder`` names as ``written``; None if it is not found.

    Logs are moved between machines, so the image is searched, in this order: at the path as written (relative to
    ``folder``), at the same with Windows' separators, with fewer and fewer of its folders, and by its name in ``IMG``
    and in ``folder``. Files outside ``folder``, also through a link, do not count: a foreign log could name any file.
    """
    inside = os.path.realpath(folder)
    forward = written.replace("\\", "/")
    *folders, name = forward.split("/")
    ends = ["/".join([*folders[start:], name]) for start in range(len(folders))]
    for candidate in (folder / written, *(folder / end for end in ends), folder / "IMG" / name, folder / name):
        # os.path.isfile is false, not an error, for a name that no file can have
        if os.path.isfile(candidate) and Path(os.path.realpath(candidate)).is_relative_to(inside):  # noqa: PTH113
            return candidate
    return None
