"""Frames of one's own by edge and position, in place of drawn ones: photographs, or images of a 3D simulator."""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from vnetsim.learners.data.driven import Driven, Frames, Seen
from vnetsim.learners.data.image_files import read_images
from vnetsim.learners.data.streets import Net, find_edges

from vnetsim.errors import InputError
from vnetsim.errors.bounds import Within


class Listed:
    """The pictures of a CSV. Each is a place of its own, so none is both in training and in test."""

    def __init__(self, net: Net, file: Path, reach_m: float) -> None:
        with file.open(newline="", encoding="utf-8-sig") as lines:
            rows = [*csv.DictReader(lines)]
        self.files = [file.parent / row["file"] for row in rows]
        self.edge, self.at_m = np.array([row["edge"] for row in rows]), np.array([float(row["pos_m"]) for row in rows])
        self.class_names, self.label = np.unique([row["label"] for row in rows], return_inverse=True)
        self.net, self.reach_m = net, reach_m
        if unknown := {*self.edge} - {lane.edge for lane in net.lanes}:
            raise InputError(f"data.file: {file} names the edge '{min(unknown)}', which is not in the net.")

    def see(self, frames: Frames) -> Seen:
        """Return class and number of the nearest picture on each frame's edge, -1 without one."""
        edge, at_m = find_edges(self.net, frames.x_m, frames.y_m, frames.heading_rad)
        places = np.full(len(edge), -1)
        for one in np.intersect1d(edge, self.edge):
            here, listed = np.flatnonzero(edge == one), np.flatnonzero(self.edge == one)
            away_m = np.abs(at_m[here, None] - self.at_m[listed])
            places[here] = np.where(away_m.min(axis=1) <= self.reach_m, listed[away_m.argmin(axis=1)], -1)
        return Seen(np.where(places >= 0, self.label[places], -1), places)

    def pictures(self, _: Frames, places: NDArray[np.int64], side_px: int, *, grey: bool) -> NDArray[np.uint8]:
        number, which = np.unique(places, return_inverse=True)
        return read_images([self.files[one] for one in number], grey=grey, side_px=side_px)[which]


@dataclass(frozen=True, kw_only=True)
class OwnFrames(Driven):
    """A vehicle sees the nearest picture that ``file`` lists on its edge.

    Args:
        file: CSV ``file,edge,pos_m,label``: image beside the CSV, edge, metres from its start, name of the class.
        reach_m: a picture farther away along the edge is not seen (m).
    """

    name, source = "own-frames", "files of one's own"
    file: str
    reach_m: Annotated[float, Within(0.1, 1000, "m", "a street's length")] = 10.0

    def view(self, net: Net, *_: Any) -> Listed:
        return Listed(net, Path(self.file), self.reach_m)
