"""Data sets that are made of what vehicles see: their frames, whose they are, and which are held out for tests.

Which picture is seen at a place is the part to exchange, a ``View``: ``drive`` draws it, a set of one's own reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline

from learners.data.road import LOOK_AHEAD_M, steering_angle
from learners.data.sets import Film, ImageSet, SteeringSet, channel_statistics
from learners.data.splits import renumber
from learners.data.streets import Integers, Net, hash_integers, read_net
from learners.data.unread import black_images
from vnetsim.errors import InputError
from vnetsim.errors.bounds import Within
from vnetsim.experiment import DataSettings
from vnetsim.learning.drives import RecordedDrive, RecordedTraffic
from vnetsim.random_streams import Streams

Column = NDArray[Any]

TRAIN_IMAGES, TEST_IMAGES = 9500, 2000
TRAIN_FRAMES, TEST_FRAMES = 3300, 600
"""Default numbers of images with classes and of frames with steering angles, as in ``signs`` and ``road``."""
SIDE_PX = 32
PARTS = 12
HELD_OUT = 6
"""Of the recorded time, cut in PARTS, every HELD_OUT-th part is for tests; so is one in HELD_OUT places."""
FILM_PX, FILM_WIDTH_PX = 720 * 32 * 32, 30_000
"""About how many pixels a film has, and how many px its frames side by side in one row, which browsers must show."""
_KNOT_M = 3.0
"""Least distance between two points of a path through which the smooth curve goes."""
_TURN_M = 4.0
"""The heading is that of the chord from as far behind to as far ahead."""
_STANDING_MPS, _GAP_M = 2.0, 100.0
"""When a film is thinned, each second counts as 2 m more, so that standing counts, and a gap as at most 100 m."""


class Frames(NamedTuple):
    """Frames of one or more drives, N in all; each column has the shape (N,).

    Args:
        time_s: when each was taken.
        x_m: where (m), in the net's coordinates.
        y_m: see ``x_m``.
        heading_rad: direction of the camera, from east counter-clockwise.
        speed_mps: the vehicle's speed at that instant.
        angle: steering angle in [-1, 1], positive to the right; NaN where the recorded path ends too soon.
        drive: index of the drive.
    """

    time_s: Column
    x_m: Column
    y_m: Column
    heading_rad: Column
    speed_mps: Column
    angle: Column
    drive: Column

    def take(self, rows: Integers | NDArray[np.bool_]) -> Frames:
        """Return the frames of ``rows``, indices or a mask."""
        return Frames(*(column[rows] for column in self))


class Seen(NamedTuple):
    """What frames show, N in all.

    Args:
        labels: the class of each frame, from 0, or -1 for none; int64, shape (N,).
        places: the place that each frame shows, from 0, or -1 where there is no picture; int64, shape (N,). Frames of
            one place are never both in training and in test.
    """

    labels: Integers
    places: Integers


class View(Protocol):
    """Which picture is seen where: the part of a set of frames that can be exchanged."""

    @property
    def class_names(self) -> Sequence[str]:
        """Names of the classes, in order of their numbers; empty if the pictures have none."""
        ...

    def see(self, frames: Frames) -> Seen:
        """Return each frame's class and place, without drawing; called with all frames, then with those of a film."""
        ...

    def pictures(self, frames: Frames, places: Integers, side_px: int, *, grey: bool) -> NDArray[np.uint8]:
        """Return the pictures of some frames, given the places that ``see`` returned for them; without motion blur.

        uint8, shape (N, 3, P, P), or (N, 1, P, P) if ``grey``, with P = ``side_px``.
        """
        ...


_NO_FRAMES = Frames._make([np.empty(0)] * 6 + [np.empty(0, dtype=np.int64)])


def sample_frames(drive: RecordedDrive, every_s: float, index: int = 0) -> Frames:
    """Return a drive's frames at the multiples of ``every_s`` (s) from its first point until just before its last.

    There is none if the drive is shorter than LOOK_AHEAD_M / 2 or has no such time. The path between recorded points is
    a cubic spline over the distance. Every frame gets the drive number ``index``.
    """
    steps_m = np.hypot(np.diff(drive.x_m), np.diff(drive.y_m))
    driven_m = np.concatenate([[0.0], np.cumsum(steps_m)])
    knots = [0]
    for point in range(1, len(driven_m)):
        if driven_m[point] - driven_m[knots[-1]] >= _KNOT_M:
            knots.append(point)
    first, last = np.ceil(drive.time_s[0] / every_s), np.ceil(drive.time_s[-1] / every_s)
    time_s = every_s * np.arange(first, last)
    if driven_m[-1] < LOOK_AHEAD_M / 2 or len(time_s) == 0:
        return _NO_FRAMES
    if driven_m[-1] > driven_m[knots[-1]]:
        knots[-1 if len(knots) > 1 else len(knots) :] = [len(driven_m) - 1]
    line = CubicSpline(driven_m[knots], np.column_stack([drive.x_m, drive.y_m])[knots])
    at_m = np.interp(time_s, drive.time_s, driven_m)
    here, end_m = line(at_m), driven_m[-1]
    # as far ahead as behind, or an arc's chord is no tangent
    turn_m = np.minimum(_TURN_M, np.minimum(at_m, end_m - at_m))
    chord = np.where((turn_m > 0.5)[:, None], line(at_m + turn_m) - line(at_m - turn_m), line(at_m, 1))
    heading = np.arctan2(chord[:, 1], chord[:, 0])
    dx, dy = (line(np.minimum(at_m + LOOK_AHEAD_M, end_m)) - here).T
    ahead_m = np.cos(heading) * dx + np.sin(heading) * dy
    right_m = np.sin(heading) * dx - np.cos(heading) * dy
    angle = steering_angle(right_m, ahead_m)
    angle[at_m + LOOK_AHEAD_M > end_m] = np.nan
    speed = np.interp(time_s, drive.time_s, drive.speed_mps)
    return Frames(time_s, here[:, 0], here[:, 1], heading, speed, angle, np.full(len(time_s), index))


@dataclass(frozen=True, kw_only=True)
class Driven:
    """A data set of frames on the vehicles' recorded paths; a subclass says in ``view`` which pictures they are.

    Args:
        frame_s: time between two frames of a vehicle (s).
    """

    name: ClassVar[str]
    source: ClassVar[str]
    targets: ClassVar[str] = "classes or steering angles"
    needs: ClassVar[tuple[str, ...]] = ("data.image_px",)
    from_traffic: ClassVar[bool] = True
    sight: ClassVar[str] = "a picture of a class"

    frame_s: Annotated[float, Within(0.05, 60, "s", "a camera's frames; beyond, most vehicles have passed")] = 1.0

    @property
    def facts(self) -> Mapping[str, str]:
        """Further facts about the pictures for manifest and report, text by title; a subclass may give some."""
        return {}

    def view(self, net: Net, data: DataSettings, streams: Streams) -> View:
        """Return which pictures are seen on the streets of a net; every subclass must define it.

        Args:
            net: lanes of the traffic's net; ``streets.find_edges`` finds the frames' edges on it.
            data: the settings of the data.
            streams: source of random draws: ``streams.generator(self.name, "a name of its own")``.

        Raises:
            InputError: files are missing or damaged.
        """
        raise NotImplementedError

    def load(self, data: DataSettings, streams: Streams) -> Any:  # noqa: ARG002 - as of all sets
        """Raise InputError: without recorded traffic there is nothing to see."""
        raise InputError(
            f"data.name: '{self.name}' is made of the traffic of a run: a .sumocfg, an FCD recording with a net, or a "
            "replay."
        )

    def load_driven(
        self, data: DataSettings, streams: Streams, traffic: RecordedTraffic, *, angles: bool, pictures: bool
    ) -> ImageSet | SteeringSet:
        """Return an ImageSet of what vehicles saw, or with ``angles`` a SteeringSet; without ``pictures`` it is black.

        Raises:
            InputError: the net cannot be read, no vehicle moves, or too few frames or classes are seen.
            ValueError: the view returned other shapes or types than ``View`` says.
        """
        net = read_net(traffic.net)
        view = self.view(net, data, streams)
        frames = _sample_drives(traffic.drives, self.frame_s)
        if not len(frames.time_s):
            raise InputError(
                f"data.name: '{self.name}': no vehicle moves in the RSUs' discs, so there is nothing to see."
            )
        if angles:
            frames = frames.take(np.isfinite(frames.angle))
        labels, places = _see(view, frames)
        usable = (places >= 0) & (angles | (labels >= 0))
        what = "a picture and a steering angle" if angles else self.sight
        if not usable.any():
            raise InputError(f"data.name: '{self.name}': no frame has {what}; cover more of the net, or record longer.")
        frames, labels, places = frames.take(usable), labels[usable], places[usable]
        train, test = _hold_out(frames, labels, places, streams.integer(self.name, "places"))
        limits = (TRAIN_FRAMES, TEST_FRAMES) if angles else (TRAIN_IMAGES, TEST_IMAGES)
        generator = streams.generator(self.name, "chosen")
        train = _sample(train, "data.train_images", data.train_images, limits[0], what, generator)
        test = _sample(test, "data.test_images", data.test_images, limits[1], what, generator)
        side_px, channels = data.image_px or SIDE_PX, 1 if angles else 3
        if pictures:
            rows = np.concatenate([train, test])
            both = _draw_pictures(view, frames.take(rows), places[rows], side_px, angles=angles)
            images = [torch.from_numpy(part.copy()) for part in np.split(both, [len(train)])]
        else:
            images = [black_images(len(rows), channels, side_px) for rows in (train, test)]
        vehicles, vehicle = np.unique([drive.vehicle_id for drive in traffic.drives], return_inverse=True)
        vehicle = vehicle[frames.drive]
        silos = np.array([drive.silo for drive in traffic.drives])[frames.drive]
        given: dict[str, Any] = {
            "name": self.name,
            "train": images[0],
            "test": images[1],
            "train_silos": torch.from_numpy(silos[train]),
            "train_speeds_mps": torch.from_numpy(frames.speed_mps[train].astype(np.float32)),
            "train_times_s": torch.from_numpy(frames.time_s[train]),
            "train_at_m": torch.from_numpy(np.column_stack([frames.x_m, frames.y_m])[train]),
            "film": partial(self._make_film, view, traffic.drives, side_px, angles) if pictures else None,
            "facts": {
                "Frames": f"every {self.frame_s:g} s on the paths of {len(np.unique(vehicle[train]))} vehicles inside "
                "the RSUs' discs, blurred by the speed at each",
                "Held out": f"test frames show one in {HELD_OUT} places in one in {HELD_OUT} parts of the time; "
                "training frames are of other places and times",
                **self.facts,
            },
        }
        train_angles, test_angles = (torch.from_numpy(frames.angle[rows].astype(np.float32)) for rows in (train, test))
        if angles:
            return SteeringSet(
                **given,
                train_angles=train_angles,
                train_drives=torch.from_numpy(renumber(vehicle[train])),
                train_blocks=torch.from_numpy(renumber(frames.drive[train])),
                test_angles=test_angles,
            )
        if len(np.unique(labels[train])) < 2:
            raise InputError(
                f"data.name: '{self.name}': the training frames have one class only; cover more of the net."
            )
        mean, std = channel_statistics(images[0]) if pictures else ((0.0,) * 3, (1.0,) * 3)
        train_names, test_names = (
            tuple(f"{vehicles[vehicle[row]]}@{frames.time_s[row]:.12g}" for row in rows) for rows in (train, test)
        )
        return ImageSet(
            **given,
            train_labels=torch.from_numpy(labels[train]),
            test_labels=torch.from_numpy(labels[test]),
            train_angles=train_angles,
            class_names=tuple(view.class_names),
            mean=mean,
            std=std,
            train_names=train_names,
            test_names=test_names,
        )

    def _make_film(
        self,
        view: View,
        drives: Sequence[RecordedDrive],
        side_px: int,
        angles: bool,
        vehicles: Sequence[str],
        until_s: float,
    ) -> Film:
        """Return frames of the vehicles (ids) up to ``until_s`` (s), evenly thinned to about FILM_PX pixels in all."""
        wanted = set(vehicles)
        drives = [drive for drive in drives if drive.vehicle_id in wanted]
        frames = _sample_drives(drives, self.frame_s)
        frames = frames.take(frames.time_s <= until_s)
        labels, places = _see(view, frames)
        order = {vehicle: number for number, vehicle in enumerate(dict.fromkeys(drive.vehicle_id for drive in drives))}
        owner = np.array([order[drives[one].vehicle_id] for one in frames.drive], dtype=np.int64)
        rows = np.lexsort((frames.time_s, owner))
        rows = rows[places[rows] >= 0]
        frames, labels, places = frames.take(rows), labels[rows], places[rows]
        owners, path, counts = np.unique(owner[rows], return_inverse=True, return_counts=True)
        mean_mps = np.bincount(path, frames.speed_mps, len(owners)) / counts
        steps = np.hypot(np.diff(frames.x_m), np.diff(frames.y_m)) + _STANDING_MPS * np.diff(frames.time_s)
        steps = np.where(np.diff(path) == 0, np.minimum(steps, _GAP_M), 0)
        passed = np.concatenate([[0.0], np.cumsum(steps)])[: len(path)]
        every = max(passed[-1:].sum() * side_px / min(FILM_PX / side_px, FILM_WIDTH_PX), 1e-6)
        rows = np.unique(np.column_stack([path, passed // every]), axis=0, return_index=True)[1]
        frames = frames.take(rows)
        images = _draw_pictures(view, frames, places[rows], side_px, angles=angles)
        return Film(
            vehicles=[list(order)[one] for one in owners],
            mean_mps=mean_mps,
            path=path[rows],
            images=torch.from_numpy(images.copy()),
            time_s=frames.time_s,
            speed_mps=frames.speed_mps,
            label=frames.angle if angles else labels[rows].astype(np.float64),
        )


def _draw_pictures(view: View, frames: Frames, places: Integers, side_px: int, *, angles: bool) -> NDArray[np.uint8]:
    """Return the view's pictures, (N, 3, P, P), or grey (N, 1, P, P) if ``angles``; ValueError if it returns others."""
    shape = (len(frames.time_s), 1 if angles else 3, side_px, side_px)
    if not shape[0]:
        return np.zeros(shape, dtype=np.uint8)
    found = view.pictures(frames, places, side_px, grey=angles)
    if found.dtype != np.uint8 or found.shape != shape:
        raise ValueError(f"pictures returned {found.dtype} of shape {found.shape}, expected uint8 of {shape}")
    return found


def _see(view: View, frames: Frames) -> Seen:
    """Return ``view.see(frames)``, empty for no frames; ValueError if a column's type, shape or range is wrong."""
    count, classes = len(frames.time_s), len(view.class_names)
    if count == 0:
        return Seen(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
    seen = view.see(frames)
    for name, column in zip(seen._fields, seen, strict=True):
        if column.shape != (count,) or column.dtype != np.int64 or (column < -1).any():
            raise ValueError(
                f"see returned {name} of {column.dtype} and shape {column.shape}, expected int64 of shape ({count},), "
                "-1 or more"
            )
    if (seen.labels >= classes).any():
        raise ValueError(f"see returned the label {seen.labels.max()}, but there are {classes} class_names")
    return seen


def _sample_drives(drives: Sequence[RecordedDrive], every_s: float) -> Frames:
    """Return all drives' frames, drive after drive; of a vehicle's frames at one time only that of the first drive."""
    each = [sample_frames(drive, every_s, index) for index, drive in enumerate(drives)]
    if not each:
        return _NO_FRAMES
    frames = Frames(*map(np.concatenate, zip(*each, strict=True)))
    vehicle = np.unique([drive.vehicle_id for drive in drives], return_inverse=True)[1][frames.drive]
    at = np.column_stack([vehicle, np.rint(frames.time_s / every_s).astype(np.int64)])
    return frames.take(np.sort(np.unique(at, axis=0, return_index=True)[1]))


def _hold_out(frames: Frames, labels: Integers, places: Integers, seed: int) -> tuple[Integers, Integers]:
    """Return rows for training and for tests; if only its place or only its time is held out, a row is in neither."""
    number, first, place = np.unique(places, return_index=True, return_inverse=True)
    label, drawn = labels[first], hash_integers(seed, number, 11)
    held_out = np.zeros(len(number), dtype=np.bool_)
    for one in np.unique(label):
        members = np.flatnonzero(label == one)
        members = members[np.argsort(drawn[members], kind="stable")]
        held_out[members[: max(1, len(members) // HELD_OUT) if len(members) > 1 else 0]] = True
    begin_s, end_s = frames.time_s.min(), frames.time_s.max()
    part = np.floor(PARTS * (frames.time_s - begin_s) / max(end_s - begin_s, 1e-9)).astype(np.int64)
    late = np.minimum(part, PARTS - 1) % HELD_OUT == HELD_OUT - 1
    return np.flatnonzero(~held_out[place] & ~late), np.flatnonzero(held_out[place] & late)


def _sample(rows: Integers, key: str, asked: int, default: int, what: str, generator: np.random.Generator) -> Integers:
    """Return ``asked`` random ``rows`` (0: up to ``default``), sorted; InputError, on ``key``, if there are fewer."""
    if len(rows) < max(asked, 1):
        raise InputError(
            f"{key}: {max(asked, 1)} frames with {what} asked for, the recorded traffic has {len(rows)}; "
            f"{'lower it, ' * (asked > 0)}cover more of the net, record longer, or lower data.frame_s."
        )
    return np.sort(generator.permutation(rows)[: asked or default])
