"""Streets of a SUMO net as a front camera sees them: ground from above, buildings and trees, and signs at fixed places.

All of it follows from the net and a seed, by place: a street looks the same to every car that passes. Coordinates are
those of the net (m); the ground is flat.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from learners.data.sign_designs import DESIGNS
from vnetsim.errors import InputError
from vnetsim.errors.bounds import require
from vnetsim.xml_files import XmlFile

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

VIEW_M = 64.0
"""Distance up to which the ground is drawn (m)."""
SKYLINE_M = 110.0
"""Distance up to which buildings and trees are drawn, straight ahead (m)."""
CELL_M, TILE_M, LEVELS = 0.25, 32.0, 4
"""Side of a pixel of the ground and of a tile (m), and the resolutions of the ground, each half of the one before."""
BLOCK_M = 6.0
"""Side of a building or group of trees (m)."""
STRETCH_M = 30.0
"""Distance between two signs of a street (m)."""
LIMITS_KMH = (30, 50, 60, 70, 80)
REACH_M = 8.0
"""A vehicle is on a lane no farther away than this (m)."""
_SAMPLE_M, _NEAREST = 0.5, 64
_ASLANT = 1.2  # at a frame's edge one looks so much further than straight ahead
_BESIDE_M, _PAVED = 1.2, {"pedestrian", "bicycle"}
_MARK_M, _DASH_M, _GAP_M, _STRIPE_M = 0.12, 4.0, 5.0, 1.0
_CLASSES = list(DESIGNS)
_ASPHALT, _PAVEMENT, _PAINT, _GRASS, _EARTH = np.array(
    [[84, 84, 89], [148, 140, 133], [230, 230, 224], [77, 107, 51], [41, 5, 20]], dtype=np.float32
)
_HOUSE, _ITS_TONES, _TREE, _TREES_TONES = np.array([[115, 77, 61], [102, 115, 102], [26, 61, 20], [56, 51, 26]])


class Lane(NamedTuple):
    """A lane: its edge, its number from the right, ``function`` of its edge, middle line (points, 2), width (m)."""

    edge: str
    number: int
    function: str
    shape: Floats
    width_m: float
    speed_mps: float
    paved: bool  # for those on foot or bicycle only


class Edge(NamedTuple):
    """A street from junction to junction; a higher priority has the right of way."""

    end: str
    priority: float


@dataclass
class Net:
    """The lanes, edges and junctions' types of a net file."""

    lanes: list[Lane] = field(default_factory=list)
    edges: dict[str, Edge] = field(default_factory=dict)
    junctions: dict[str, str] = field(default_factory=dict)


def read_net(path: Path) -> Net:
    """Return the lanes, edges and junctions of a SUMO net file (``.net.xml`` or ``.net.xml.gz``).

    InputError if it is missing, damaged, not a net, or has no lane.
    """
    net, edge, function = Net(), "", ""

    def start(name: str, attributes: Mapping[str, str]) -> None:
        """Add an XML element, given its name and attributes, to ``net``; InputError if it is malformed."""
        nonlocal edge, function
        try:
            if name == "edge":
                edge, function = attributes["id"], attributes.get("function", "")
                if not function:
                    net.edges[edge] = Edge(attributes.get("to", ""), float(attributes.get("priority", -1)))
            elif name == "junction":
                net.junctions[attributes["id"]] = attributes.get("type", "")
            elif name == "lane":
                shape = np.array([point.split(",")[:2] for point in attributes["shape"].split()], dtype=np.float64)
                width_m, speed_mps = float(attributes.get("width", 3.2)), float(attributes.get("speed", 0))
                require(
                    shape.size > 0 and bool(np.isfinite([*shape.flat, width_m, speed_mps]).all()),
                    f"{file.where}: not a SUMO net: the lane at {attributes['shape']!r:.60} has no finite size.",
                )
                allowed = set(attributes.get("allow", "").split())
                net.lanes.append(
                    Lane(
                        edge=edge,
                        number=int(attributes["index"]),
                        function=function,
                        shape=shape if len(shape) > 1 else np.repeat(shape, 2, axis=0),
                        width_m=width_m,
                        speed_mps=speed_mps,
                        paved=bool(allowed) and allowed <= _PAVED,
                    )
                )
        except (LookupError, ValueError) as error:
            raise InputError(f"{file.where}: not a SUMO net: malformed element: {error}.") from error

    file = XmlFile(path, start)
    file.read()
    if not net.lanes:
        raise InputError(f"{path}: not a SUMO net with lanes.")
    return net


def hash_integers(seed: int, *parts: Integers | int) -> Floats:
    """Return a pseudo-random number in [0, 1) per tuple of ``parts``, fixed by tuple and seed; arrays broadcast."""
    mixed = np.array(seed & 0x7FFFFFFFFFFFFFFF, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for part in parts:  # SplitMix64 (Steele, Lea and Flood 2014)
            mixed = mixed + np.asarray(part).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
            mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            mixed = mixed ^ (mixed >> np.uint64(31))
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def find_edges(net: Net, x_m: Floats, y_m: Floats, heading_rad: Floats) -> tuple[NDArray[np.str_], Floats]:
    """Return the edge on which each vehicle drives, and how far along it is (m); each of shape (N,).

    It is the edge of the nearest lane within REACH_M whose direction is at most 60 degrees from the vehicle's; without
    one, it is empty and 0 m. Positions count from the start of the lane as the net draws it. Names of edges inside a
    junction begin with a colon.

    Args:
        net: the net.
        x_m: x of the vehicles in the net's coordinates (m), shape (N,).
        y_m: y of the vehicles likewise, shape (N,).
        heading_rad: directions, from east counter-clockwise, shape (N,).
    """
    names, points = [""], [np.full((1, 4), np.inf)]
    for lane in net.lanes:
        if lane.paved or lane.function not in ("", "internal"):
            continue
        for start, end, gone_m in _split_polyline(lane.shape):
            length_m = float(np.hypot(*(end - start)))
            along_m = np.linspace(0, length_m, int(length_m / _SAMPLE_M) + 2)
            at = start + (along_m / max(length_m, 1e-9))[:, None] * (end - start)
            heading = np.full(len(at), np.arctan2(*(end - start)[::-1]))
            points.append(np.column_stack([at, heading, gone_m + along_m]))
            names += [lane.edge] * len(at)
    table, edges = np.concatenate(points), np.array(names)
    place = np.column_stack([x_m, y_m])
    nearest = min(_NEAREST, len(table) - 1)
    if nearest == 0:
        return np.repeat(edges, len(place)), np.zeros(len(place))
    away_m, row = cKDTree(table[1:, :2]).query(place, k=[*range(1, nearest + 1)], distance_upper_bound=REACH_M)
    row = np.where(np.isfinite(away_m), row + 1, 0)
    with np.errstate(invalid="ignore"):
        along = np.isfinite(away_m) & (np.cos(table[row, 2] - heading_rad[:, None]) >= 0.5)
    found = np.where(along.any(axis=1), np.take_along_axis(row, along.argmax(axis=1)[:, None], axis=1)[:, 0], 0)
    at, heading, gone_m = table[found, :2], table[found, 2], table[found, 3]
    with np.errstate(invalid="ignore"):
        ahead_m = np.sum((place - at) * np.column_stack([np.cos(heading), np.sin(heading)]), axis=1)
    return edges[found], np.where(found > 0, np.maximum(gone_m + ahead_m, 0), 0.0)


class Signs(NamedTuple):
    """Signs at fixed places; each column has the shape (K,), ``at_m`` (K, 2)."""

    at_m: Floats
    heading_rad: Floats  # direction of the traffic that sees the sign, from east counter-clockwise
    label: Integers  # index of the class in ``DESIGNS``
    variant: Integers  # which member of its class, such as the number of a limit


def place_signs(net: Net, seed: int) -> Signs:
    """Return the signs at the right of every street longer than 7 m, street after street; K = 0 without such a street.

    A street has a sign every STRETCH_M, counted back from its end. The last one says who goes first at the junction,
    the first of several is a speed limit, and those between are of classes that seed and place draw.
    """
    highest: dict[str, float] = defaultdict(lambda: -np.inf)
    for edge in net.edges.values():
        highest[edge.end] = max(highest[edge.end], edge.priority)
    right: dict[str, Lane] = {}
    for lane in net.lanes:
        if lane.edge in net.edges and not lane.paved and lane.number <= right.get(lane.edge, lane).number:
            right[lane.edge] = lane
    found: list[tuple[float, float, float, int, int]] = []
    for name, lane in right.items():
        steps = np.diff(lane.shape, axis=0)
        along = np.concatenate([[0.0], np.cumsum(np.hypot(*steps.T))])
        places = np.arange(along[-1] - 2.0, 5.0, -STRETCH_M)
        for number, place_m in enumerate(places):
            part = min(int(np.searchsorted(along, place_m, side="right")) - 1, len(steps) - 1)
            heading = float(np.arctan2(steps[part, 1], steps[part, 0]))
            beside = lane.width_m / 2 + _BESIDE_M
            x = np.interp(place_m, along, lane.shape[:, 0]) + beside * np.sin(heading)
            y = np.interp(place_m, along, lane.shape[:, 1]) - beside * np.cos(heading)
            drawn, other = (float(hash_integers(seed, round(10 * x), round(10 * y), salt)) for salt in (1, 2))
            label, variant = _CLASSES[int(10 * drawn)], int(3 * other)
            if number == 0:
                label = _choose_last_sign(net, net.edges[name], highest, drawn)
            elif number == len(places) - 1:
                label = "speed limit"
            if label == "speed limit":
                variant = int(np.argmin(np.abs(np.array(LIMITS_KMH) - 3.6 * lane.speed_mps)))
            found.append((float(x), float(y), heading, _CLASSES.index(label), variant))
    table = np.array(found, dtype=np.float64).reshape(-1, 5)
    label_of, variant_of = table[:, 3].astype(np.int64), table[:, 4].astype(np.int64)
    return Signs(table[:, :2], table[:, 2], label_of, variant_of)


def _choose_last_sign(net: Net, edge: Edge, highest: Mapping[str, float], drawn: float) -> str:
    """Return the class of a street's last sign by its junction; on a minor road, ``drawn`` < 0.3: stop, else yield."""
    kind = net.junctions.get(edge.end, "")
    if kind.startswith("traffic_light"):
        return "pedestrian crossing"
    if kind == "dead_end":
        return "end of restrictions"
    if kind in ("allway_stop", "priority_stop"):
        return "stop"
    if kind == "priority":
        return "priority road" if edge.priority >= highest[edge.end] else "stop" if drawn < 0.3 else "yield"
    return "warning"


class Ground:
    """The ground from above, in tiles around the places ``at_m`` of cameras, shape (N, 2), up to VIEW_M.

    Greys, verges and buildings follow from the seed and the place.

    Attributes:
        origin: tile numbers (x, y) of the first column and row of ``tile_of``.
        tile_of: number of each tile in ``colours``, 0 for bare ground, shape (rows, columns).
        colours: one array per resolution, uint8, shape (tiles x S x S, 3), for S pixels a side.
        first_block: block numbers (x, y) of the first column and row of ``heights_dm``.
        heights_dm: height of the building or trees in each block of BLOCK_M (dm), 0 for none, shape (rows, columns).
        tints: colour of the building or trees, uint8, shape (rows, columns, 3).
        wooded: whether they are trees, shape (rows, columns).
    """

    def __init__(self, net: Net, seed: int, at_m: Floats) -> None:
        near = np.unique(np.floor(at_m / TILE_M).astype(np.int64), axis=0)
        reach = int(np.ceil(_ASLANT * VIEW_M / TILE_M))
        self.origin: Integers = near.min(axis=0) - reach
        columns, rows = near.max(axis=0) + reach + 1 - self.origin
        wanted = np.zeros((rows, columns), dtype=np.bool_)
        for column, row in near - self.origin:
            wanted[max(row - reach, 0) : row + reach + 1, max(column - reach, 0) : column + reach + 1] = True
        numbers = np.cumsum(wanted, dtype=np.int32).reshape(wanted.shape)
        self.tile_of: NDArray[np.int32] = np.where(wanted, numbers, np.int32(0))
        pixels = self._draw_tiles(net, seed)
        self.colours = [pixels.reshape(-1, 3)]
        for _ in range(LEVELS - 1):
            side = pixels.shape[1] // 2
            pixels = np.stack([
                tile.reshape(side, 2, side, 2, 3).mean(axis=(1, 3), dtype=np.float32).astype(np.uint8)
                for tile in pixels
            ])  # fmt: skip
            self.colours.append(pixels.reshape(-1, 3))
        self._build(net, seed)

    def _draw_tiles(self, net: Net, seed: int) -> NDArray[np.uint8]:
        """Draw the ground; return its pixels, (1 + tiles, S, S, 3), the first entry for bare ground; set ``_grain``."""
        side = round(TILE_M / CELL_M)
        rows, columns = np.nonzero(self.tile_of)
        grain = np.random.default_rng(seed).random((side, side, 1), dtype=np.float32)  # the same in each tile
        self._grain = np.float32(0.9) + np.float32(0.2) * grain
        patches = np.arange(side // 16)
        pixels = np.empty((len(rows) + 1, side, side, 3), dtype=np.uint8)
        pixels[0] = 82, 102, 61
        places = zip(rows + self.origin[1], columns + self.origin[0], strict=True)
        for number, (row, column) in enumerate(places, start=1):
            # verges: patches of grass and earth of 4 m, and grain
            x, y = column * len(patches) + patches, row * len(patches) + patches
            patch = hash_integers(seed, x[None, :], y[:, None], 3)
            green = _GRASS + patch[..., None].astype(np.float32) * _EARTH
            pixels[number] = green.repeat(16, axis=0).repeat(16, axis=1) * self._grain
        for paint in (self._pave, self._paint_lines):
            for lane in net.lanes:
                for start, end, gone_m in _split_polyline(lane.shape):
                    paint(pixels, lane, start, end, gone_m)
        return pixels

    def _pave(self, pixels: NDArray[np.uint8], lane: Lane, start: Floats, end: Floats, _: float) -> None:
        """Paint the surface of a lane between two points of its middle line (m) into ``pixels``, in place."""
        half_m = lane.width_m / 2
        paved = lane.paved or lane.function == "walkingarea"
        colour = ((_PAVEMENT if paved else _ASPHALT) * self._grain).astype(np.uint8)
        for part, along, across, length_m, cells in self._find_tiles(pixels, start, end, half_m):
            inside = (np.abs(across) <= half_m) & (along >= -half_m / 2) & (along <= length_m + half_m / 2)
            part[inside] = colour[cells][inside]

    def _paint_lines(self, pixels: NDArray[np.uint8], lane: Lane, start: Floats, end: Floats, gone_m: float) -> None:
        """Paint, in place, a car lane's lines or a crossing's stripes on a piece, ``gone_m`` along it; else nothing."""
        if lane.function not in ("", "crossing") or lane.paved:
            return
        half_m = lane.width_m / 2
        for part, along, across, length_m, _cells in self._find_tiles(pixels, start, end, half_m + 0.2):
            on = (along >= 0) & (along <= length_m)
            if lane.function == "crossing":
                painted = on & (np.abs(across) <= half_m) & (np.mod(along + gone_m, _STRIPE_M) < _STRIPE_M / 2)
                part[painted] = _PAINT
                continue
            dashed = np.mod(along + gone_m, _DASH_M + _GAP_M) < _DASH_M
            right, left = (np.abs(across - side * half_m) <= _MARK_M for side in (1, -1))
            # at the right of the rightmost lane a whole line; the others are dashed
            painted = on & ((right & (dashed if lane.number else True)) | (left & dashed))
            part[painted] = _PAINT

    def _find_tiles(
        self, pixels: NDArray[np.uint8], start: Floats, end: Floats, beside_m: float
    ) -> Iterator[tuple[NDArray[np.uint8], Floats, Floats, float, tuple[slice, slice]]]:
        """Yield per tile near a piece: pixels (a view), metres along and right of it, its length (m), slices."""
        side = round(TILE_M / CELL_M)
        low, high = np.minimum(start, end) - beside_m - 1, np.maximum(start, end) + beside_m + 1
        first, last = (np.floor(one / CELL_M).astype(np.int64) for one in (low, high))
        length_m = float(np.hypot(*(end - start)))
        ux, uy = (end - start) / length_m if length_m > 0 else (1.0, 0.0)
        for row in range(first[1] // side, last[1] // side + 1):
            for column in range(first[0] // side, last[0] // side + 1):
                i, j = row - self.origin[1], column - self.origin[0]
                if not (0 <= i < self.tile_of.shape[0] and 0 <= j < self.tile_of.shape[1]) or not self.tile_of[i, j]:
                    continue
                x, y = TILE_M * np.array([column + 0.5, row + 0.5]) - start
                if abs(uy * x - ux * y) > beside_m + 1 + TILE_M * 0.71:  # a diagonal street's box is large
                    continue
                xs = np.arange(max(first[0], column * side), min(last[0], column * side + side - 1) + 1)[None, :]
                ys = np.arange(max(first[1], row * side), min(last[1], row * side + side - 1) + 1)[:, None]
                dx, dy = CELL_M * (xs + 0.5) - start[0], CELL_M * (ys + 0.5) - start[1]
                cells = (
                    slice(ys[0, 0] - row * side, ys[-1, 0] - row * side + 1),
                    slice(xs[0, 0] - column * side, xs[0, -1] - column * side + 1),
                )
                part = pixels[self.tile_of[i, j]][cells]
                yield part, ux * dx + uy * dy, uy * dx - ux * dy, length_m, cells

    def _build(self, net: Net, seed: int) -> None:
        """Set ``first_block``, ``tints``, ``wooded`` and ``heights_dm``, which is 0 on a lane and within 3 m of one."""
        margin_m = _ASLANT * (SKYLINE_M - VIEW_M)
        self.first_block: Integers = np.floor((TILE_M * self.origin - margin_m) / BLOCK_M).astype(np.int64)
        last = TILE_M * (self.origin + self.tile_of.shape[::-1]) + margin_m
        columns_rows = np.floor(last / BLOCK_M).astype(np.int64) + 1 - self.first_block
        shape = (int(columns_rows[1]), int(columns_rows[0]))
        self.heights_dm = np.zeros(shape, dtype=np.uint8)
        self.tints = np.zeros((*shape, 3), dtype=np.uint8)
        self.wooded = np.zeros(shape, dtype=np.bool_)
        free = self._find_free(net, shape)
        columns = self.first_block[0] + np.arange(shape[1])
        for place in range(shape[0]):  # row by row: a net may be large
            row = int(self.first_block[1]) + place
            district = hash_integers(seed, columns // 20, row // 20, 6)  # towns and woods of 120 m
            drawn, tall, tone = (hash_integers(seed, columns, row, salt) for salt in (7, 8, 9))
            wooded = hash_integers(seed, columns, row, 10) > district
            heights_dm = np.where(wooded, 30 + 60 * tall, 50 + 150 * tall * district)
            self.heights_dm[place] = np.where(free[place] & (drawn < 0.25 + 0.5 * district), heights_dm, 0)
            house, tree = _HOUSE + tone[:, None] * _ITS_TONES, _TREE + tone[:, None] * _TREES_TONES
            self.tints[place] = np.where(wooded[:, None], tree, house)
            self.wooded[place] = wooded

    def _find_free(self, net: Net, shape: tuple[int, ...]) -> NDArray[np.bool_]:
        """Return whether each block is free, in ``shape`` (rows, columns): no lane is in it or within 3 m of it."""
        free = np.ones(shape, dtype=np.bool_)
        for lane in net.lanes:
            for start, end, _ in _split_polyline(lane.shape):
                length_m = float(np.hypot(*(end - start)))
                steps = np.linspace(0, 1, max(2, int(length_m / 2) + 1))[:, None]
                points = start + steps * (end - start)
                reach_m = lane.width_m / 2 + 3
                for offset in product((-reach_m, 0, reach_m), repeat=2):
                    column, row = (np.floor((points + offset) / BLOCK_M).astype(np.int64) - self.first_block).T
                    inside = (row >= 0) & (row < shape[0]) & (column >= 0) & (column < shape[1])
                    free[row[inside], column[inside]] = False
        return free


def _split_polyline(shape: Floats) -> Sequence[tuple[Floats, Floats, float]]:
    """Return each straight piece of a polyline: its start, its end, and the length of the polyline before it (m)."""
    lengths = np.hypot(*np.diff(shape, axis=0).T)
    gone = np.concatenate([[0.0], np.cumsum(lengths)])
    return [(shape[i], shape[i + 1], float(gone[i])) for i in range(len(shape) - 1)]
