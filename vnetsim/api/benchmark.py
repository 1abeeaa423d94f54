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
from vnetsim.api.results import Page, TableText
from vnetsim.api.settings import SettingTree, folder_of, overrides_of, path_of, text_of
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
    BenchArm,
    asked_arm,
    bench_folder,
    load_track,
    refuse_other_traffic,
    track_names,
)
from vnetsim.study.bench_rows import COUNTED, arm_of_row, differences, differing_means, read_row, row_file
from vnetsim.study.levels import seeds_of
from vnetsim.study.runner import compare as run_comparison

HOME = Path("bench")
"""Default folder of cells and rows, relative to the working directory."""

_ARMS = {"row": "arm", "baseline": "baseline"}
"""Fields of ``BenchSeed`` and their names in messages."""


@dataclass(frozen=True)
class BenchRow:
    """Result of an arm on a track, compared with the baseline.

    Attributes:
        path: the file to send.
        table: the result as text, one row per measure.
    """

    path: Path
    table: TableText


@dataclass(frozen=True)
class BenchCheck:
    """Comparison of a row with a second run of it.

    Attributes:
        agrees: whether the second run agrees with the row.
        lines: one line per seed, then one for each mean over the seeds that is not the same.
    """

    agrees: bool
    lines: Sequence[str]


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
    given = overrides_of(settings, selection__name=selection, aggregation__name=aggregation, handover__policy=handover)
    chosen = load_track(text_of(track, "track"), text_of(size, "size"))
    arm = asked_arm(chosen, {".".join(path): value for path, value in given}, learner, control)
    home = folder_of(out) or HOME
    with display_of(progress) as display:
        row = _run(arm, range(len(chosen.windows)), home, display, device=device, workers=workers, command=command)
    claim("analysis")
    from analysis.comparison.bench import row_table  # noqa: PLC0415

    name = f"rows/{row_file(row)}"
    Folder(home).write_output(name, _content(row))
    table = row_table(row, chosen)
    return BenchRow(home / name, (table.title, table.head, table.rows, table.note))


def bench_table(
    *rows: str | os.PathLike[str], to: str | os.PathLike[str] | None = None, shipped: bool = True
) -> tuple[str, Page | None]:
    """Return all rows of the benchmark as Markdown, and the page with them: ``vnetsim bench table``.

    Args:
        rows: files, or folders of files; default ``bench/rows`` if it exists.
        to: folder for ``bench.md`` and ``bench.html``; None writes nothing, and the page is then None.
        shipped: whether to add the rows that come with vnetsim, except those of arms in ``rows``.

    Raises:
        InputError: a file is no row, its track differs from the installed one, or there are no rows.
    """
    own = bench_folder() / "rows"
    found = [Path(path_of(one, "rows")) for one in rows] or [HOME / "rows"] * (HOME / "rows").is_dir()
    found += [own] * (shipped and own.is_dir())
    files = [file for one in found for file in (sorted(one.rglob("*.json")) if one.is_dir() else [one])]
    arms: dict[tuple[str, ...], tuple[BenchRecord, Track]] = {}
    for file in files:
        row, track = read_row(file)
        arms.setdefault((row.track, row.size, row.task, row.arm), (row, track))
    if not arms:
        raise InputError("vnetsim bench table: there is no row; make one with vnetsim bench TRACK.")
    claim("analysis")
    from analysis.comparison.bench import markdown, page  # noqa: PLC0415

    parts = [[arms[key] for key in part] for _, part in groupby(sorted(arms), key=lambda key: key[:3])]
    groups = [(part[0][1], [row for row, _ in part]) for part in parts]
    text = markdown(groups)
    if to is None:
        return text, None
    folder = Folder(path_of(to, "to"))
    folder.write_output("bench.md", text.encode())
    folder.write_output("bench.html", page(groups, __version__).encode("utf-8", "replace"))
    return text, Page(folder.path / "bench.html")


def bench_check(
    row: str | os.PathLike[str],
    *,
    seeds: str | int | Iterable[int] = 0,
    code: Mapping[str, str] | None = None,
    workers: int = 1,
    progress: Show = None,
    command: Sequence[str] | None = None,
) -> BenchCheck:
    """Run seeds of a row again, including the traffic, and compare: ``vnetsim bench check ROW``.

    Times, commits, bytes and energy must agree to a relative 1e-9, the mean of the metric over the seeds to the track's
    tolerance. Each line says whether all values are equal bit for bit, as they are on the same model of processor with
    the same packages. Other processors round differently, which training amplifies. A policy that selects by losses or
    updates may then invite others; for such an arm, differences of commits, bytes and energy are shown but do not
    count.

    Args:
        row: the row's file. Nothing in it is run.
        seeds: the seeds to run, such as ``"0:3"``.
        code: plug-ins of the row that are not part of vnetsim, by setting: ``{"learner": "mine.py:Mine"}``.
        workers: cells to run at once.
        progress: see ``vnetsim.run``.
        command: see ``vnetsim.run``.

    Raises:
        InputError: the file is no row, its track differs from the installed one, or a plug-in is missing or differs.
        RunError: a cell failed.
    """
    theirs, track = read_row(Path(path_of(row, "row")))
    arm = arm_of_row(theirs, track, dict(code or {}))
    listed = [seeds] if isinstance(seeds, int) else seeds if isinstance(seeds, str) else list(seeds)
    numbers = list(seeds_of(listed, "seeds"))
    if beyond := [one for one in numbers if one >= len(track.windows)]:
        raise InputError(f"seeds: {beyond[0]} is none of the track's, which are 0 to {len(track.windows) - 1}.")
    with display_of(progress) as display, tempfile.TemporaryDirectory(prefix="vnetsim-bench-") as place:
        ours = _run(arm, numbers, Path(place), display, workers=workers, command=command)
    policy = SELECTIONS.find(arm.plan(numbers).cells[-1].experiment.selection["name"])
    # if the policy uses results of training, rounding may change who takes part
    follows = COUNTED if getattr(policy, "uses_losses", False) else ()
    lines: list[str] = []
    agrees = True
    for one in ours.seeds:
        words, faults = [], []
        for who, called in _ARMS.items():
            for name, mine, other, more in differences(getattr(one, who), getattr(theirs.seeds[one.seed], who)):
                words.append(f"{name} of the {called} is {mine}, the row says {other}")
                faults += words[-1:] * (more and (who == "baseline" or name not in follows))
        how = "as the row says, bit for bit"
        if words:
            how = f"not bit for bit, as with another processor or other packages: {'; '.join(words)}"
        lines.append(f"seed {one.seed}: {'; '.join(faults) or how}.")
        agrees = agrees and not faults
    tolerance = track.tasks[theirs.task].tolerance
    for who, called in _ARMS.items():
        both = ([getattr(one, who) for one in rows] for rows in (ours.seeds, [theirs.seeds[seed] for seed in numbers]))
        for name, mean, said in differing_means(*both):
            close = abs(mean - said) <= tolerance
            lines.append(
                f"mean over {len(numbers)}: {name} of the {called} is {mean:.4g}, the row says {said:.4g}, "
                f"{'at most' if close else 'more than'} {tolerance:g} apart."
            )
            agrees = agrees and close
    return BenchCheck(agrees=agrees, lines=lines)


def bench_traces(
    *tracks: str,
    to: str | os.PathLike[str],
    workers: int = 1,
    progress: Show = None,
    command: Sequence[str] | None = None,
) -> Path:
    """Write the tracks' traffic and schedules into a folder of tables that need no vnetsim: ``vnetsim bench traces``.

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
    arms = [asked_arm(load_track(name), {}, None, None) for name in dict.fromkeys(names)]
    claim("analysis")
    from analysis.export.paper import refuse_what_is_there  # noqa: PLC0415 - matplotlib only for figures
    from analysis.export.traces import TrackTraces, export_traces  # noqa: PLC0415

    target, found = Path(path_of(to, "to")), []
    again = command or [f"vnetsim.bench_traces({''.join(f'{one!r}, ' for one in tracks)}to={str(target)!r})"]
    refuse_what_is_there(target)  # before minutes of simulation
    with display_of(progress) as display:
        for arm in arms:
            display.note(f"track {arm.track.words}")
            seeds = range(len(arm.track.windows))
            folder = _run_cells(arm, seeds, HOME, display, timing_only=True, workers=workers, command=again)
            cells = Study(folder).runs
            runs = [cells[BASELINE, "", seed].path for seed in seeds]
            found.append(TrackTraces(track=arm.track, runs=runs, commits=_published_commits(arm)))
        display.stage("writing")
        return export_traces(found, target)


def _published_commits(arm: BenchArm) -> Sequence[int | None]:
    """Return the commits of the baseline at each seed from a shipped row; None where no row has them."""
    for file in sorted((bench_folder() / "rows" / arm.track.name).glob("*.json")):
        row, _ = read_row(file)
        if (row.size, row.task) == (arm.track.size, arm.task):
            return [one.baseline.commits for one in row.seeds]
    return [None] * len(arm.track.windows)


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
) -> Path:
    """Run the missing cells of baseline and arm below ``home``, and return their folder; RunError if any failed."""
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
    return folder


def _run(arm: BenchArm, seeds: Sequence[int], home: Path, display: ProgressDisplay, **how: Any) -> BenchRecord:
    """Run the missing cells and return the row; arguments and errors are those of ``_run_cells``."""
    track, task = arm.track, arm.track.tasks[arm.task]
    folder = _run_cells(arm, seeds, home, display, **how)
    claim("analysis")
    from analysis.comparison.bench import values_of  # noqa: PLC0415

    cells = Study(folder).runs
    metric = (arm.control.metric if arm.control else "") or task.metric
    rows = []
    for seed in seeds:
        first = values_of(cells[BASELINE, "", seed].path, task.metric, task.target)
        own = first if arm.is_baseline else values_of(cells[arm.label, "", seed].path, metric, task.target)
        rows.append(BenchSeed(seed=seed, traffic=track.windows[seed], row=own, baseline=first))
    named = {key: value for key, value in arm.settings.items() if key not in arm.code}
    return BenchRecord(
        track=track.name,
        version=track.version,
        track_sha256=track.sha256,
        size=track.size,
        task=arm.task,
        arm=arm.label,
        learner="" if "learner" in arm.code else Path(arm.learner).name,
        seeds=rows,
        settings={} if arm.control else named,
        code=arm.code,
        control=arm.control.name if arm.control else "",
        vnetsim=__version__,
        **environment(),
        made=f"{datetime.now(UTC):%Y-%m-%d}",
    )


def _content(row: BenchRecord) -> bytes:
    """Return a row as the content of its file: JSON, one line per seed."""
    plain: dict[str, Any] = dataclasses.asdict(row)
    seeds = ",\n  ".join(json.dumps(one) for one in plain.pop("seeds"))
    head = ",\n ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in plain.items())
    return f'{{{head},\n "seeds": [\n  {seeds}\n ]}}\n'.encode()
