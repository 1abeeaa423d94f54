"""Plays the traffic once before a run, for data sets that are made of what vehicles see."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from vnetsim.coverage.windows import Entered, Left, VehiclePath
from vnetsim.errors import InputError
from vnetsim.experiment import Experiment
from vnetsim.learning.drives import RecordedDrive, RecordedTraffic
from vnetsim.learning.kinds import DATA_SETS
from vnetsim.progress import ProgressDisplay
from vnetsim.runs.assembly import Assembly
from vnetsim.runs.manifest import changed_inputs
from vnetsim.scenario.kinds import kind_of
from vnetsim.simulation.vehicle import SiloBinder
from vnetsim.storage.run_directory import RunDirectory
from vnetsim.traffic import open_traffic
from vnetsim.xml_files import XmlFile


def is_driven(experiment: Experiment, plugin: object | None = None) -> bool:
    """Return whether a data set is made of the traffic: class ``plugin``, or for None the built-in ``data.name``."""
    if plugin is None and experiment.data.name in DATA_SETS.built_in:
        plugin = DATA_SETS.find(experiment.data.name)
    return bool(getattr(plugin, "from_traffic", False))


def record_drives(assembly: Assembly, progress: ProgressDisplay) -> RecordedTraffic | None:
    """Return net and drives, one for each coverage window of an equipped vehicle, by entry; None if not needed.

    Opens the traffic and plays one pass of it. A vehicle keeps the silo of its first entry; with ``silos.by = "place"``
    each drive has its own. InputError if the traffic has no net; RunError if SUMO failed.
    """
    experiment, plugin = assembly.experiment, assembly.others.get(DATA_SETS.table)
    if not is_driven(experiment, None if plugin is None else plugin.found):
        return None
    progress.stage("playing the traffic for what vehicles see")
    quiet = experiment.with_values({"traffic.gui": False})
    traffic = open_traffic(quiet, repeat=False, source=assembly.source)
    try:
        net = _find_net(experiment, traffic.info.inputs)
        binder, own = SiloBinder(experiment.silos, traffic.rsus), dict[str, int]()
        rsus = {rsu.id: rsu for rsu in traffic.rsus}
        silo_of = dict[VehiclePath, int]()  # in order of entry
        drive_of = dict[VehiclePath, RecordedDrive]()
        for event in traffic.events():
            path = event.path
            if not experiment.traffic.equips(path.vehicle_id, traffic.info.seed):
                continue
            if isinstance(event, Entered):
                if experiment.silos.by == "place" or path.vehicle_id not in own:
                    own[path.vehicle_id] = binder.bind(path.x_m[0], path.y_m[0], rsus[path.rsu_id])[0]
                silo_of[path] = own[path.vehicle_id]
            elif isinstance(event, Left):
                window = event.window
                drive_of[path] = RecordedDrive(
                    vehicle_id=path.vehicle_id,
                    silo=silo_of[path],
                    time_s=window.path_time_s,
                    x_m=window.path_x_m,
                    y_m=window.path_y_m,
                    speed_mps=window.path_speed_mps,
                )
    finally:
        traffic.close()
    return RecordedTraffic(net=net, drives=[drive_of[path] for path in silo_of if path in drive_of])


def _find_net(experiment: Experiment, inputs: Iterable[str]) -> Path:
    """Return the net among the traffic's ``inputs``, in a replay the recording's; InputError if none or changed."""
    kind, folder, digests = kind_of(experiment.scenario), Path(experiment.scenario), dict[str, str]()
    if kind is not None and kind.name == "replay":
        folder = folder.parent if folder.is_file() else folder
        inputs = digests = RunDirectory(folder).manifest()["inputs"]
    what = f"data.name: '{experiment.data.name}'"
    waiting = [(folder, name, digests) for name in inputs]
    for folder, name, digests in waiting:
        path = (folder / name).resolve()
        replayed = path.name == "windows.parquet"
        if not (replayed or path.name.endswith((".net.xml", ".net.xml.gz")) or _is_net(path)):
            continue
        if name in digests and changed_inputs({name: digests[name]}, folder):
            raise InputError(f"{what}: {path} changed or is gone since the traffic was recorded.")
        if not replayed:
            return path
        before = RunDirectory(path.parent).manifest()["inputs"]  # a replay of a replay
        waiting += [(path.parent, one, before) for one in before]
    raise InputError(
        f"{what} is drawn from the roads on which vehicles drive, and this traffic ({experiment.scenario}) has no net: "
        "take a .sumocfg, an FCD recording with traffic.net, or another data.name."
    )


def _is_net(path: Path) -> bool:
    """Return whether a file is XML with the root element ``net``; False if it is missing or damaged before that."""
    names: list[str] = []  # of elements
    with suppress(InputError):
        any(names for _ in XmlFile(path, lambda name, _: names.append(name)).pieces())  # reads up to the first element
    return names[:1] == ["net"]
