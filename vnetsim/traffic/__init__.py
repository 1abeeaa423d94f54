"""Traffic: live SUMO, recordings, traffic sources such as the truncated-Gaussian model, and replays of earlier runs."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from vnetsim.coverage.windows import TrafficStream
from vnetsim.experiment import Experiment
from vnetsim.progress import ProgressDisplay
from vnetsim.scenario.kinds import kind_of, refuse_unread, unknown_kind

if TYPE_CHECKING:
    from vnetsim.scenario.plugins import ResolvedPlugin


def open_traffic(
    experiment: Experiment,
    *,
    repeat: bool | None = None,
    outputs: Path | None = None,
    progress: ProgressDisplay | None = None,
    source: ResolvedPlugin | None = None,
) -> TrafficStream:
    """Open the experiment's scenario; imports only what its kind of traffic needs.

    ``repeat`` replaces ``experiment.traffic.repeat``; None keeps it. If true, live SUMO and sources that draw more,
    such as the Gaussian model, go on after their end; recordings and replays do not. ``outputs`` is the folder for the
    files that the scenario makes SUMO write; None for a temporary one. ``progress`` shows the search for the busiest
    junction; None for no display. ``source`` is the traffic source with its settings, if already found.

    InputError if the scenario is of an unknown kind, missing or malformed, or does not read a setting that is set;
    RunError if SUMO cannot be started, or a traffic source failed.
    """
    kind = kind_of(experiment.scenario)
    if kind is None:
        raise unknown_kind(experiment.scenario)
    if kind.reads is not None:
        refuse_unread(experiment, experiment.scenario, kind.reads)
    again = experiment.traffic.repeat if repeat is None else repeat
    module, _, name = kind.opener.partition(":")
    found = {} if source is None else {"source": source}
    opened: TrafficStream = getattr(import_module(module), name)(
        experiment, repeat=again, outputs=outputs, progress=progress, **found
    )
    return opened
