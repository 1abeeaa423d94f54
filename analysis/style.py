"""Style of figures, and their conversion to SVG: fixed margins, one font, colours safe for the colour-blind.

Figures are built on ``matplotlib.figure.Figure`` without pyplot. Text stays text (searchable, small), laid out with the
metrics of matplotlib's own DejaVu Sans and shown in the reader's sans-serif font, which is narrower.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Literal, TypeVar

import matplotlib.backends.backend_svg  # registers the SVG canvas that savefig looks up
import matplotlib.figure
import numpy as np
from matplotlib import colormaps, rc_context, rc_file, rcParams
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from analysis.formatting import count

Source = TypeVar("Source")

FULL_IN, HALF_IN = 8.0, 4.1
"""Widths of figures (inches): across the page, and two side by side."""

PRINT_IN = {FULL_IN: 7.16, HALF_IN: 3.5}
"""Widths in print (inches) by width on the page: two columns, and one column."""

BLUE, ORANGE, GREEN, PINK = "#0072B2", "#E69F00", "#009E73", "#CC79A7"
SKY, VERMILION, BLACK = "#56B4E9", "#D55E00", "#000000"
"""Colours of Okabe and Ito (2008), distinguishable with every common colour vision deficiency."""

YELLOW = "#F0E442"
"""Yellow of Okabe and Ito, for areas only: lines and dots are hard to see on white."""

GREY, PALE, INK = "#9AA0A6", "#D9DCE0", "#24292F"
PALE_BLUE = "#73B2D8"
"""Fill of histograms; opaque, to hide what is behind."""
CYCLE = (BLUE, ORANGE, GREEN, VERMILION, PINK, SKY, BLACK)

VIRIDIS = ListedColormap(colormaps["viridis"](np.linspace(0.2, 0.9, 256)), name="viridis_on_both")
"""Viridis without its ends: light yellow is hard to see on a white page, dark purple on a dark one."""

OUTCOMES = {
    "committed": ("committed", GREEN),
    "left_download": ("left in download", ORANGE),
    "left_training": ("left in training", VERMILION),
    "left_exchange": ("left in exchange", YELLOW),
    "left_upload": ("left in upload", PINK),
    "deadline": ("round closed first", SKY),
    "stale": ("too stale", BLUE),
    "unfinished": ("run ended first", GREY),
    "rejected": ("rejected: not finite", BLACK),
    "not_selected": ("not selected", PALE),
}
"""Words and colour of each outcome, in the order to show them."""

_SETTINGS = Path(__file__).with_name("templates") / "figures.mplstyle"
_PRINT_SETTINGS: Any = {
    **dict.fromkeys(("font.size", "axes.labelsize", "axes.titlesize"), 8),
    "svg.fonttype": "path",
    "pdf.fonttype": 42,
}
"""Settings for print: text of 8 pt, as outlines in SVG and as embedded TrueType fonts in PDF."""
_PDFS: ContextVar[dict[str, bytes] | None] = ContextVar("pdfs", default=None)
"""Figures drawn for print, as PDF by name; None outside ``print_style``."""
_FONTS = "system-ui, 'Segoe UI', 'Helvetica Neue', Arial, 'Liberation Sans', sans-serif"
_FONT_STYLE = re.compile(r"""(<text style="[^"]*?)'DejaVu Sans'[^;"]*""")
_MARKER_COLOUR = re.compile(r"""(<defs>\s*<path id="m[0-9a-f]+"[^>]*? style=")stroke: #[0-9a-f]{6}(?:; )?""")
_GROUP_ID = re.compile(r'<g id="[A-Za-z][A-Za-z0-9.]*_[0-9_]+"')


class Figure(matplotlib.figure.Figure):
    """A figure of a size (inches); in print, ``FULL_IN`` and ``HALF_IN`` become the widths of ``PRINT_IN``."""

    def __init__(self, size: tuple[float, float]) -> None:
        width, height = size
        super().__init__((PRINT_IN.get(width, width) if _PDFS.get() is not None else width, height))


@contextmanager
def print_style() -> Iterator[dict[str, bytes]]:
    """Draw the figures of the block for print; yield a dict to which ``to_svg`` adds each figure's PDF by name."""
    pdfs: dict[str, bytes] = {}
    token = _PDFS.set(pdfs)
    try:
        yield pdfs
    finally:
        _PDFS.reset(token)


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A figure of the report, or a sentence in its place."""

    name: str  # file name without suffix
    title: str
    caption: str  # a sentence with the key numbers, or why there is no figure; text after a line break is folded
    svg: str = ""  # the figure as a complete SVG document; empty without data
    wide: bool = False  # whether it spans the page, instead of half of it
    # the same curves over other axes, as pairs of axis name ("time", "bytes") and SVG document
    against: tuple[tuple[str, str], ...] = ()

    @property
    def shown(self) -> str:
        """The part of the caption that is always visible: its first line."""
        return self.caption.partition("\n")[0]

    @property
    def folded(self) -> str:
        """The rest of the caption, after its first line break; may be empty."""
        return self.caption.partition("\n")[2]

    @property
    def drawings(self) -> dict[str, str]:
        """SVG documents of the panel by file name without suffix, ``svg`` first, which may be empty."""
        return {self.name: self.svg} | {f"{self.name}-{what}": svg for what, svg in self.against}


Drawn = tuple[matplotlib.figure.Figure | None, str]
"""A figure and its caption; without a figure (None), the caption says why."""


def panel(
    name: str, title: str, *, wide: bool = False, dpi: int = 200
) -> Callable[[Callable[[Source], Drawn]], Callable[[Source], Panel]]:
    """Return a decorator: a function that returns a figure and its caption then returns a ``Panel``.

    If the function returns None as its figure, the panel has only the caption. For ``name``, ``title`` and ``wide`` see
    ``Panel``; ``dpi`` is the resolution of the parts of the figure that are drawn as pixels.
    """

    def decorate(draw: Callable[[Source], Drawn]) -> Callable[[Source], Panel]:
        """Return ``draw`` as a function that returns a panel."""

        @wraps(draw)
        def draw_panel(source: Source) -> Panel:
            """Draw the figure and return its panel; without a figure (None) the panel has only the caption."""
            figure, caption = draw(source)
            svg = to_svg(figure, name, dpi) if figure else ""
            return Panel(name=name, title=title, caption=caption, svg=svg, wide=wide)

        return draw_panel

    return decorate


@contextmanager
def styled() -> Iterator[None]:
    """Draw the figures of the block in the report's style, whatever the user's ``matplotlibrc``, then restore it."""
    with rc_context():
        rc_file(_SETTINGS)  # resets all other settings to defaults: an untrusted matplotlibrc could run LaTeX
        rcParams.update({} if _PDFS.get() is None else _PRINT_SETTINGS)
        yield


def axes(
    figure: matplotlib.figure.Figure,
    *,
    left: float = 0.68,
    right: float = 0.12,
    bottom: float = 0.48,
    top: float = 0.12,
) -> Axes:
    """Add axes to a figure with fixed margins (inches), fix the place of their y label, and return them."""
    width, height = figure.get_size_inches()
    inner_width, inner_height = width - left - right, height - bottom - top
    ax = figure.add_axes((left / width, bottom / height, inner_width / width, inner_height / height))
    ax.yaxis.set_label_coords((0.19 - left) / inner_width, 0.5)
    return ax


def drawing(width: float, height: float, **margins: float) -> tuple[Figure, Axes]:
    """Return a new figure of a size (inches) and its only axes; ``margins`` (inches) as for ``axes``."""
    figure = Figure((width, height))
    return figure, axes(figure, **margins)


def legend(ax: Axes, columns: int = 4, handles: Sequence[Any] | None = None) -> None:
    """Put a legend above the axes; ``handles`` replace the entries of the drawn objects, which None shows."""
    ax.legend(handles=handles, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=columns)


def named_rows(ax: Axes, labels: Sequence[str], *, top: float = -0.5) -> None:
    """Label the rows y = 0, 1, ... at the left, and let y grow downwards from ``top``."""
    ax.set_yticks(range(len(labels)), labels)
    ax.set_ylim(len(labels) - 0.5, top)
    ax.tick_params(axis="y", length=0)


def stacked_rows(ax: Axes, names: Sequence[str], layers: Iterable[tuple[NDArray[np.float64], str, str]]) -> float:
    """Draw a stacked bar for each name, the first on top, from layers (values, label, colour); return the longest."""
    before = np.zeros(len(names))
    for values, words, colour in layers:
        ax.barh(range(len(names)), values, 0.7, before, color=colour, label=words)
        before += values
    named_rows(ax, names)
    ax.grid(visible=False, axis="y")
    return float(before.max())


def histogram(ax: Axes, values: NDArray[np.float64], edges: NDArray[np.float64], label: str) -> None:
    """Draw a filled histogram of ``values`` between ``edges``, and let the vertical axis begin at 0."""
    counts, _ = np.histogram(values, edges)
    ax.stairs(counts, edges, fill=True, color=PALE_BLUE, label=label)
    ax.vlines(edges[1:-1], 0, np.minimum(counts[1:], counts[:-1]), color="white", linewidth=0.6)
    ax.set_ylim(0, max(1.06 * int(counts.max()), 1))
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))


def group_digits(ax: Axes, axis: Literal["x", "y"] = "y") -> None:
    """Write the whole numbers of one axis in groups of three digits."""
    target = ax.yaxis if axis == "y" else ax.xaxis
    target.set_major_formatter(lambda value, _: count(value) if value == round(value) else f"{value:g}")


def to_svg(figure: matplotlib.figure.Figure, name: str, dpi: int = 200) -> str:
    """Return the figure as an SVG document with ids unique by ``name``; within ``print_style`` also save its PDF."""
    buffer = io.StringIO()
    with rc_context({"svg.hashsalt": name}), warnings.catch_warnings():
        # the reader's fonts draw the glyphs that DejaVu lacks
        warnings.filterwarnings("ignore", message="Glyph .* missing from font", category=UserWarning)
        figure.savefig(buffer, format="svg", dpi=dpi, metadata={"Date": None, "Creator": None})
        if (pdfs := _PDFS.get()) is not None:
            pdf = io.BytesIO()
            figure.savefig(pdf, format="pdf", dpi=dpi, metadata={"CreationDate": None})
            pdfs[name] = pdf.getvalue()
    # each use of a marker repeats its colour, where a dark page can change it
    svg = _MARKER_COLOUR.sub(r"\1", _GROUP_ID.sub("<g", buffer.getvalue()))
    return _FONT_STYLE.sub(rf"\g<1>{_FONTS}", svg)


@dataclass(frozen=True, kw_only=True)
class TimeAxis:
    """An axis of simulated time in a unit of ``seconds`` (s), which is 0 at ``begin_s`` (s)."""

    seconds: float
    unit: str
    begin_s: float

    @property
    def label(self) -> str:
        """The axis label, with the unit and, if it is not 0, the begin as h:mm:ss."""
        if self.begin_s == 0:
            return f"simulated time ({self.unit})"
        begin = round(self.begin_s)
        return f"simulated time since {begin // 3600}:{begin % 3600 // 60:02d}:{begin % 60:02d} ({self.unit})"

    def of(self, time_s: Any) -> Any:
        """Return the position on the axis of simulated times (s), a number or an array."""
        return (time_s - self.begin_s) / self.seconds


def time_axis(span_s: float, begin_s: float = 0.0) -> TimeAxis:
    """Return an axis that counts from ``begin_s`` (s), in s, min or h as suits a span of ``span_s`` (s)."""
    seconds, unit = (1.0, "s") if span_s <= 300 else (60.0, "min") if span_s <= 4 * 3600 else (3600.0, "h")
    return TimeAxis(seconds=seconds, unit=unit, begin_s=begin_s)
