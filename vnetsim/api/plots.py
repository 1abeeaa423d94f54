"""Figures of a run for Python, on matplotlib axes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vnetsim.errors import InputError
from vnetsim.own_packages import claim

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Plots:
    """Figures of the run ``path`` as its page draws them, on matplotlib axes: ``run.plot.dwell()``.

    Each method draws on ``ax``, or on axes of a new figure of pyplot, which a notebook shows, and returns the axes. It
    raises InputError if there is nothing to draw or ``ax`` is not an ``Axes``.

    Examples:
        >>> import vnetsim
        >>> traffic = vnetsim.mobility("gaussian", traffic__end_s=30, out="traffic")
        >>> traffic.plot.dwell().get_xlabel()
        'dwell time (s)'
    """

    path: Path

    def accuracy(self, ax: Axes | None = None) -> Axes:
        """Draw the accuracies (%) at the page's top by round, and return the axes; InputError if the run has none."""
        return self._draw("accuracy", ax, (5.0, 3.4))

    def dwell(self, ax: Axes | None = None) -> Axes:
        """Draw a histogram of coverage windows by dwell time (s), and return the axes; InputError if there are none."""
        return self._draw("dwell", ax, (5.0, 3.4))

    def map(self, ax: Axes | None = None) -> Axes:
        """Draw streets, RSUs with ranges (m), and mean speeds of covered vehicles by place (km/h); return the axes."""
        return self._draw("map", ax, (6.4, 5.4))

    def _draw(self, figure_name: str, ax: Axes | None, size_in: tuple[float, float]) -> Axes:
        """Draw accuracy, dwell or map on ``ax``, None for a new figure, and return it; InputError: nothing to draw."""
        claim("analysis")
        import matplotlib.pyplot as plt  # noqa: PLC0415 - matplotlib only for figures
        from matplotlib.axes import Axes as MatplotlibAxes  # noqa: PLC0415

        from analysis.loading import load  # noqa: PLC0415
        from analysis.plots.learning import draw_accuracy  # noqa: PLC0415
        from analysis.plots.place import draw_map  # noqa: PLC0415
        from analysis.plots.traffic import draw_dwell  # noqa: PLC0415
        from analysis.style import styled  # noqa: PLC0415

        if not (ax is None or isinstance(ax, MatplotlibAxes)):
            raise InputError(f"ax: expected matplotlib axes, such as plt.gca(), got {type(ax).__name__}.")
        run = load(self.path)
        if figure_name == "dwell" and run.windows.is_empty():
            raise InputError(f"{self.path}: no vehicle was in coverage; there is no dwell time to draw.")
        draws: dict[str, Callable[..., object]] = {"accuracy": draw_accuracy, "dwell": draw_dwell, "map": draw_map}
        with styled():
            figure = None
            if ax is None:
                figure, ax = plt.subplots(figsize=size_in, layout="constrained", facecolor="white")
            if draws[figure_name](ax, run) is False:
                if figure is not None:
                    plt.close(figure)
                known = ", ".join(dict.fromkeys(run.metrics["name"])) or "none"
                raise InputError(f"{self.path}: has no accuracy to draw; its metrics: {known}.")
            return ax
