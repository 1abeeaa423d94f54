"""The benchmark from Python: ``vnetsim bench``, and its commands ``table``, ``check`` and ``traces``."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from vnetsim import __version__
from vnetsim.api.calls import Show, display_of
from vnetsim.api.results import Run, TableText
from vnetsim.api.settings import SettingTree, folder_of, join_values, overrides_of, path_of, text_of
from vnetsim.api.studies import Study
from vnetsim.errors import InputError, RunError
from vnetsim.own_packages import claim
from vnetsim.progress import ProgressDisplay
from vnetsim.runs.manifest import environment
from vnetsim.simulation.selection import SELECTIONS
from vnetsim.storage.bench_track import Track
from vnetsim.storage.folder import Folder
from vnetsim.storage.records import BenchRecord, BenchSeed
from vnetsim.study.bench import (
    BASELINE,
    COUNTED,
    BenchArm,
    arm_of_row,
    asked_arm,
    bench_folder,
    differences,
    load_track,
    read_row,
    refuse_other_traffic,
    row_file,
    shipped_seeds,
    track_names,
)
from vnetsim.study.levels import seeds_of
from vnetsim.study.runner import compare as run_comparison

HOME = Path("bench")  # default folder of cells and rows, in the working directory


@dataclass(frozen=True)
class BenchRow:
    """Result of an arm on a track, compared with the baseline.

    Attributes:
        path: the file to send.
        table: the result as text, one row per measure: those of the columns of ``bench_table``.
    """

    path: Path
    table: TableText


def bench(
    track: str,
    *,
    learner: str | None = None,
    selection: str | None = None,
    aggregation: str | None = None,
    handover: str | None = None,
    control: str | None = None,
    size: str = "small",
    settings: SettingTree | None = None,
    device: str | None = None,
    workers: int = 1,
    out: str | os.PathLike[str] | None = None,
    progress: Show = None,
    command: Sequence[str] | None = None,
) -> BenchRow:
    """Run an arm and the baseline on a benchmark track, write the row and return it: ``vnetsim bench TRACK``.

    Finished cells are not run again, so the same call continues one that was interrupted or whose cells failed.

    Args:
        track: ``"intersection"``, ``"expressway"``, ``"corridor"`` or ``"city"``.
        learner: a name, or ``"path/to/file.py:CLASS"``; default the baseline of the track's first task.
        selection: a selection policy, by name or as ``"path/to/file.py:CLASS"``.
        aggregation: an aggregation rule, likewise.
        handover: ``handover.policy``, on tracks with several RSUs.
        control: name of an arm of the track with a known effect; ``learner``, policies and rules must then be left out.
        size: ``"small"`` or ``"paper"``.
        settings: other settings that the track leaves open.
        device: see ``vnetsim.run``; rows of size small are made on the CPU.
        workers: cells to run at once.
        out: folder of cells and rows; default ``bench``.
        progress: see ``vnetsim.run``.
        command: see ``vnetsim.run``.

    Raises:
        InputError: track, arm or size does not exist, the track fixes a setting, or its files or traffic have changed.
        RunError: cells failed.
    """
    named = {"selection__name": selection, "aggregation__name": aggregation, "handover__policy": handover}
    given = overrides_of(settings, learner=learner, **named)
    found = load_track(text_of(track, "track"), text_of(size, "size"))
    arm = asked_arm(found, {".".join(path): value for path, value in given}, control)
    home = folder_of(out) or HOME
    seeds = range(len(found.windows))
    row = _run_row(arm, seeds, home, progress=progress, device=device, workers=workers, command=command)
    claim("analysis")
    from analysis.comparison.bench import overview  # noqa: PLC0415

    name = f"rows/{row_file(row)}"
    Folder(home).write_output(name, _encode_row(row))
    table = overview([row], found)
    head, *measures = zip(table.head, *table.rows, strict=True)
    return BenchRow(home / name, (table.title, head, measures, table.note))


def bench_table(*rows: str | os.PathLike[str]) -> str:
    """Return all rows of the benchmark as Markdown: ``vnetsim bench table``.

    Args:
        rows: files, or folders of files; default ``bench/rows`` if it exists. Shipped rows are added, except for arms
            (of a track, size and task) that these files have.

    Raises:
        InputError: a file is no row, or its track or its baseline's results differ from the installed ones.
    """
    found = [Path(path_of(one, "rows")) for one in rows] or [HOME / "rows"] * (HOME / "rows").is_dir()
    found.append(bench_folder() / "rows")
    arms: dict[tuple[str, ...], tuple[BenchRecord, Track]] = {}
    for file in (file for one in found for file in (sorted(one.rglob("*.json")) if one.is_dir() else [one])):
        row, track = read_row(file)
        arms.setdefault((row.track, row.size, row.task, row.arm), (row, track))
    groups = []
    for _, keys in groupby(sorted(arms), key=lambda key: key[:3]):
        group = [arms[key] for key in keys]
        groups.append((group[0][1], [row for row, _ in group]))
        _refuse_other_baseline(*groups[-1])
    claim("analysis")
    from analysis.comparison.bench import markdown  # noqa: PLC0415

    return markdown(groups)


def _refuse_other_baseline(track: Track, rows: Sequence[BenchRecord]) -> None:
    """Raise InputError if the baseline of one of ``rows``, all of a task, is not the shipped rows' (if any)."""
    task = rows[0].task
    shipped, tolerance = shipped_seeds(track, task), track.tasks[task].tolerance
    for row in rows if shipped else ():
        for seed, words, fault in differences(row.seeds, shipped, "baseline", tolerance):
            if fault:
                where = "" if seed is None else f"seed {seed}: "
                raise InputError(f"{row.arm:.60}: {where}{words}, as on track {track.words}; run the row again.")


def bench_check(
    row: str | os.PathLike[str],
    *,
    seeds: str | int | Iterable[int] = 0,
    code: Mapping[str, str] | None = None,
    workers: int = 1,
    progress: Show = None,
    command: Sequence[str] | None = None,
) -> list[str]:
    """Run seeds of a row again, with their traffic, and return in lines how they compare: ``vnetsim bench check ROW``.

    Times, commits, bytes and energy must agree to a relative 1e-9, the mean of the metric over the seeds to the track's
    tolerance. The line of a seed says whether all values are equal bit for bit, as they are on the same model of
    processor with the same packages. Other processors round differently, which training amplifies. A policy that
    selects by losses or updates may then invite others; for such an arm, commits, bytes and energy may differ.

    Args:
        row: the row's file. Nothing in it is run.
        seeds: the seeds to run, such as ``"0:3"``.
        code: plug-ins of the row that are not part of vnetsim, by setting: ``{"learner": "mine.py:Mine"}``.
        workers: cells to run at once.
        progress: see ``vnetsim.run``.
        command: see ``vnetsim.run``.

    Raises:
        InputError: the file is no row, its track or its baseline's results differ from the installed ones, or a plug-in
            is missing or differs.
        RunError: a cell failed, or the results do not agree.
    """
    theirs, track = read_row(Path(path_of(row, "row")))
    _refuse_other_baseline(track, [theirs])
    arm = arm_of_row(theirs, track, code or {})
    numbers = seeds_of(join_values(seeds, str, "seeds", "range(3)"), "seeds")
    if beyond := [one for one in numbers if one >= len(track.windows)]:
        raise InputError(f"seeds: {beyond[0]} is none of the track's, which are 0 to {len(track.windows) - 1}.")
    with tempfile.TemporaryDirectory(prefix="vnetsim-bench-") as place:
        ours = _run_row(arm, numbers, Path(place), progress=progress, workers=workers, command=command)
    policy = SELECTIONS.find(arm.plan(numbers).cells[-1].experiment.selection["name"])
    # if the policy uses results of training, rounding may change who takes part
    follows = COUNTED if getattr(policy, "uses_losses", False) else ()
    tolerance, said = track.tasks[theirs.task].tolerance, [theirs.seeds[one] for one in numbers]
    found = list(differences(ours.seeds, said, "row", tolerance, follows))
    found += differences(ours.seeds, said, "baseline", tolerance)
    if faults := [f"seed {seed}: {words}" * (seed is not None) or words for seed, words, fault in found if fault]:
        raise RunError(f"{row}: came out otherwise here: {'; '.join(faults)}.")
    lines = []
    for seed in numbers:
        unlike = "; ".join(words for at, words, _ in found if at == seed)
        how = f"not bit for bit, as with another processor or other packages: {unlike}"
        lines.append(f"seed {seed}: {how if unlike else 'as the row says, bit for bit'}.")
    return lines + [f"{words}." for seed, words, _ in found if seed is None]


def bench_traces(
    *tracks: str,
    to: str | os.PathLike[str],
    workers: int = 1,
    progress: Show = None,
    command: Sequence[str] | None = None,
) -> Path:
    """Write the tracks' traffic and schedules as tables into a folder, and return its path: ``vnetsim bench traces``.

    The schedule is that of the baseline of each track's first task, at size ``small``; nothing is trained. The folder
    has tables in CSV and Parquet, ``croissant.json``, which describes them, and ``replay.py``, which counts commits.
    The same call continues one that was interrupted.

    Args:
        tracks: names; default all of them.
        to: folder to make.
        workers: cells to run at once.
        progress: see ``vnetsim.run``.
        command: see ``vnetsim.run``.

    Raises:
        InputError: a track does not exist, its files or traffic have changed, or ``to`` is not empty.
        RunError: cells failed, or ``to`` cannot be written.
    """
    names = [text_of(one, "tracks") for one in tracks] or track_names()
    arms = [asked_arm(load_track(name), {}) for name in dict.fromkeys(names)]
    claim("analysis")
    from analysis.export.paper import require_empty  # noqa: PLC0415 - matplotlib only for figures
    from analysis.export.traces import TrackTraces, export_traces  # noqa: PLC0415

    target, found = Path(path_of(to, "to")), []
    again = command or [f"vnetsim.bench_traces({''.join(f'{one!r}, ' for one in tracks)}to={str(target)!r})"]
    require_empty(target)  # before minutes of simulation
    with display_of(progress) as display:
        for arm in arms:
            display.note(f"track {arm.track.words}")
            seeds = range(len(arm.track.windows))
            cells = _run_cells(arm, seeds, HOME, display, timing_only=True, workers=workers, command=again)
            runs = [cells[BASELINE, "", seed].path for seed in seeds]
            shipped = shipped_seeds(arm.track, arm.row.task)
            commits: list[int | None] = [one.baseline.commits for one in shipped]
            found.append(TrackTraces(track=arm.track, runs=runs, commits=commits or [None] * len(runs)))
        display.stage("writing")
        return export_traces(found, target)


def _run_cells(
    arm: BenchArm,
    seeds: Sequence[int],
    home: Path,
    display: ProgressDisplay,
    *,
    device: str | None = None,
    timing_only: bool = False,
    workers: int,
    command: Sequence[str] | None,
) -> Mapping[tuple[str, str, int], Run]:
    """Run the missing cells of baseline and arm; return the folder's by (arm, "", seed). RunError if any failed."""
    track = arm.track
    display.stage("loading")
    plan = arm.plan(seeds, [] if device is None else [(("device",), device)], timing_only=timing_only)
    folder = home / f"{track.name}-{track.version}"
    failed = run_comparison(
        plan,
        folder,
        command=command or [f"vnetsim.bench({track.name!r})"],
        progress=display,
        workers=workers,
        check=partial(refuse_other_traffic, track, seeds),
    )
    if failed:
        raise RunError(f"{len(failed)} cells failed, the first by: {next(iter(failed.values()))}")
    return Study(folder).runs


def _run_row(arm: BenchArm, seeds: Sequence[int], home: Path, progress: Show, **how: Any) -> BenchRecord:
    """Run the missing cells, and return the row with their results; ``how`` and errors are those of ``_run_cells``."""
    with display_of(progress) as display:
        cells = _run_cells(arm, seeds, home, display, **how)
    claim("analysis")
    from analysis.comparison.bench import values_of  # noqa: PLC0415

    track, task = arm.track, arm.task
    metric = (arm.control.metric if arm.control else "") or task.metric
    rows = []
    for seed in seeds:
        first = values_of(cells[BASELINE, "", seed].path, task.metric, task.target)
        cell = cells.get((arm.row.arm, "", seed))  # the baseline itself has no other cell
        own = first if cell is None else values_of(cell.path, metric, task.target)
        rows.append(BenchSeed(seed=seed, traffic=track.windows[seed], row=own, baseline=first))
    made = f"{datetime.now(UTC):%Y-%m-%d}"
    return dataclasses.replace(arm.row, seeds=rows, vnetsim=__version__, **environment(), made=made)


def _encode_row(row: BenchRecord) -> bytes:
    """Return the content of a row's file: JSON, one line per seed."""
    plain: dict[str, Any] = dataclasses.asdict(row)
    seeds = ",\n  ".join(json.dumps(one) for one in plain.pop("seeds"))
    head = ",\n ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in plain.items())
    return f'{{{head},\n "seeds": [\n  {seeds}\n ]}}\n'.encode()
