"""Export of a run as a video: the page's playback, drawn by matplotlib with the same data, colours and legend."""

from __future__ import annotations

import io
import math
import subprocess
import tempfile
from pathlib import Path
from typing import Any, cast

import numpy as np
from matplotlib.animation import FFMpegWriter
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from matplotlib.markers import MarkerStyle
from matplotlib.patches import Circle
from matplotlib.path import Path as Outline
from numpy.typing import NDArray
from PIL import Image

from analysis.formatting import clean, count, number, plural, shortened
from analysis.loading import RunData, load
from analysis.plots.place import covered_extent, join_polylines
from analysis.report.playback import MOST_WINDOWS, PER_S, handovers_of, headline_curve, participations_of, read_paths
from analysis.style import BLUE, GREEN, GREY, INK, ORANGE, PALE, PINK, SKY, VERMILION, YELLOW, Figure, styled
from vnetsim.errors import InputError, RunError, one_line
from vnetsim.progress import ProgressDisplay
from vnetsim.storage.folder import Folder

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FRAMES_PER_S = {".mp4": 20, ".gif": 10}
"""Frames in a second of video, by suffix of the file."""
LONGEST_S = 60
"""Longest video (s); a longer run is shown faster."""
SLOWEST = 10
"""Simulated seconds in a second of video; multiples of it for longer runs."""
_WIDTH_PX, _DPI = 800, 100
_TITLE_PX, _SAYS_PX, _MARGIN_PX, _MOST_IN_A_ROW = 32, 28, 10, 7
_MARK_S, _MOST_MARKED_S = 4, 60
"""Seconds of video, and simulated seconds, for which the end of a participation or a handover stays visible."""
_BAR = Outline([(-2, -5), (2, -5), (2, 5), (-2, 5), (-2, -5)])
_TICK = Outline([(-6, 0), (-1, -5), (7, 6)])
STAGES: tuple[tuple[str, str, Any, float], ...] = (
    ("downloading", SKY, "v", 11),
    ("waiting for others", YELLOW, _BAR, 10),
    ("exchanging", PINK, "D", 8),
    ("training", ORANGE, "s", 9),
    ("outside coverage", GREY, "o", 11),
    ("uploading", BLUE, "^", 11),
)
"""Word, colour, marker and size (px) of each stage, in the order of ``analysis.report.playback.STAGES``."""
_IDLE: tuple[str, Any, float] = (GREY, "o", 6)
_DOWNLOAD, _UPLOAD = 0, 5
_RING: dict[str, Any] = {"ls": "", "marker": "o", "mfc": "none", "mec": PINK, "ms": 13, "mew": 1.4}
_QUIET = "#57606a"


def _pt(px: float) -> float:
    """Convert a length from pixels to points."""
    return px * 72 / _DPI


def export_video(folder: Path, to: Path, progress: ProgressDisplay) -> Path:
    """Write the playback of a run or of recorded traffic as a video to ``to``, and return ``to``.

    It lasts at most ``LONGEST_S``; of many windows it shows those of every k-th vehicle, and says so. InputError:
    ``folder`` is no run, damaged or without a vehicle; ``to`` exists, has another suffix than ``.mp4`` or ``.gif``, or
    needs ffmpeg, which is missing. RunError: ffmpeg failed, or ``to`` cannot be written.
    """
    if to.suffix not in FRAMES_PER_S:
        raise InputError(f"{to}: expected a file that ends in {', '.join(FRAMES_PER_S)}.")
    if to.exists():
        raise InputError(f"{to}: is there already; name a new file.")
    with styled():
        if to.suffix == ".mp4" and not FFMpegWriter.isAvailable():
            raise InputError(f"{to}: .mp4 needs the program ffmpeg, which is not on the PATH; or name a .gif file.")
        run = load(folder)
        if run.paths is None or run.windows.is_empty():
            raise InputError(f"{folder}: no vehicle was in coverage; there is nothing to show.")
        frames = _Frames(run, FRAMES_PER_S[to.suffix], progress)
        content = _encode_mp4(frames, to) if to.suffix == ".mp4" else _encode_gif(frames)
    Folder(to.parent).write_output(to.name, content)
    return to


def _encode_gif(frames: _Frames) -> bytes:
    """Return the frames as an animated GIF."""
    buffer, palette = io.BytesIO(), _make_palette()
    pictures = (frames.draw(k).quantize(palette=palette, dither=Image.Dither.NONE) for k in range(len(frames)))
    duration_ms = 1000 // frames.per_s
    next(pictures).save(buffer, "gif", save_all=True, append_images=pictures, duration=duration_ms, loop=0)
    return buffer.getvalue()


def _make_palette() -> Image.Image:
    """Return an image whose palette has the frames' colours, each blended with white and with covered ground."""
    # a palette chosen by frequency would lack the colours of rare, small symbols
    white, opaque = np.ones(3), np.linspace(0, 1, 10)[:, None]
    covered = 0.93 * white + 0.07 * np.array(to_rgb(BLUE))
    names = dict.fromkeys((*(colour for _, colour, *_ in STAGES), GREEN, VERMILION, INK, _QUIET))
    blends = [np.array((to_rgb(PALE), 0.93 * np.array(to_rgb(PALE)) + covered - 0.93))]
    blends += [opaque * to_rgb(name) + (1 - opaque) * ground for name in names for ground in (white, covered)]
    palette = Image.new("P", (1, 1))
    palette.putpalette(np.rint(255 * np.concatenate(blends)).astype(np.uint8).tobytes())
    return palette


def _encode_mp4(frames: _Frames, to: Path) -> bytes:
    """Return the frames as MP4, encoded by ffmpeg; RunError, which names ``to``, if ffmpeg fails."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, "video.mp4")
        writer = FFMpegWriter(fps=frames.per_s)
        for artist in frames.moving:
            artist.set_animated(False)  # a figure is saved without its animated texts
        try:
            with writer.saving(frames.figure, str(file), _DPI):
                for k in range(len(frames)):
                    frames.move_artists(k)
                    writer.grab_frame(facecolor="white")
            return file.read_bytes()
        except (OSError, subprocess.CalledProcessError) as error:
            said = " ".join(str(getattr(error, "stderr", "")).split())
            raise RunError(f"{to}: ffmpeg failed: {said[-300:] or one_line(error)}") from error


class _Motion:
    """Where every ``every``-th vehicle is and what it does, as the page plays it: times in s, places in m."""

    def __init__(self, run: RunData, every: int) -> None:
        played = read_paths(run, every)
        self.index = {name: k for k, name in enumerate(played.vehicles)}, {one.id: k for k, one in enumerate(run.rsus)}
        self.parts = participations_of(run, *self.index)
        columns, self.begin_s = played.columns, played.begin_s
        counts = columns["path_points"].astype(np.int64)
        first = np.cumsum(counts) - counts
        time_s = columns["time"] / PER_S
        self.end_s = self.begin_s + float(time_s.max())
        # of each path, in the order of their first points
        self.path = np.argsort(time_s[first], kind="stable").astype(np.int64)
        self.vehicle: Ints = columns["path_vehicle"][self.path].astype(np.int64)
        self.from_s, self.to_s = (self.begin_s + time_s[ends][self.path] for ends in (first, first + counts - 1))
        # of each point: time since begin_s plus path * stride, so that one interpolation serves all paths
        self._stride = float(time_s.max()) + 1.0
        self._at = np.repeat(np.arange(len(counts)) * self._stride, counts) + time_s
        self._places_m = [columns[axis] * played.step_m + played.origin_m[k] for k, axis in enumerate("xy")]
        stages: list[tuple[float, ...]] = []
        for vehicle, rsu, _, _, begin_s, end_s, spent in self.parts:
            start_s = begin_s
            for stage, seconds in spent or [(_DOWNLOAD, 0.0)]:
                stages.append((vehicle, stage, rsu, begin_s, start_s, min(start_s + seconds, end_s)))
                start_s += seconds
            stages[-1] = (*stages[-1][:-1], end_s)
        of_stages = np.array(stages, np.float64).reshape(-1, 6).T
        self._who, self.stage, self._rsu = of_stages[:3].astype(np.int64)
        self._began_s, self._starts_s, self._stops_s = of_stages[3:]  # the first of the whole participation

    def locate(self, paths: Ints, time_s: float | Floats) -> Floats:
        """Return x and y (m), shape (n, 2), on n paths, given by number, at one time (s) or one time each."""
        at = self.path[paths] * self._stride + (time_s - self.begin_s)
        return np.column_stack([np.interp(at, self._at, axis_m) for axis_m in self._places_m])

    def find_covered(self, time_s: float) -> Ints:
        """Return the number of one path for each vehicle covered at a time (s), in order of vehicles; may be empty."""
        some = np.flatnonzero((self.from_s <= time_s) & (time_s < self.to_s))
        return some[np.unique(self.vehicle[some], return_index=True)[1]]

    def find_stages(self, time_s: float) -> dict[int, tuple[int, int, float]]:
        """Return (index in ``STAGES``, inviting RSU, begin (s)) by vehicle with a participation at a time (s)."""
        some = np.flatnonzero((self._starts_s <= time_s) & (time_s < self._stops_s))[::-1]  # the first one counts
        columns = (self.stage[some].tolist(), self._rsu[some].tolist(), self._began_s[some].tolist())
        return dict(zip(self._who[some].tolist(), zip(*columns, strict=True), strict=True))


class _Frames:
    """The frames of a video with ``per_s`` frames a second: a figure, and its artists ``moving``."""

    def __init__(self, run: RunData, per_s: int, progress: ProgressDisplay) -> None:
        progress.stage("reading paths")
        self.per_s = per_s
        self._run, self._progress = run, progress
        self._idle_word = "not invited" if run.takes_part else "in coverage"
        self._every = -(-run.windows.height // MOST_WINDOWS)
        self._motion = _Motion(run, self._every)
        handovers = handovers_of(run, *self._motion.index)
        self._changes: dict[int, list[tuple[float, int]]] = {}  # by vehicle: when it changed its RSU, and to which
        for vehicle, at_s, _, to, *_ in handovers:
            self._changes.setdefault(vehicle, []).append((at_s, to))
        went_on = [one for one in handovers if one[-1] != "drop"]
        self._handed_over = [(vehicle, start, to) for vehicle, _, start, to, *_ in went_on]
        self._resumed_s = np.array([at_s + gap_s for _, at_s, _, _, gap_s, *_ in went_on])
        self._rounds = run.rounds.sort("close_s").select("close_s", "committed").rows()
        self._curve = headline_curve(run)
        self._span_s = self._motion.end_s - self._motion.begin_s
        self._speed = max(1, math.ceil(self._span_s / (LONGEST_S * SLOWEST))) * SLOWEST
        self._marked_s = min(_MARK_S * self._speed, _MOST_MARKED_S)
        self._ends = self._find_ends()
        self._rsus = np.array([(one.x_m, one.y_m) for one in run.rsus])
        self._make_figure()
        self._canvas = cast("Any", FigureCanvasAgg(self.figure))
        self._canvas.draw()
        self._still = self._canvas.copy_from_bbox(self.figure.bbox)
        progress.stage("drawing frames")

    def __len__(self) -> int:
        return max(2, math.ceil(self._span_s / self._speed * self.per_s) + 1)

    def draw(self, k: int) -> Image.Image:
        """Return frame ``k`` as an RGB image."""
        self.move_artists(k)
        self._canvas.restore_region(self._still)
        for artist in self.moving:
            self.figure.draw_artist(artist)
        return Image.fromarray(np.asarray(self._canvas.buffer_rgba())[..., :3].copy())

    def move_artists(self, k: int) -> None:
        """Move the artists ``moving`` of ``figure`` to where frame ``k`` has them, and advance the progress display."""
        motion = self._motion
        time_s = min(motion.begin_s + k * self._speed / self.per_s, motion.end_s)
        self._progress.advance(time_s=time_s - motion.begin_s, done=k + 1, total=len(self))
        paths = motion.find_covered(time_s)
        places, doing = motion.locate(paths, time_s), motion.find_stages(time_s)
        vehicles = motion.vehicle[paths].tolist()
        stages = np.array([doing.get(vehicle, (-1,))[0] for vehicle in vehicles], np.int64)
        for stage, line in enumerate(self._symbols, -1):
            line.set_data(*places[stages == stage].T)
        for stage, lines in self._links.items():
            senders = [vehicles[i] for i in np.flatnonzero(stages == stage)]
            rsus = [self._find_serving_rsu(vehicle, *doing[vehicle][1:], time_s) for vehicle in senders]
            lines.set_segments(list(np.stack((places[stages == stage], self._rsus[rsus]), 1)) if rsus else [])
        self._move_marks(time_s, dict(zip(vehicles, places, strict=True)))
        every = self._every * self._run.every
        some = f", 1 in {count(every)} vehicles" if every > 1 else ""
        self._clock.set_text(f"{time_s:.1f} s, {self._speed} x as fast{some}")
        self._counts.set_text(self._count_words(time_s, stages))
        self._now.set_xdata([time_s, time_s])
        if self._curve is not None:
            points = np.array(self._curve["points"])
            last = max(int(np.searchsorted(points[:, 0], time_s, side="right")) - 1, 0)
            self._value.set_data([min(time_s, points[-1, 0])], [np.interp(time_s, *points.T)])
            unit = f" {self._curve['unit']}" if self._curve["unit"] else ""
            self._label.set_text(f"{self._curve['label']}: {number(points[last, 1])}{unit}")

    def _find_ends(self) -> tuple[Floats, NDArray[np.bool_], Floats]:
        """Return time (s), whether committed, and place (m), (n, 2), of each participation that ended in coverage."""
        motion = self._motion
        by_vehicle: dict[int, list[int]] = {}
        for path, vehicle in enumerate(motion.vehicle.tolist()):
            by_vehicle.setdefault(vehicle, []).append(path)
        found = [
            (to_s, outcome == "committed", path)
            for vehicle, _, _, outcome, _, to_s, _ in motion.parts
            for path in by_vehicle.get(vehicle, [])
            if motion.from_s[path] - 0.5 / PER_S <= to_s <= motion.to_s[path] + 0.5 / PER_S
        ]
        times_s = np.array([one[0] for one in found])
        places = motion.locate(np.array([one[2] for one in found], np.int64), times_s)
        return times_s, np.array([one[1] for one in found], bool), places

    def _find_serving_rsu(self, vehicle: int, rsu: int, began_s: float, time_s: float) -> int:
        """Return the RSU of a vehicle's last handover from ``began_s`` to ``time_s``; ``rsu`` if there was none."""
        changes = reversed(self._changes.get(vehicle, []))
        return next((to for at_s, to in changes if began_s <= at_s <= time_s), rsu)

    def _move_marks(self, time_s: float, where: dict[int, Floats]) -> None:
        """Show the last ends of participations and handovers, fading; ``where`` is (x, y) (m) by covered vehicle."""
        times_s, committed, places = self._ends
        age = (time_s - times_s) / self._marked_s
        recent = (age >= 0) & (age <= 1)
        for marks, colour, which in ((self._ticks, GREEN, committed), (self._crosses, VERMILION, ~committed)):
            some = recent & which
            marks.set(offsets=places[some], edgecolor=[(*to_rgb(colour), 1 - one) for one in age[some]])
        arcs, colours, around = [], [], []
        since = (time_s - self._resumed_s) / self._marked_s
        for one in np.flatnonzero((since >= 0) & (since <= 1)):
            vehicle, start, to = self._handed_over[one]
            (u, v), (x, y) = self._rsus[start], self._rsus[to]
            s = np.linspace(0, 1, 21)[:, None]
            middle = ((u + x) / 2, max(v, y) + 24 / self._px_per_m)
            arcs.append((1 - s) ** 2 * (u, v) + 2 * s * (1 - s) * middle + s * s * (x, y))
            colours.append((*to_rgb(PINK), 1 - since[one]))
            around += [where[vehicle]] if vehicle in where else []
        self._arcs.set(segments=arcs, color=colours)
        self._rings.set_data(*np.reshape(around, (-1, 2)).T)

    def _count_words(self, time_s: float, stages: Ints) -> str:
        """Return the text for a time: rounds closed, updates committed, and the number of vehicles in each stage."""
        words = []
        if self._rounds:
            closed = [committed for close_s, committed in self._rounds if close_s <= time_s]
            words.append(f"{len(closed)} of {plural(len(self._rounds), 'round')} closed, {sum(closed)} committed")
        found = [(int((stages == stage).sum()), name) for stage, (name, *_) in enumerate(STAGES)]
        counts = [(int((stages < 0).sum()), self._idle_word), *(one for one in found if one[0])]
        words.append(", ".join(f"{n} {name}" for n, name in counts))
        return " \u00b7 ".join(words)

    def _make_figure(self) -> None:
        """Set ``figure``, with all that does not move, and the artists ``moving``."""
        run = self._run
        west, east, south, north = covered_extent(run.rsus)
        entries = self._legend_entries()
        columns = len(entries) if len(entries) <= _MOST_IN_A_ROW else -(-len(entries) // 2)
        legend_px, strip_px = 26 if columns == len(entries) else 44, 84 if self._curve is not None else 30
        map_px = int(np.clip(1.06 * _WIDTH_PX * (north - south) / (east - west), 220, 560))
        height_px = _TITLE_PX + map_px + _SAYS_PX + strip_px + legend_px
        self.figure = Figure((_WIDTH_PX / _DPI, height_px / _DPI))
        self.figure.set(dpi=_DPI, facecolor="white")

        def add_axes(top_px: float, size_px: float, left_px: float = _MARGIN_PX) -> Axes:
            """Add axes ``size_px`` high, ``top_px`` below the top, from ``left_px`` to the right margin."""
            box = left_px, height_px - top_px - size_px, _WIDTH_PX - left_px - _MARGIN_PX, size_px
            return self.figure.add_axes(tuple(np.divide(box, (_WIDTH_PX, height_px) * 2)))

        inner_px = _WIDTH_PX - 2 * _MARGIN_PX
        self._px_per_m = 0.96 * min(inner_px / (east - west), map_px / (north - south))
        ax = add_axes(_TITLE_PX, map_px)
        ax.set(xticks=[], yticks=[])
        ax.set_xlim((west + east - inner_px / self._px_per_m) / 2, (west + east + inner_px / self._px_per_m) / 2)
        ax.set_ylim((south + north - map_px / self._px_per_m) / 2, (south + north + map_px / self._px_per_m) / 2)
        ax.spines[:].set(visible=True, color=PALE)
        if not run.lanes.is_empty():
            width_px = float(np.clip(3 * self._px_per_m, 1, 6))
            ax.plot(*join_polylines(run.lanes), color=PALE, linewidth=_pt(width_px), zorder=0.8)
        for rsu in run.rsus:
            at = rsu.x_m, rsu.y_m
            ax.add_patch(Circle(at, rsu.range_m, facecolor=(*to_rgb(BLUE), 0.07), edgecolor=(*to_rgb(BLUE), 0.5)))
            ax.plot(*at, "^", color=INK, markersize=_pt(11), markeredgewidth=0)
            if rsu.range_m * self._px_per_m > 45:
                place = rsu.x_m, rsu.y_m + rsu.range_m - 9 / self._px_per_m
                ax.text(*place, shortened(rsu.id, 24), color=_QUIET, ha="center", va="top", clip_on=True)
        learner = run.manifest.learner
        what = f"{clean(learner.name, 40)} on {run.scenario}" if learner and run.takes_part else run.scenario
        title_y = 1 - _TITLE_PX / 2 / height_px
        self.figure.text(_MARGIN_PX / _WIDTH_PX, title_y, shortened(what, 60), va="center", weight="bold")
        self._clock = self.figure.text(1 - _MARGIN_PX / _WIDTH_PX, title_y, "", va="center", ha="right")
        says_px = _TITLE_PX + map_px + _SAYS_PX / 2
        self._counts = self.figure.text(_MARGIN_PX / _WIDTH_PX, 1 - says_px / height_px, "", va="center")
        self._add_symbols(ax)
        self._add_strip(add_axes(_TITLE_PX + map_px + _SAYS_PX + 16, strip_px - 20, _MARGIN_PX + 48))
        self.figure.legend(handles=entries, loc="lower left", ncols=columns, bbox_to_anchor=(_MARGIN_PX / _WIDTH_PX, 0))
        self.moving: list[Artist] = [
            *self._links.values(), *self._symbols, self._ticks, self._crosses, self._arcs, self._rings,
            self._clock, self._counts, self._now, *([self._value, self._label] if self._curve is not None else []),
        ]  # fmt: skip
        for artist in self.moving:
            artist.set_animated(True)

    def _legend_entries(self) -> list[Line2D]:
        """Return the legend's entries; stages, handovers and outcomes only if the run can have them."""
        looks = [(self._idle_word, _symbol_style(*_IDLE))]
        if self._run.takes_part:
            seen = {0, 3, 5, *self._motion.stage.tolist()} | ({1, 2} if self._run.exchange_plan is not None else set())
            looks += [(name, _symbol_style(*look)) for stage, (name, *look) in enumerate(STAGES) if stage in seen]
            looks += [("handed over", {**_RING, "ms": _pt(10)})] * bool(self._handed_over)
            mark = {"ls": "", "mfc": "none", "ms": _pt(12), "mew": 1.8}
            looks.append(("committed", {**mark, "marker": _TICK, "mec": GREEN}))
            looks.append(("lost", {**mark, "marker": "x", "mec": VERMILION}))
        return [Line2D([], [], label=word, **look) for word, look in looks]

    def _add_symbols(self, ax: Axes) -> None:
        """Add to the map the artists of vehicles, transfers, ends of participations and handovers, all empty."""
        self._links = {
            _DOWNLOAD: LineCollection([], colors=SKY, linewidths=1.1, linestyles=(0, (3.6, 2.7)), zorder=2.5),
            _UPLOAD: LineCollection([], colors=BLUE, linewidths=1.1, zorder=2.5),
        }
        self._arcs = LineCollection([], linewidths=1.5, zorder=4)
        for lines in (*self._links.values(), self._arcs):
            ax.add_collection(lines, autolim=False)
        looks = [_IDLE, *((colour, marker, size) for _, colour, marker, size in STAGES)]
        self._symbols = [ax.plot([], [], zorder=3, **_symbol_style(*look))[0] for look in looks]
        self._ticks = ax.scatter([], [], s=_pt(14) ** 2, marker=MarkerStyle(_TICK), facecolors="none", linewidths=1.8)
        self._crosses = ax.scatter([], [], s=_pt(10) ** 2, marker="x", linewidths=1.8)
        (self._rings,) = ax.plot([], [], zorder=4, **_RING)

    def _add_strip(self, ax: Axes) -> None:
        """Draw the metric (if any), ends of rounds and the present time on ``ax``; keep the artists that move."""
        ax.set(xlim=(self._motion.begin_s, self._motion.end_s), xticks=[], ylim=(-0.1, 1.1), yticks=[])
        ax.spines["left"].set_visible(False)
        ax.grid(visible=False)
        closes_s = [close_s for close_s, _ in self._rounds]
        ax.plot(closes_s, np.zeros(len(closes_s)), "|", color=GREY, ms=6, mew=0.8, transform=ax.get_xaxis_transform())
        self._now = ax.axvline(self._motion.begin_s, color=INK, linewidth=0.8)
        if self._curve is None:
            return
        points = np.array(self._curve["points"]).reshape(-1, 2)
        low, high = float(points[:, 1].min()), float(points[:, 1].max())
        room, ticks = 0.12 * ((high - low) or 1.0), sorted({low, high})
        ax.set(ylim=(low - room, high + room), yticks=ticks, yticklabels=map(number, ticks))
        ax.tick_params(axis="y", length=0)
        ax.plot(*points.T, color=BLUE, linewidth=1.4)
        (self._value,) = ax.plot([], [], "o", color=BLUE, markersize=_pt(7), clip_on=False)
        self._label = ax.text(0, 1.0, "", transform=ax.transAxes, va="bottom", color=_QUIET)


def _symbol_style(colour: str, marker: Any, size_px: float) -> dict[str, Any]:
    """Return matplotlib's arguments of a line that draws only symbols, of a size in px, with a white rim."""
    return {"ls": "", "color": colour, "marker": marker, "ms": _pt(size_px), "mec": "white", "mew": _pt(1)}
