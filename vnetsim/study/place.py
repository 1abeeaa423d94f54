"""Chooses places for RSUs: records all traffic of a scenario once, and compares the candidates on it."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal
from xml.sax.saxutils import quoteattr

import numpy as np
import polars as pl

from vnetsim.coverage.greedy import NO_STAYS, Stays, choose_greedily, longest_stays
from vnetsim.coverage.placement import rsus_of_file
from vnetsim.coverage.rsu import Rsu, near_lanes
from vnetsim.coverage.windows import Floats
from vnetsim.errors import InputError, unknown_name
from vnetsim.errors.paths import is_rsu_file
from vnetsim.experiment import Experiment
from vnetsim.experiment.rounds import ClockModel
from vnetsim.experiment.traffic import REACH_M
from vnetsim.plugins import plugin_errors
from vnetsim.plugins.results import number_of
from vnetsim.progress import ProgressDisplay
from vnetsim.radio import RADIO_MODELS, RATE
from vnetsim.radio.propagation import CAR_M
from vnetsim.random_streams import Streams
from vnetsim.runs.assembly import with_absolute_paths
from vnetsim.runs.writer import open_lock
from vnetsim.scenario.kinds import is_sumo, kind_of, unknown_kind
from vnetsim.scenario.plugins import ResolvedPlugin, resolve_plugin
from vnetsim.simulation.compute import vehicle_computer
from vnetsim.storage.folder import LOCK, Folder, json_bytes
from vnetsim.storage.records import RecordedEntry
from vnetsim.storage.run_directory import RunDirectory
from vnetsim.study.traffic import check_recording, deciding_settings, record_traffic
from vnetsim.traffic.net_file import NetFile
from vnetsim.traffic.sumo.config import check_scenario_files, options_of, rsu_ids

By = Literal["commits", "covered"]
RSUS = "rsus.add.xml"
_RECORD, _TRAFFIC = "place.json", "traffic"
_BESIDE_M = 1000.0  # how far from the lanes vehicles may be
_FARTHEST_M = 1e5  # radius of the recorded disc if vehicles may be anywhere
_WINDOWS = 256  # windows whose paths are in memory at once
_SITES, _LINKS, _POSITIONS = 20, 50, 1000
"""For the time of a participation: sites, links at each, and least positions kept of each piece of the recording."""
_NAMED = 5  # most RSUs of the scenario that a note names
_HOPELESS_S = 86400.0  # if a participation takes longer, a larger range does not help
_PASSES = 6
"""Work of training on an image, in forward passes: forward and backward pass (3) of two views, as in FLSimCo."""


@dataclass(frozen=True, kw_only=True)
class Places:
    """Chosen RSUs, and what they were chosen from."""

    rsus: pl.DataFrame  # see ``vnetsim.Placement``
    vehicles: int  # number of all vehicles that were recorded
    candidates: Sequence[Rsu]
    lanes: Sequence[Floats]  # polylines of the net, arrays (points, 2) in m; empty without a net
    notes: Sequence[str]  # lines for the user


def place(
    experiment: Experiment,
    folder: Path,
    *,
    budget: int,
    candidates: str,
    by: By,
    command: Sequence[str],
    progress: ProgressDisplay,
) -> Places:
    """Choose RSUs as ``vnetsim.place`` does; write them (SUMO file, CSV) and the recorded traffic into ``folder``.

    A recording that the folder has is used again; InputError if it is of another scenario or of other settings.
    """
    experiment = with_absolute_paths(experiment)
    if is_sumo(experiment.scenario):
        experiment = check_scenario_files(experiment)
    radio = resolve_plugin(RADIO_MODELS, experiment.radio)
    timed = experiment.cost.on_the_clock
    if by == "commits" and (timed is None or timed.images is None):
        raise InputError(
            "--by commits: how long a participation takes is unknown before a run; name another cost.model and "
            "cost.images, or take --by covered."
        )
    progress.stage("reading the net")
    net = _read_net(experiment, candidates)
    places = _find_candidates(experiment, net, candidates)
    if not 1 <= budget <= len(places):
        raise InputError(f"--budget: expected 1 to {len(places)}, the number of candidates, got {budget}.")
    lanes = net.all_lanes if is_sumo(experiment.scenario) else ()  # a recording may be of more than the net
    recorded = _find_or_record(experiment, _disc_around(lanes, places), folder, command, progress)
    progress.stage(f"comparing {len(places)} candidates")
    stays, vehicles, at_m = _measure_stays(recorded, places, progress)
    needed_s = 0.0
    if by == "commits" and timed is not None:
        # all junctions, so that the time does not depend on where the candidates are
        (range_m, environment), _ = Counter((one.range_m, one.environment) for one in places).most_common(1)[0]
        sites = _find_candidates(experiment, net, "junctions") if net.path else places
        sites = [replace(site, range_m=range_m, environment=environment) for site in sites]
        needed_s = participation_s(experiment, timed, radio, sites, net, at_m)
    enough = stays.stay_s >= needed_s
    order = Streams(seed=experiment.seed).generator("place").permutation(len(places))
    picks, most = choose_greedily(stays.disc[enough], stays.path[enough], len(places), budget, order)
    if not picks:
        stay = f" for the {needed_s:.3g} s that a participation takes" if 0 < needed_s < math.inf else ""
        cure = (
            "see the settings cost and compute, and whether the radio reaches as far as traffic.range_m."
            if _HOPELESS_S < needed_s < math.inf
            else "take a larger traffic.range_m, or other --candidates."
        )
        raise InputError(
            f"{experiment.scenario}: none of the {vehicles} vehicles stays in range of a candidate{stay}; {cure}"
        )
    rsus = [places[pick.place] for pick in picks]
    columns = {name: [getattr(rsu, name) for rsu in rsus] for name in ("id", "x_m", "y_m", "range_m")}
    table = pl.DataFrame({**columns, "adds": [pick.adds for pick in picks]})
    table = table.with_columns(reached=pl.col("adds").cum_sum(), share=pl.col("adds").cum_sum() / vehicles)
    notes = [*_notes(recorded, needed_s), f"No choice of {budget} reaches more than {most} vehicles."]
    notes += _notes_on_own(experiment, places, candidates)
    given_m = experiment.traffic.range_m
    if given_m and all(rsu.range_m != given_m for rsu in places):
        notes.append(f"traffic.range_m = {given_m:g} has no effect: every POI of {candidates} names its own range.")
    if len(picks) < budget:
        notes.append(f"{budget} were asked for, but no other candidate adds a vehicle.")
    output = Folder(folder)
    output.write_output(RSUS, _format_rsus(rsus).encode())
    output.write_output("place.csv", table.write_csv().encode())
    return Places(rsus=table, vehicles=vehicles, candidates=places, lanes=net.all_lanes, notes=notes)


def participation_s(
    experiment: Experiment, timed: ClockModel, radio: ResolvedPlugin, sites: Sequence[Rsu], net: NetFile, at_m: Floats
) -> float:
    """Return an estimate of how long a participation takes (s); infinite if no vehicle is in range of a site.

    It is the median over places, links and computers of the time in which one vehicle, alone on the channel and at one
    place, downloads the model ``timed``, trains, and uploads it. The seed draws up to 20 of the ``sites`` with vehicles
    in range, and up to 50 of the positions ``at_m`` (N, 2) there; the net's lanes decide where buildings are.
    RunError: the radio model fails, or returns an impossible rate.
    """
    model, streams, took_s = radio.settings, Streams(seed=experiment.seed, path=("place",)), list[float]()
    order = streams.generator("sites").permutation(len(sites)).tolist()
    near = ((rsu, at_m[np.hypot(*(at_m - (rsu.x_m, rsu.y_m)).T) < rsu.range_m]) for rsu in (sites[k] for k in order))
    with plugin_errors(RADIO_MODELS.name, radio.found.name, "while the time of a participation was estimated"):
        for rsu, near_m in islice(((rsu, near_m) for rsu, near_m in near if len(near_m)), _SITES):
            generator = streams.generator("links", rsu.id)
            memory = model.begin([rsu], near_lanes(net.all_lanes, [rsu])) if hasattr(model, "begin") else None
            for number, (x_m, y_m) in enumerate(generator.permutation(near_m)[:_LINKS].tolist()):
                state = model.draw(generator, memory, (CAR_M,)) if hasattr(model, "draw") else None
                found = ((way, getattr(model, way)(rsu, (x_m, y_m), state)) for way in ("downlink_bps", "uplink_bps"))
                rates_bps = [number_of(rate, RATE, RADIO_MODELS, model, way) for way, rate in found]
                computer = vehicle_computer(experiment.compute, f"{rsu.id} {number}", streams)
                train_s = _PASSES * timed.image_flop * (timed.images or 0) / computer.flops
                took_s.append(train_s + sum(8 * timed.bytes / rate_bps for rate_bps in rates_bps))
    return float(np.median(took_s)) if took_s else math.inf


def _read_net(experiment: Experiment, candidates: str) -> NetFile:
    """Return the net, empty if the scenario names none and ``candidates`` is a file. InputError: scenario unfit."""
    scenario, settings = experiment.scenario, experiment.traffic
    kind = kind_of(scenario)
    if kind is None:
        raise unknown_kind(scenario)
    if kind.name not in {"sumo", "fcd"}:
        raise InputError(
            f"{scenario}: vnetsim place needs all traffic of a road net: a .sumocfg or an FCD recording. A run "
            "directory has only what its RSUs covered."
        )
    if not Path(scenario).is_file():
        raise InputError(f"{scenario}: no such file.")
    if settings.rsu or settings.rsu_spacing_m:
        raise InputError(
            "vnetsim place chooses the RSUs: leave out --rsu and --rsu-spacing (traffic.rsu and traffic.rsu_spacing_m) "
            "and see --candidates."
        )
    name = settings.net
    if kind.name == "sumo":
        options = options_of(Path(scenario))
        net = next((options[key] for key in ("net-file", "net", "n") if key in options), "")
        name = net and str(Path(scenario).parent / net)
    if not name and not is_rsu_file(candidates):
        how = "a recording's is named with --net" if kind.name == "fcd" else "its configuration has no net-file"
        raise InputError(f"{scenario}: no road net with junctions is known ({how}); or take --candidates FILE.xml.")
    return NetFile(Path(name) if name else None)


def _find_candidates(experiment: Experiment, net: NetFile, candidates: str) -> list[Rsu]:
    """Return the candidates, sorted by id; InputError: unknown word, none found, or two of a file share an id."""
    range_m = experiment.traffic.range_m or REACH_M
    if is_rsu_file(candidates):
        found = rsus_of_file(candidates, range_m)
        if twice := [name for name, times in Counter(rsu.id for rsu in found).items() if times > 1]:
            raise InputError(f"{candidates}: two candidates are called '{twice[0]}'.")
        return sorted(found, key=lambda rsu: rsu.id)
    ways = {"signalised": net.signalised_junctions(busiest_first=False), "junctions": sorted(net.junction_ids())}
    if candidates not in ways:
        raise unknown_name("candidates", candidates, (*ways, "FILE.xml"), where="--candidates")
    if not ways[candidates]:
        raise InputError(
            f"{net.path}: the net has no {candidates}; take other --candidates: {', '.join(ways)} or a file."
        )
    places = ((name, *net.junction_position(name)) for name in ways[candidates])
    return [Rsu(id=name, x_m=x_m, y_m=y_m, range_m=range_m) for name, x_m, y_m in places]


def _disc_around(lanes: Sequence[Floats], places: Sequence[Rsu]) -> str:
    """Return as ``x,y:range_m`` a disc with all traffic: around the lanes, or without lanes around ``places``."""
    points = np.concatenate(lanes) if lanes else np.array([(rsu.x_m, rsu.y_m) for rsu in places])
    low, high = points.min(axis=0), points.max(axis=0)
    x_m, y_m = (low + high) / 2
    radius_m = math.ceil(math.dist(low, high) / 2 + _BESIDE_M) if lanes else _FARTHEST_M
    return f"{x_m:.1f},{y_m:.1f}:{radius_m:g}"


def _find_or_record(
    experiment: Experiment, disc: str, folder: Path, command: Sequence[str], progress: ProgressDisplay
) -> RunDirectory:
    """Return the scenario's traffic in ``disc``, recorded now unless ``folder`` has it; InputError: other contents."""
    traffic = experiment.with_values({"traffic.rsu": (disc,), "traffic.range_m": None, "seed": 0})
    settings, known = json.loads(json.dumps(deciding_settings(traffic), default=str)), folder / _RECORD
    if not known.is_file() and folder.is_dir() and {*os.listdir(folder)} - {LOCK}:  # noqa: PTH208
        raise InputError(f"{folder}: the output directory is not empty; name a new one with --out.")
    run = RunDirectory(folder)
    with open_lock(run)[0]:
        try:
            before: Mapping[str, Any] = dict(json.loads(known.read_bytes())) if known.is_file() else {}
        except (ValueError, TypeError):
            raise InputError(f"{known}: damaged; name a new folder with --out.") from None
        if sha256 := before.get("sha256"):
            if before.get("settings") != settings:
                raise InputError(
                    f"{folder}: has the traffic of another scenario or of other settings; name a new folder with --out."
                )
            check_recording(folder / _TRAFFIC, RecordedEntry(folder=_TRAFFIC, settings=settings, sha256=sha256))
            return RunDirectory(folder / _TRAFFIC)
        run.write_output(_RECORD, json_bytes({"settings": settings}))
        try:
            entry = record_traffic(traffic, run, _TRAFFIC, settings, command=command, progress=progress)
        except InputError:  # nothing was recorded
            run.remove(_RECORD)
            run.remove(LOCK)
            run.unmake()
            raise
        run.write_output(_RECORD, json_bytes({"settings": settings, "sha256": entry.sha256}))
    return RunDirectory(folder / _TRAFFIC)


def _measure_stays(
    recorded: RunDirectory, places: Sequence[Rsu], progress: ProgressDisplay
) -> tuple[Stays, int, Floats]:
    """Return each vehicle's longest stay (s) at each place, the number of vehicles, and some positions (N, 2; m)."""
    discs = np.array([(rsu.x_m, rsu.y_m, rsu.range_m) for rsu in places])
    windows, found, at_m = recorded.scan("windows"), [NO_STAYS], [np.empty((0, 2))]
    names = windows.collect(lambda rows: rows.select("vehicle_id"))["vehicle_id"]
    vehicles = names.rank("dense").to_numpy().astype(np.int64) - 1  # one that teleported has several windows
    columns = ("path_time_s", "path_x_m", "path_y_m")
    for begin in range(0, len(names), _WINDOWS):
        part = windows.collect(lambda rows, begin=begin: rows.select(*columns).slice(begin, _WINDOWS))  # type: ignore[misc]
        time_s, x_m, y_m = (part[column].explode().to_numpy() for column in columns)
        path = np.repeat(np.arange(part.height), part["path_time_s"].list.len())
        stays = longest_stays(path, time_s, x_m, y_m, discs)
        found.append(stays._replace(path=vehicles[begin + stays.path]))
        at_m.append(np.column_stack((x_m, y_m))[:: max(1, len(x_m) // _POSITIONS)])
        progress.advance(time_s=float(time_s[-1]), done=begin + part.height, total=len(names))
    rows = pl.DataFrame(dict(zip(Stays._fields, map(np.concatenate, zip(*found, strict=True)), strict=True)))
    longest = rows.group_by("disc", "path").agg(pl.col("stay_s").max()).sort("disc", "path")
    stays = Stays(*(longest[column].to_numpy() for column in Stays._fields))
    return stays, int(vehicles.max(initial=-1)) + 1, np.concatenate(at_m)


def _notes(recorded: RunDirectory, needed_s: float) -> list[str]:
    """Return notes: how long a vehicle must stay to count as reached, and which vehicles do not count at all."""
    traffic = recorded.manifest_record().traffic
    how = "in range of an RSU at any time."
    if needed_s:
        how = (
            f"in range of one RSU for at least {needed_s:.3g} s at a time, which a participation takes in the median. "
            "That is an estimate, not a run: one vehicle alone on the channel, by the settings cost, radio and compute."
        )
    notes = [f"Reached: {how}"]
    if traffic.left_out:
        notes.append(f"Not counted, by their type (traffic.vehicle_types): {traffic.left_out}.")
    if glimpsed := sum(traffic.glimpsed.values()):
        notes.append(f"Not counted, seen at one instant only: {glimpsed}.")
    return notes


def _notes_on_own(experiment: Experiment, places: Sequence[Rsu], candidates: str) -> list[str]:
    """Return a note on the scenario's own RSUs, which are ignored, if any; ``candidates`` is the option as given."""
    named = {rsu.id for rsu in places} if is_rsu_file(candidates) else set[str]()
    found = rsu_ids(Path(experiment.scenario)) if is_sumo(experiment.scenario) else []
    own = [name for name in found if name not in named]
    if not own:
        return []
    more = f" and {len(own) - _NAMED} more" if len(own) > _NAMED else ""
    names = f"{', '.join(own[:_NAMED])}{more}"
    alone = f"a run with --rsu {RSUS} has only the chosen ones."
    return [f"Left out: the scenario's own RSUs ({names}). Places are chosen as if there were none, and {alone}"]


def _format_rsus(rsus: Sequence[Rsu]) -> str:
    """Return the text of a SUMO additional file: RSUs as POIs of type ``rsu``, with range (m) and environment."""
    pois = []
    for rsu in rsus:
        keys = {"range": f"{rsu.range_m:g}"} | ({"environment": rsu.environment} if rsu.environment else {})
        params = "".join(f'        <param key="{key}" value={quoteattr(value)}/>\n' for key, value in keys.items())
        place = f'type="rsu" x="{rsu.x_m!r}" y="{rsu.y_m!r}"'
        pois.append(f"    <poi id={quoteattr(rsu.id)} {place}>\n{params}    </poi>\n")
    return f"<additional>\n{''.join(pois)}</additional>\n"
