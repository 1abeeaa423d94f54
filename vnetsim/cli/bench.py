"""``vnetsim bench``: an arm on a frozen track, the table of all rows, a row run again, and the traces."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

import vnetsim
from vnetsim.cli.options import OutputPath, settings_of, typed_command
from vnetsim.standard_streams import plain

bench = App(name="bench", help="Run an arm on a frozen track beside its baseline; show and check rows; write traces.")

Workers = Annotated[int, Parameter(help="Cells to run at once, each in a process of its own.")]
Settings = Annotated[tuple[str, ...], Parameter(name="--set", negative="")]


@bench.default
def run(
    track: str,
    /,
    *,
    learner: str | None = None,
    selection: str | None = None,
    aggregation: str | None = None,
    handover: str | None = None,
    control: str | None = None,
    size: str = "small",
    set_: Settings = (),
    device: str | None = None,
    workers: Workers = 1,
    out: OutputPath = None,
) -> int:
    """Run the missing cells of an arm and of its baseline at ten seeds, print the row, and write its file.

    Args:
        track: intersection, expressway, corridor or city.
        learner: Learner, or path/to/file.py:CLASS; default: the baseline of the first task.
        selection: Selection policy (the baseline's: random).
        aggregation: Aggregation rule (the baseline's: sync).
        handover: Handover policy, on tracks with several RSUs (the baseline's: drop).
        control: An arm of the track whose effect is known, such as signs-iid; give nothing else.
        size: small, for two CPU cores, or paper, for a GPU.
        set_: A setting that the track leaves open, as table.key=value. Repeatable.
        device: For size paper: auto, cpu, cuda or cuda:N.
        out: Folder of cells and rows; default: bench. Finished cells in it are not run again.
    """
    from vnetsim.cli.terminal import print_results  # noqa: PLC0415 - keeps --help quick

    row = vnetsim.bench(
        track,
        learner=learner,
        selection=selection,
        aggregation=aggregation,
        handover=handover,
        control=control,
        size=size,
        settings=settings_of(set_),
        device=device,
        workers=workers,
        out=out,
        command=typed_command(),
    )
    print_results([row.table], [], row.path, title=f"vnetsim bench {track}", kind="row")
    return 0


@bench.command
def table(*rows: Path) -> int:
    """Print all rows as Markdown, each against its baseline.

    Args:
        rows: Files of rows, or folders of them; default: bench/rows. Shipped rows are added.
    """
    print(plain(vnetsim.bench_table(*rows)))
    return 0


@bench.command
def check(
    row: Path, /, *, seeds: str = "0", learner: str | None = None, set_: Settings = (), workers: Workers = 1
) -> int:
    """Run seeds of a row again, including the traffic, and compare the results with the row.

    Args:
        row: File of a row, your own or somebody else's.
        seeds: Seeds to run again, as FIRST:END or a,b,c.
        learner: The row's learner, if it comes from a file (path/to/file.py:CLASS), whose code is then run.
        set_: The same for other plug-ins of files, as selection.name=path/to/file.py:CLASS. Repeatable.
    """
    code = dict(text.partition("=")[::2] for text in set_) | ({} if learner is None else {"learner": learner})
    for line in vnetsim.bench_check(row, seeds=seeds, code=code, workers=workers, command=typed_command()):
        print(plain(line))
    return 0


@bench.command
def traces(*tracks: str, to: Path, workers: Workers = 1) -> int:
    """Write the tracks' traffic and schedules as CSV and Parquet, with a data card and a script that replays them.

    Args:
        tracks: Names of tracks; default: all four.
        to: Folder to make.
    """
    print(plain(f"traces: {vnetsim.bench_traces(*tracks, to=to, workers=workers, command=typed_command())}"))
    return 0
