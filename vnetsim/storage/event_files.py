"""Writes event files of TensorBoard: metrics by round and simulated time, and settings with the last metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vnetsim.errors import InputError
from vnetsim.learner_facts import AGGREGATOR
from vnetsim.storage.structure import flat

EVENTS = "events.out.tfevents."
"""Prefix of the names of event files."""
COMMITTED = "committed"
Row = tuple[int, float, str, float, str]
"""Rounds aggregated, simulated time (s), name, value, aggregator."""


def require_tensorboard() -> None:
    """Refuse to continue without tensorboardX.

    Raises:
        InputError: it is not installed.
    """
    try:
        import tensorboardX  # noqa: F401, PLC0415 - optional
    except ImportError:
        raise InputError("--tensorboard needs the package tensorboardX: pip install 'vnetsim[tensorboard]'.") from None


class EventFile:
    """A new event file in a folder; it replaces existing ones.

    With several models, each has its own curves, such as ``accuracy/rsu1``.
    """

    def __init__(self, folder: Path) -> None:
        from tensorboardX import SummaryWriter  # noqa: PLC0415 - optional

        for path in folder.glob(f"{EVENTS}*"):
            path.unlink()
        self._writer = SummaryWriter(logdir=str(folder))
        self._last: dict[str, float] = {}
        self._followed = 0, 0

    def follow(self, metrics: Sequence[Row], rounds: Sequence[Any]) -> None:
        """Write the entries that the log's lists have gained since the last call."""
        first, closed = self._followed
        committed = ((one.round + 1, one.close_s, COMMITTED, one.committed, one.aggregator) for one in rounds[closed:])
        self.append([*metrics[first:], *committed])
        self._followed = len(metrics), len(rounds)

    def append(self, rows: Iterable[Row]) -> None:
        """Write rows, and flush them for TensorBoard."""
        for round_, time_s, name, value, aggregator in rows:
            tag = name if aggregator in ("", AGGREGATOR) else f"{name}/{aggregator}"
            self._writer.add_scalar(tag, value, global_step=round_, walltime=time_s)
            if name != COMMITTED:
                self._last[tag] = float(value)
        self._writer.flush()

    def close(self, settings: Mapping[str, Any] | None = None) -> None:
        """Close the file; ``settings``, given for a finished run, are written with the last metrics first."""
        from tensorboardX.summary import hparams  # noqa: PLC0415 - optional

        if settings is not None:
            shown = {key: value if isinstance(value, _SHOWN) else str(value) for key, value in flat(settings).items()}
            for summary in hparams(shown, self._last):
                self._writer.file_writer.add_summary(summary)
        self._writer.close()


_SHOWN = (bool, int, float, str)
