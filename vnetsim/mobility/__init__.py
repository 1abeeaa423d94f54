"""Traffic: live SUMO, recordings, the truncated-Gaussian model, and the replay of earlier runs."""

from __future__ import annotations

from pathlib import Path

from vnetsim.coverage import Traffic
from vnetsim.errors import InputError
from vnetsim.experiment import Experiment
from vnetsim.random_streams import Streams

RECORDINGS = (".xml", ".xml.gz", ".csv", ".csv.gz", ".parquet")
"""Suffixes of SUMO's floating-car data (FCD)."""


def open_traffic(experiment: Experiment, *, repeat: bool | None = None) -> Traffic:
    """Open the experiment's scenario.

    Each kind is imported only when it is opened, so that none pays for the libraries of another.

    Args:
        experiment: names the scenario: a ``.sumocfg``, an FCD recording, a run directory (or its ``windows.parquet``)
            to replay, or the word ``gaussian``.
        repeat: overrides ``experiment.traffic.repeat``. Live SUMO and the Gaussian model play again; a recording or a
            replay ends where it ends.

    Raises:
        InputError: when the scenario is of no known kind, missing or malformed.
    """
    scenario = experiment.scenario
    again = experiment.traffic.repeat if repeat is None else repeat
    if scenario == "gaussian":
        from vnetsim.mobility.gaussian import GaussianTraffic  # noqa: PLC0415 - only what is opened is imported

        return GaussianTraffic(experiment.gaussian, Streams(seed=experiment.seed).child("traffic"), repeat=again)
    path = Path(scenario)
    if path.is_dir() or path.name == "windows.parquet":
        from vnetsim.mobility.replay import ReplayTraffic  # noqa: PLC0415 - see above

        return ReplayTraffic(path)
    if path.suffix == ".sumocfg":
        from vnetsim.mobility.sumo import SumoTraffic  # noqa: PLC0415 - see above

        return SumoTraffic(path, experiment.traffic, repeat=again)
    if path.name.endswith(RECORDINGS):
        from vnetsim.mobility.fcd import FcdTraffic  # noqa: PLC0415 - see above

        return FcdTraffic(path, experiment.traffic)
    kinds = f".sumocfg, {', '.join(RECORDINGS)} (FCD recording), a run directory, or the word 'gaussian'"
    problem = "unknown kind of scenario" if path.exists() else "no such file or folder"
    raise InputError(f"{scenario}: {problem}; accepted are {kinds}.")
