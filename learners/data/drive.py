"""Frames that vehicles see on their recorded paths: a silo's images follow from where, when and how fast it drove.

A frame shows the streets of the net (``streets``) in the perspective of a front camera (``windscreen``). Its class is
that of the nearest visible sign; its steering angle leads, by pure pursuit, to the point of the vehicle's own path
LOOK_AHEAD_M further on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline

from learners.data import sign_designs, streets, windscreen
from learners.data.image_cache import cached
from learners.data.road import FULL_LOCK_RAD, LOOK_AHEAD_M, WHEELBASE_M
from learners.data.sets import Film, ImageSet, SteeringSet, channel_statistics
from learners.data.sign_designs import DESIGNS
from learners.data.splits import renumber
from learners.data.streets import Ground, Signs, hashed, place_signs, read_net
from learners.data.unread import black_images
from learners.data.windscreen import Poses, in_view, render
from vnetsim.errors import InputError
from vnetsim.errors.bounds import Within
from vnetsim.experiment import DataSettings
from vnetsim.learning.drives import RecordedDrive, RecordedTraffic
from vnetsim.random_streams import Streams

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Column = NDArray[Any]

TRAIN_IMAGES, TEST_IMAGES = 9500, 2000
TRAIN_FRAMES, TEST_FRAMES = 3300, 600
"""Default numbers of images with classes and of frames with steering angles, as of ``signs`` and ``road``."""
SIDE_PX = 32
PARTS = 12
"""Parts of the recorded time; every HELD_OUT-th is held out for tests, and so is one in HELD_OUT places."""
HELD_OUT = 6
FILM_PX = 720 * 32 * 32
"""Pixels of all frames of a film, about."""
_KNOT_M = 3.0
"""Least distance between two points of a path through which the smooth curve goes."""
_TURN_M = 4.0
"""The heading is that of the chord from as far behind to as far ahead."""
_PLACE_M = 30.0
_STANDING_MPS = 2.0
"""A second in which a vehicle stands counts as so many metres where a film is thinned."""


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
        """Return some of the frames."""
        return Frames(*(column[rows] for column in self))

    @property
    def poses(self) -> Poses:
        """Time, place and heading of the cameras."""
        return Poses(*self[:4])


_NO_FRAMES = Frames._make([np.empty(0)] * 6 + [np.empty(0, dtype=np.int64)])


def frames_of(drive: RecordedDrive, every_s: float, index: int = 0) -> Frames:
    """Return a drive's frames at the multiples of ``every_s``; none if it moved less than LOOK_AHEAD_M / 2.

    Between recorded points the path is a cubic spline over the distance driven.
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
    turn_m = np.minimum(
        _TURN_M, np.minimum(at_m, end_m - at_m)
    )  # as far ahead as behind, or an arc's chord is no tangent
    chord = np.where((turn_m > 0.5)[:, None], line(at_m + turn_m) - line(at_m - turn_m), line(at_m, 1))
    heading = np.arctan2(chord[:, 1], chord[:, 0])
    dx, dy = (line(np.minimum(at_m + LOOK_AHEAD_M, end_m)) - here).T
    ahead_m = np.cos(heading) * dx + np.sin(heading) * dy
    right_m = np.sin(heading) * dx - np.cos(heading) * dy
    # the arc through the point has curvature 2 x / (x^2 + z^2) (Coulter 1992)
    curvature = 2 * right_m / np.maximum(np.square(ahead_m) + np.square(right_m), 1e-6)
    angle = np.clip(np.arctan(WHEELBASE_M * curvature) / FULL_LOCK_RAD, -1, 1)
    angle[at_m + LOOK_AHEAD_M > end_m] = np.nan
    speed = np.interp(time_s, drive.time_s, drive.speed_mps)
    return Frames(time_s, here[:, 0], here[:, 1], heading, speed, angle, np.full(len(time_s), index))


@dataclass(frozen=True, kw_only=True)
class Drive:
    """What the vehicles of the run see on the streets of its net, drawn by the program: 32 x 32.

    With classes an image's label is the nearest visible sign, in colour; with steering angles frames are grey.

    Args:
        frame_s: time between two frames of a vehicle (s).
        noon_s: the traffic's time at which it is noon (s): 43200 for a scenario whose time counts from midnight.
    """

    name: ClassVar[str] = "drive"
    source: ClassVar[str] = "built in"
    targets: ClassVar[str] = "classes or steering angles"
    needs: ClassVar[tuple[str, ...]] = ("data.image_px",)
    from_traffic: ClassVar[bool] = True

    frame_s: Annotated[float, Within(0.05, 60, "s", "a camera's frames; beyond, most vehicles have passed")] = 1.0
    noon_s: Annotated[float, Within(-1e7, 1e7, "s", "four months")] = 0.0

    def load(self, data: DataSettings, streams: Streams) -> Any:  # noqa: ARG002 - as of all sets
        """Raise InputError: without traffic there is nothing to see."""
        raise InputError(
            "data.name: 'drive' is made of the traffic of a run: a .sumocfg, an FCD recording with a net, or a replay."
        )

    def load_driven(
        self, data: DataSettings, streams: Streams, traffic: RecordedTraffic, *, angles: bool, pictures: bool
    ) -> ImageSet | SteeringSet:
        """Return the set with classes, or with steering ``angles``; without ``pictures`` the images are black.

        Raises:
            InputError: the net cannot be read, or the vehicles see too little.
        """
        seed = streams.integer("drive", "places")
        net = read_net(traffic.net)
        signs = place_signs(net, seed)
        frames = _all_frames(traffic.drives, self.frame_s)
        if not len(frames.time_s):
            raise InputError("data.name: 'drive': no vehicle moves in the RSUs' discs, so there is nothing to see.")
        seen = in_view(frames.poses, signs)[0][:, 0]
        usable = np.isfinite(frames.angle) if angles else seen >= 0
        what = "a steering angle" if angles else "a visible sign"
        if not usable.any():
            raise InputError(f"data.name: 'drive': no frame has {what}; cover more of the net, or record longer.")
        frames, seen = frames.take(usable), seen[usable]
        train, test = _split(frames, seen, signs, seed)
        limits = (TRAIN_FRAMES, TEST_FRAMES) if angles else (TRAIN_IMAGES, TEST_IMAGES)
        generator = streams.generator("drive", "chosen")
        train = _limited(train, "data.train_images", data.train_images, limits[0], what, generator)
        test = _limited(test, "data.test_images", data.test_images, limits[1], what, generator)
        side_px = data.image_px or SIDE_PX
        if pictures:
            images = self._draw(net, signs, frames, (train, test), side_px, streams, angles=angles)
        else:
            images = [black_images(len(rows), 1 if angles else 3, side_px) for rows in (train, test)]
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
            "film": partial(self._film, net, signs, traffic.drives, side_px, streams, angles) if pictures else None,
            "facts": {
                "Frames": f"every {self.frame_s:g} s on the paths of {len(np.unique(vehicle[train]))} vehicles inside "
                f"the RSUs' discs, blurred by the speed at each; noon is at {self.noon_s:g} s",
                "Held out": f"test frames show one in {HELD_OUT} places in one in {HELD_OUT} parts of the time; "
                "training frames are of other places and times",
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
        labels = signs.label[seen]
        if len(np.unique(labels[train])) < 2:
            raise InputError("data.name: 'drive': the vehicles see signs of one class only; cover more of the net.")
        mean, std = channel_statistics(images[0]) if pictures else ((0.0,) * 3, (1.0,) * 3)
        train_names, test_names = (
            tuple(f"{vehicles[vehicle[row]]}@{frames.time_s[row]:.12g}" for row in rows) for rows in (train, test)
        )
        return ImageSet(
            **given,
            train_labels=torch.from_numpy(labels[train]),
            test_labels=torch.from_numpy(labels[test]),
            train_angles=train_angles,
            class_names=tuple(DESIGNS),
            mean=mean,
            std=std,
            train_names=train_names,
            test_names=test_names,
        )

    def _draw(
        self,
        net: streets.Net,
        signs: Signs,
        frames: Frames,
        parts: Sequence[Integers],
        side_px: int,
        streams: Streams,
        *,
        angles: bool,
    ) -> list[torch.Tensor]:
        """Return the images of each part, (N, 3, P, P) or grey (N, 1, P, P); those drawn before are read from disk."""
        seed = streams.integer("drive", "places")
        rows = np.concatenate(parts)
        poses = frames.take(rows).poses

        def draw() -> NDArray[np.uint8]:
            return self._render(net, signs, poses, side_px, streams, "noise", angles=angles)

        lanes = [(*lane[:3], lane.shape.tobytes(), *lane[4:]) for lane in net.lanes]
        key = seed, self.noon_s, angles, lanes, [column.tobytes() for column in (*poses, *signs)]
        code = (__file__, streets.__file__, windscreen.__file__, sign_designs.__file__)
        images = cached(draw, (len(rows), 1 if angles else 3, side_px, side_px), key, code=code)
        return [torch.from_numpy(part.copy()) for part in np.split(images, [len(parts[0])])]

    def _render(
        self, net: streets.Net, signs: Signs, poses: Poses, side_px: int, streams: Streams, noise: str, *, angles: bool
    ) -> NDArray[np.uint8]:
        """Return the poses' frames; ``noise`` names the random stream of the sensor's noise."""
        ground = Ground(net, streams.integer("drive", "places"), np.column_stack([poses.x_m, poses.y_m]))
        drawn = streams.generator("drive", noise)
        images = render(poses, ground, signs, side_px=side_px, noon_s=self.noon_s, noise=drawn)
        return np.rint(images.mean(axis=1, keepdims=True)).astype(np.uint8) if angles else images

    def _film(
        self,
        net: streets.Net,
        signs: Signs,
        drives: Sequence[RecordedDrive],
        side_px: int,
        streams: Streams,
        angles: bool,
        vehicles: Sequence[str],
        until_s: float,
    ) -> Film:
        """Return frames of the vehicles, thinned to about FILM_PX pixels in all: few where a vehicle is slow."""
        wanted = set(vehicles)
        drives = [drive for drive in drives if drive.vehicle_id in wanted]
        frames = _all_frames(drives, self.frame_s)
        frames = frames.take(frames.time_s <= until_s)
        order = {vehicle: place for place, vehicle in enumerate(dict.fromkeys(drive.vehicle_id for drive in drives))}
        place = np.array([order[drives[one].vehicle_id] for one in frames.drive], dtype=np.int64)
        rows = np.lexsort((frames.time_s, place))
        frames, place = frames.take(rows), place[rows]
        places, path, counts = np.unique(place, return_inverse=True, return_counts=True)
        mean_mps = np.bincount(path, frames.speed_mps, len(places)) / counts
        steps = np.hypot(np.diff(frames.x_m), np.diff(frames.y_m)) + _STANDING_MPS * np.diff(frames.time_s)
        passed = np.concatenate([[0.0], np.cumsum(np.where(np.diff(path) == 0, steps, 0))])[: len(path)]
        every = max(passed[-1:].sum() * side_px * side_px / FILM_PX, 1e-6)
        rows = np.unique(np.column_stack([path, passed // every]), axis=0, return_index=True)[1]
        frames, path = frames.take(rows), path[rows]
        if len(places):
            images = self._render(net, signs, frames.poses, side_px, streams, "film", angles=angles)
        else:
            images = np.zeros((0, 1 if angles else 3, side_px, side_px), dtype=np.uint8)
        seen = in_view(frames.poses, signs)[0][:, 0]
        return Film(
            vehicles=[list(order)[one] for one in places],
            mean_mps=mean_mps,
            path=path,
            images=torch.from_numpy(images),
            time_s=frames.time_s,
            speed_mps=frames.speed_mps,
            label=frames.angle if angles else np.append(signs.label, -1)[seen].astype(np.float64),
        )


def _all_frames(drives: Sequence[RecordedDrive], every_s: float) -> Frames:
    """Return the frames of all drives; what a vehicle sees in several discs at once belongs to the first drive."""
    each = [frames_of(drive, every_s, index) for index, drive in enumerate(drives)]
    if not each:
        return _NO_FRAMES
    frames = Frames(*map(np.concatenate, zip(*each, strict=True)))
    vehicle = np.unique([drive.vehicle_id for drive in drives], return_inverse=True)[1][frames.drive]
    at = np.column_stack([vehicle, np.rint(frames.time_s / every_s).astype(np.int64)])
    return frames.take(np.sort(np.unique(at, axis=0, return_index=True)[1]))


def _split(frames: Frames, seen: Integers, signs: Signs, seed: int) -> tuple[Integers, Integers]:
    """Return the frames of training and of tests; those of a held-out place or time alone are in neither."""
    # a frame's place is the sign it sees, or without one (-1) the square in which the car is
    square = np.floor(np.column_stack([frames.x_m, frames.y_m]) / _PLACE_M).astype(np.int64)
    bare = np.unique(square, axis=0, return_inverse=True)[1].reshape(-1)
    places = np.where(seen >= 0, seen, len(signs.label) + bare)
    number, place = np.unique(places, return_inverse=True)
    label = np.append(signs.label, -1)[np.minimum(number, len(signs.label))]
    drawn = hashed(seed, number, 11)
    held_out = np.zeros(len(number), dtype=np.bool_)
    for one in np.unique(label):
        members = np.flatnonzero(label == one)
        members = members[np.argsort(drawn[members], kind="stable")]
        held_out[members[: max(1, len(members) // HELD_OUT) if len(members) > 1 else 0]] = True
    begin_s, end_s = frames.time_s.min(), frames.time_s.max()
    part = np.floor(PARTS * (frames.time_s - begin_s) / max(end_s - begin_s, 1e-9)).astype(np.int64)
    late = np.minimum(part, PARTS - 1) % HELD_OUT == HELD_OUT - 1
    return np.flatnonzero(~held_out[place] & ~late), np.flatnonzero(held_out[place] & late)


def _limited(rows: Integers, key: str, asked: int, default: int, what: str, generator: np.random.Generator) -> Integers:
    """Return at most ``asked`` of the rows (0: ``default``), drawn at random and in order; refuse too few."""
    if len(rows) < max(asked, 1):
        raise InputError(
            f"{key}: {max(asked, 1)} frames with {what} asked for, the recorded traffic has {len(rows)}; cover more of "
            "the net, record longer, or lower data.frame_s."
        )
    return np.sort(generator.permutation(rows)[: asked or default])
