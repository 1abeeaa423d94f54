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
        needed = "needed is a CSV file,edge,pos_m,label."
        try:
            with file.open(newline="", encoding="utf-8-sig") as lines:
                rows = [
                    (file.parent / row["file"], row["edge"], float(row["pos_m"]), row["label"])
                    for row in csv.DictReader(lines)
                ]
        except (OSError, LookupError, TypeError, ValueError, csv.Error) as error:
            raise InputError(f"data.file: {file}: {type(error).__name__}: {error}; {needed}") from error
        for name, _, pos_m, label in rows:
            if not (label and np.isfinite(pos_m)):
                raise InputError(f"data.file: {file}: '{name.name}' has no label or no finite pos_m; {needed}")
        if not rows:
            raise InputError(f"data.file: {file} lists no picture; {needed}")
        self.files, edges, at_m, labels = zip(*rows, strict=True)
        self.edge, self.at_m = np.array(edges), np.array(at_m)
        self.class_names, self.label = np.unique(labels, return_inverse=True)
        self.net, self.reach_m = net, reach_m
        if unknown := {*self.edge} - {lane.edge for lane in net.lanes}:
            raise InputError(f"data.file: {file} names the edge '{min(unknown)}', which is not in the net.")

    def see(self, frames: Frames) -> Seen:
        """Return class and number of the nearest picture on each frame's edge, -1 without one."""
        edge, at_m = find_edges(self.net, frames.x_m, frames.y_m, frames.heading_rad)
        places = np.full(len(edge), -1)
        for one in np.intersect1d(edge, self.edge):
            here, listed = np.flatnonzero(edge == one), np.flatnonzero(self.edge == one)
            listed = listed[np.argsort(self.at_m[listed], kind="stable")]
            middle_m = (self.at_m[listed][1:] + self.at_m[listed][:-1]) / 2
            nearest = listed[np.searchsorted(middle_m, at_m[here])]
            places[here] = np.where(np.abs(at_m[here] - self.at_m[nearest]) <= self.reach_m, nearest, -1)
        return Seen(np.where(places >= 0, self.label[places], -1), places)

    def pictures(self, _: Frames, places: NDArray[np.int64], side_px: int, *, grey: bool) -> NDArray[np.uint8]:
        number, which = np.unique(places, return_inverse=True)
        return read_images([self.files[one] for one in number], grey=grey, side_px=side_px, key="data.file")[which]


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
